// SPDX-License-Identifier: Apache-2.0
// A script is tokenised, then interpreted statement by statement: assignments are made, commands
// are collected, `if` is decided when it compares known values. Loops, `case` and undecided `if`
// are processed as uncertain: they only set variables that are not set otherwise.
#include "software/shell.h"

#include "base/number.h"
#include "base/schema.h"
#include "base/text.h"
#include "software/shell_state.h"

enum { DEPTH_MAX = 64, DELIMITER_BYTES = 64 };

// ---- words and operators, without comments and here-documents ----

typedef enum token_kind {
  TOKEN_WORD,
  TOKEN_END,    // of a command: a newline, ; or &
  TOKEN_AND,    // &&
  TOKEN_OR,     // ||
  TOKEN_PIPE,   // | and redirections, whose target is omitted
  TOKEN_OPEN,   // (
  TOKEN_CLOSE,  // )
  TOKEN_LAST,   // the end of the text
} token_kind;

typedef struct shell_token {
  token_kind kind;
  const char *text;  // of a word
  int line;          // from 1
  bool joined;       // directly after the previous token
} shell_token;

typedef struct lexer {
  ot_arena *arena;
  const char *at;  // in a text that ends in zero
  int line;
  bool blank;                       // since the last token
  char delimiter[DELIMITER_BYTES];  // of a here-document that begins after this line; "" = none
  shell_token *tokens;
  int64_t count, capacity;
} lexer;

static shell_token *add(lexer *l, token_kind kind) {
  l->tokens = ot_arena_grow(l->arena, l->tokens, l->count, &l->capacity, sizeof *l->tokens);
  shell_token *const token = &l->tokens[l->count++];
  *token = (shell_token){.kind = kind, .text = "", .line = l->line, .joined = !l->blank};
  l->blank = false;
  return token;
}

static bool ends_word(char c) { return c == '\0' || ot_text_has(" \t\r\n;&|()<>", c); }

static void count_lines(lexer *l, const char *from, const char *to) {
  for (const char *p = from; p < to; p++) l->line += *p == '\n';
}

static void read_word(lexer *l) {
  const char *const start = l->at;
  shell_token *const token = add(l, TOKEN_WORD);
  while (!ends_word(*l->at)) {
    if (*l->at == '\\' && l->at[1] != '\0') {
      l->at += 2;
    } else if (ot_text_has("'\"`$", *l->at)) {
      l->at += ot_shell_piece(l->at);
    } else {
      l->at++;
    }
  }
  token->text = ot_arena_text(l->arena, start, l->at - start);
  count_lines(l, start, l->at);
}

static void skip_line(lexer *l) {
  while (*l->at != '\0' && *l->at != '\n') l->at++;
}

// Skips the lines of a here-document, including its end.
static void skip_document(lexer *l) {
  const int64_t length = ot_text_length(l->delimiter);
  bool found = length == 0;
  while (!found && *l->at != '\0') {
    const char *start = l->at;
    while (*start == '\t') start++;
    found = ot_text_starts_with(start, l->delimiter) &&
            (start[length] == '\n' || start[length] == '\0');
    skip_line(l);
    if (*l->at == '\n') l->at++;
    l->line++;
  }
  l->delimiter[0] = '\0';
}

static void read_new_line(lexer *l) {
  add(l, TOKEN_END);
  l->at++;
  l->line++;
  skip_document(l);
}

// The 2 of 2>&1 is not a word.
static void drop_descriptor(lexer *l) {
  const shell_token *const last = l->count > 0 ? &l->tokens[l->count - 1] : NULL;
  if (!last || l->blank || last->kind != TOKEN_WORD) return;
  if (ot_is_digit(last->text[0]) && last->text[1] == '\0') l->count--;
}

// < > >> <<EOF 2>&1: the target is not an argument.
static void skip_redirection(lexer *l) {
  drop_descriptor(l);
  const bool document = l->at[0] == '<' && l->at[1] == '<' && l->at[2] != '<';
  while (ot_text_has("<>&-", *l->at)) l->at++;
  while (*l->at == ' ') l->at++;
  const char *start = l->at;
  while (!ends_word(*l->at)) l->at++;
  if (!document) return;
  const bool has_quote = *start == '\'' || *start == '"';
  const int64_t length = l->at - start - (has_quote ? 2 : 0);
  ot_text_format(l->delimiter, DELIMITER_BYTES, "%.*s", (int)(length > 0 ? length : 0),
                 start + has_quote);
}

static void read_operator(lexer *l) {
  const char c = *l->at;
  if (c == '<' || c == '>') {
    skip_redirection(l);
    return;
  }
  const bool twice = l->at[1] == c;
  if (c == '&') {
    add(l, twice ? TOKEN_AND : TOKEN_END);
  } else if (c == '|') {
    add(l, twice ? TOKEN_OR : TOKEN_PIPE);
  } else {
    add(l, c == '(' ? TOKEN_OPEN : c == ')' ? TOKEN_CLOSE : TOKEN_END);
  }
  l->at += twice && c != '(' && c != ')' ? 2 : 1;
}

static void read_token(lexer *l) {
  const char c = *l->at;
  if (c == '\\' && (l->at[1] == '\n' || (l->at[1] == '\r' && l->at[2] == '\n'))) {
    l->at += l->at[1] == '\n' ? 2 : 3;
    l->line++;
    l->blank = true;
  } else if (c == '\n') {
    read_new_line(l);
  } else if (ot_is_space(c)) {
    l->at++;
    l->blank = true;
  } else if (c == '#') {
    skip_line(l);
  } else if (ends_word(c)) {
    read_operator(l);
  } else {
    read_word(l);
  }
}

static shell_token *tokens_of(const char *text, int64_t bytes, ot_arena *arena) {
  lexer l = {.arena = arena, .at = ot_arena_text(arena, text, bytes), .line = 1, .blank = true};
  while (*l.at != '\0') read_token(&l);
  add(&l, TOKEN_END);
  add(&l, TOKEN_LAST);
  return l.tokens;
}

// ---- statements ----

typedef enum truth { NO, YES, OPEN } truth;

// How statements are processed.
typedef enum passage { RUN, DOUBT, SKIP } passage;

typedef struct reader {
  ot_shell_state state;
  const shell_token *at;
  ot_shell_command *commands;
  int64_t num_commands, command_capacity;
  const char **notes;
  int64_t num_notes, note_capacity;
  int depth;
} reader;

static bool is_word(const shell_token *token, const char *text) {
  return token->kind == TOKEN_WORD && ot_text_equal(token->text, text);
}

static bool is_one_of(const shell_token *token, const char *words) {
  return token->kind == TOKEN_WORD && ot_choice_matches(words, token->text);
}

static bool ends_command(const shell_token *token) {
  return token->kind == TOKEN_END || token->kind == TOKEN_AND || token->kind == TOKEN_OR ||
         token->kind == TOKEN_PIPE || token->kind == TOKEN_LAST;
}

static void skip_ends(reader *r) {
  while (r->at->kind == TOKEN_END) r->at++;
}

static void note_doubt(reader *r, int line, const char *name, bool known) {
  r->notes =
      ot_arena_grow(r->state.arena, r->notes, r->num_notes, &r->note_capacity, sizeof *r->notes);
  r->notes[r->num_notes++] =
      ot_arena_format(r->state.arena, "line %d: whether %s is set here only a shell knows; %s",
                      line, name, known ? "it is not" : "it is, for want of another value");
}

// ---- conditions ----

static truth and_or(truth a, token_kind kind, truth b) {
  const truth decides = kind == TOKEN_AND ? NO : YES;
  if (a == decides || b == decides) return decides;
  if (a == OPEN || b == OPEN) return OPEN;
  return kind == TOKEN_AND ? YES : NO;
}

static truth opposite(truth value) { return value == OPEN ? OPEN : value == YES ? NO : YES; }

static truth compare_numbers(const char *a, const char *operation, const char *b) {
  int64_t x, y;
  if (!ot_number_parse_size(a, &x) || !ot_number_parse_size(b, &y)) return OPEN;
  if (ot_text_equal(operation, "-eq")) return x == y ? YES : NO;
  if (ot_text_equal(operation, "-ne")) return x != y ? YES : NO;
  if (ot_text_equal(operation, "-lt")) return x < y ? YES : NO;
  if (ot_text_equal(operation, "-le")) return x <= y ? YES : NO;
  if (ot_text_equal(operation, "-gt")) return x > y ? YES : NO;
  if (ot_text_equal(operation, "-ge")) return x >= y ? YES : NO;
  return OPEN;
}

static truth compare(const char *const *words, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    if (ot_shell_is_open(words[i])) return OPEN;
  }
  if (count == 1) return words[0][0] != '\0' ? YES : NO;
  if (count == 2 && ot_text_equal(words[0], "-n")) return words[1][0] != '\0' ? YES : NO;
  if (count == 2 && ot_text_equal(words[0], "-z")) return words[1][0] == '\0' ? YES : NO;
  if (count != 3) return OPEN;
  if (ot_choice_matches("=|==", words[1])) return ot_text_matches(words[0], words[2]) ? YES : NO;
  if (ot_text_equal(words[1], "!=")) return ot_text_matches(words[0], words[2]) ? NO : YES;
  return compare_numbers(words[0], words[1], words[2]);
}

// One word of a comparison: never split, "" when its variables are empty.
static const char *operand(reader *r, const shell_token *token) {
  ot_shell_list list = {0};
  ot_text_builder all = {.arena = r->state.arena};
  ot_shell_expand(&r->state, token->text, token->line, &list);
  for (int64_t i = 0; i < list.count; i++) {
    if (i > 0) ot_text_put(&all, " ");
    ot_text_put(&all, list.words[i].text);
  }
  return ot_text_builder_text(&all);
}

// A comparison inside [ ] or [[ ]], up to the end, && or ||.
static truth comparison(reader *r, const char *close) {
  enum { MOST = 4 };
  const char *words[MOST];
  int64_t count = 0;
  const bool negated = is_word(r->at, "!");
  if (negated) r->at++;
  bool plain = true;
  for (; !ends_command(r->at) && !is_word(r->at, close); r->at++) {
    if (r->at->kind != TOKEN_WORD || count == MOST) {
      plain = false;
    } else {
      words[count++] = operand(r, r->at);
    }
  }
  const truth value = plain && count > 0 ? compare(words, count) : OPEN;
  return negated ? opposite(value) : value;
}

static bool is_junction(const shell_token *token) {
  return token->kind == TOKEN_AND || token->kind == TOKEN_OR;
}

static truth test(reader *r) {
  const bool negated = is_word(r->at, "!");
  if (negated) r->at++;
  truth value = OPEN;
  if (is_one_of(r->at, "[|[[")) {
    const char *const close = is_word(r->at++, "[") ? "]" : "]]";
    value = comparison(r, close);
    while (is_junction(r->at)) {
      const token_kind kind = r->at++->kind;
      value = and_or(value, kind, comparison(r, close));
    }
    if (is_word(r->at, close)) r->at++;
  }
  if (!ends_command(r->at)) {  // a command: its exit status is unknown
    value = OPEN;
    while (!ends_command(r->at)) r->at++;
  }
  return negated ? opposite(value) : value;
}

// Up to and including `then`.
static truth condition(reader *r) {
  truth value = test(r);
  while (r->at->kind != TOKEN_LAST && !is_word(r->at, "then")) {
    if (is_junction(r->at)) {
      const token_kind kind = r->at++->kind;
      value = and_or(value, kind, test(r));
    } else if (r->at->kind == TOKEN_WORD) {
      value = OPEN;
      test(r);
    } else {
      if (r->at->kind == TOKEN_PIPE) value = OPEN;
      r->at++;
    }
  }
  if (r->at->kind != TOKEN_LAST) r->at++;
  return value;
}

// ---- statements ----

static void statements(reader *r, passage how);

static passage passage_of(passage outer, truth value, bool decided) {
  if (outer == SKIP || decided || value == NO) return SKIP;
  return value == OPEN ? DOUBT : outer;
}

static void read_if(reader *r, passage outer) {
  bool decided = false, open = false;
  do {  // if, elif
    r->at++;
    const truth value = condition(r);
    const passage inner = passage_of(outer, value, decided);
    statements(r, open && inner == RUN ? DOUBT : inner);
    decided = decided || value == YES;
    open = open || value == OPEN;
  } while (is_word(r->at, "elif"));
  if (is_word(r->at, "else")) {
    r->at++;
    const passage inner = passage_of(outer, YES, decided);
    statements(r, open && inner == RUN ? DOUBT : inner);
  }
  if (is_word(r->at, "fi")) r->at++;
}

static void read_in_doubt(reader *r, passage outer, const char *begin, const char *end) {
  while (r->at->kind != TOKEN_LAST && !is_word(r->at, begin)) r->at++;
  if (r->at->kind != TOKEN_LAST) r->at++;
  statements(r, outer == SKIP ? SKIP : DOUBT);
  if (is_word(r->at, end)) r->at++;
}

// The length of NAME in NAME=... or NAME+=..., or 0.
static int64_t assigned_name(const shell_token *token) {
  if (token->kind != TOKEN_WORD) return 0;
  const char *const text = token->text;
  int64_t n = 0;
  while (ot_shell_is_name(text[n])) n++;
  if (n == 0 || ot_is_digit(text[0])) return 0;
  return text[n] == '=' || (text[n] == '+' && text[n + 1] == '=') ? n : 0;
}

static void read_array(reader *r, ot_shell_list *value) {
  for (r->at++; r->at->kind != TOKEN_CLOSE && r->at->kind != TOKEN_LAST; r->at++) {
    if (r->at->kind != TOKEN_WORD) continue;
    ot_shell_expand(&r->state, r->at->text, r->at->line, value);
  }
  if (r->at->kind == TOKEN_CLOSE) r->at++;
}

// NAME+=text appends to the last word, NAME+=(...) appends words.
static void append_value(reader *r, ot_shell_variable *variable, const ot_shell_list *value,
                         bool array) {
  ot_shell_list *const list = &variable->value;
  int64_t i = 0;
  if (!array && list->count > 0 && value->count > 0) {
    ot_shell_word *const last = &list->words[list->count - 1];
    last->text = ot_arena_format(r->state.arena, "%s%s", last->text, value->words[i++].text);
    r->state.total += ot_text_length(last->text);
    if (r->state.total > 64 * OT_SHELL_BYTES_MAX) r->state.too_long = true;
  }
  for (; i < value->count; i++) ot_shell_append(&r->state, list, value->words[i]);
}

static void read_assignment(reader *r, passage how, int64_t length) {
  const shell_token *const token = r->at++;
  const bool appends = token->text[length] == '+';
  const char *const raw = token->text + length + (appends ? 2 : 1);
  const char *const name = ot_arena_text(r->state.arena, token->text, length);
  const bool array = raw[0] == '\0' && r->at->kind == TOKEN_OPEN && r->at->joined;
  ot_shell_list value = {0};
  if (array) {
    read_array(r, &value);
  } else {
    ot_shell_expand(&r->state, raw, token->line, &value);
  }
  const bool known = ot_shell_find(&r->state, name, length) != NULL;
  if (how == DOUBT) note_doubt(r, token->line, name, known);
  if (how == SKIP || (how == DOUBT && known)) return;
  ot_shell_variable *const variable = ot_shell_variable_of(&r->state, name);
  if (appends) {
    append_value(r, variable, &value, array);
  } else {
    variable->value = value;
  }
}

static void read_command(reader *r, passage how) {
  ot_shell_list words = {0};
  for (; !ends_command(r->at); r->at++) {
    if (r->at->kind != TOKEN_WORD) continue;
    ot_shell_expand(&r->state, r->at->text, r->at->line, &words);
  }
  if (how == SKIP || words.count == 0) return;
  r->commands = ot_arena_grow(r->state.arena, r->commands, r->num_commands, &r->command_capacity,
                              sizeof *r->commands);
  r->commands[r->num_commands++] =
      (ot_shell_command){.words = words.words, .num_words = words.count};
}

static void read_simple(reader *r, passage how) {
  while (is_one_of(r->at, "export|declare|local|readonly|env")) {
    r->at++;
    while (r->at->kind == TOKEN_WORD && r->at->text[0] == '-') r->at++;
  }
  for (int64_t length; (length = assigned_name(r->at)) > 0;) read_assignment(r, how, length);
  read_command(r, how);
}

static void statement(reader *r, passage how) {
  if (is_word(r->at, "if")) {
    read_if(r, how);
  } else if (is_one_of(r->at, "for|while|until|select")) {
    read_in_doubt(r, how, "do", "done");
  } else if (is_word(r->at, "case")) {
    read_in_doubt(r, how, "in", "esac");
  } else if (r->at->kind != TOKEN_WORD || is_one_of(r->at, "{|}|!|function")) {
    r->at++;
  } else if (r->at[1].kind == TOKEN_CLOSE) {  // a pattern of `case`
    r->at += 2;
  } else {
    read_simple(r, how);
  }
}

// Up to a word that ends a branch or a loop, which the caller consumes.
static void statements(reader *r, passage how) {
  if (++r->depth > DEPTH_MAX) r->state.too_long = true;
  for (skip_ends(r); r->at->kind != TOKEN_LAST && !r->state.too_long; skip_ends(r)) {
    if (is_one_of(r->at, "then|elif|else|fi|do|done|esac")) break;
    statement(r, how);
  }
  r->depth--;
}

ot_status ot_shell_read(const char *name, const char *text, int64_t bytes, ot_arena *arena,
                        ot_shell *out) {
  OT_CHECK(bytes <= OT_SHELL_BYTES_MAX, OT_USAGE, "%s: the script is longer than %d bytes", name,
           OT_SHELL_BYTES_MAX);
  reader r = {.state = {.name = name, .arena = arena}};
  r.at = tokens_of(text, bytes, arena);
  while (r.at->kind != TOKEN_LAST && !r.state.too_long) {
    statements(&r, RUN);
    if (r.at->kind != TOKEN_LAST) r.at++;  // a stray end word
  }
  OT_CHECK(
      !r.state.too_long, OT_USAGE,
      "%s:%d: the script is nested too deeply, or has too many words or variables, or too long "
      "ones",
      name, r.at->line);
  *out = (ot_shell){.commands = r.commands,
                    .num_commands = r.num_commands,
                    .notes = r.notes,
                    .num_notes = r.num_notes};
  return OT_OK;
}
