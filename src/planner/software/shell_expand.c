// SPDX-License-Identifier: Apache-2.0
// Words of scripts: splitting, and expansion of quotes, variables, defaults and arithmetic.
#include <string.h>

#include "base/number.h"
#include "base/text.h"
#include "software/shell_state.h"

enum { DEPTH_MAX = 32, TOTAL_WORDS_MAX = 1 << 16, VARIABLES_MAX = 4096 };

bool ot_shell_is_name(char c) { return ot_is_letter(c) || ot_is_digit(c) || c == '_'; }

ot_shell_variable *ot_shell_find(ot_shell_state *s, const char *name, int64_t length) {
  for (int64_t i = 0; i < s->num_variables; i++) {
    const char *const other = s->variables[i].name;
    if (ot_text_length(other) == length && memcmp(other, name, (size_t)length) == 0)
      return &s->variables[i];
  }
  return NULL;
}

ot_shell_variable *ot_shell_variable_of(ot_shell_state *s, const char *name) {
  ot_shell_variable *const found = ot_shell_find(s, name, ot_text_length(name));
  if (found) return found;
  if (s->num_variables == VARIABLES_MAX) {  // which are searched one by one
    s->too_long = true;
    return &s->variables[VARIABLES_MAX - 1];
  }
  s->variables = ot_arena_grow(s->arena, s->variables, s->num_variables, &s->variable_capacity,
                               sizeof *s->variables);
  s->variables[s->num_variables] = (ot_shell_variable){.name = name};
  return &s->variables[s->num_variables++];
}

void ot_shell_append(ot_shell_state *s, ot_shell_list *list, ot_shell_word word) {
  if (list->count >= TOTAL_WORDS_MAX) s->too_long = true;
  if (s->too_long) return;
  list->words =
      ot_arena_grow(s->arena, list->words, list->count, &list->capacity, sizeof *list->words);
  list->words[list->count++] = word;
}

bool ot_shell_is_open(const char *text) { return ot_text_has(text, '$') || ot_text_has(text, '`'); }

// ---- pieces of words ----

static int64_t piece(const char *text, int depth_left);

// Up to and including the `close` that matches `open` at `text`; quotes inside are skipped.
static int64_t bracketed(const char *text, char open, char close, int depth_left) {
  int depth = 0;
  int64_t i = 0;
  while (text[i] != '\0') {
    const char c = text[i];
    if (c == '\\' && text[i + 1] != '\0') {
      i += 2;
      continue;
    }
    if (c == '\'' || c == '"') {
      i += piece(text + i, depth_left);
      continue;
    }
    i++;
    if (c == open) depth++;
    if (c == close && --depth == 0) break;
  }
  return i;
}

static int64_t quoted(const char *text, int depth_left) {
  const char quote = text[0];
  int64_t i = 1;
  while (text[i] != '\0' && text[i] != quote) {
    if (text[i] == '\\' && quote != '\'' && text[i + 1] != '\0') {
      i += 2;
    } else if (text[i] == '$' && quote == '"') {
      i += piece(text + i, depth_left);
    } else {
      i++;
    }
  }
  return text[i] == '\0' ? i : i + 1;
}

static int64_t piece(const char *text, int depth_left) {
  if (depth_left == 0) return 1;
  if (text[0] == '\'' || text[0] == '"' || text[0] == '`') return quoted(text, depth_left - 1);
  if (text[0] != '$') return 1;
  if (text[1] == '{') return 1 + bracketed(text + 1, '{', '}', depth_left - 1);
  if (text[1] == '(') return 1 + bracketed(text + 1, '(', ')', depth_left - 1);
  if (!ot_is_letter(text[1]) && text[1] != '_') {
    return ot_is_digit(text[1]) || ot_text_has("@*#?", text[1]) ? 2 : 1;
  }
  int64_t i = 2;
  while (ot_shell_is_name(text[i])) i++;
  return i;
}

int64_t ot_shell_piece(const char *text) { return piece(text, DEPTH_MAX); }

// ---- arithmetic: integers, + - * / % and brackets ----

typedef struct arithmetic {
  ot_shell_state *s;
  const char *at;
  bool failed;  // only a shell knows the value
  int depth;
} arithmetic;

static int64_t terms(arithmetic *a, const char *operators);

static void skip_blanks(arithmetic *a) {
  while (ot_is_space(*a->at)) a->at++;
}

// A number, or the value of NAME, $NAME or ${NAME}.
static int64_t operand(arithmetic *a) {
  const bool number = ot_is_digit(*a->at);
  const bool brace = a->at[0] == '$' && a->at[1] == '{';
  a->at += brace ? 2 : *a->at == '$';
  const char *const start = a->at, *text = "";
  while (number ? ot_is_digit(*a->at) : ot_shell_is_name(*a->at)) a->at++;
  const ot_shell_variable *const found = ot_shell_find(a->s, start, a->at - start);
  if (number) text = ot_arena_text(a->s->arena, start, a->at - start);
  if (!number && found && found->value.count == 1) text = found->value.words[0].text;
  if (brace && *a->at == '}') a->at++;
  int64_t value = 0;
  if (!ot_number_parse_size(text, &value)) a->failed = true;
  return value;
}

static int64_t factor(arithmetic *a) {
  skip_blanks(a);
  if (*a->at == '$' || ot_shell_is_name(*a->at)) return operand(a);
  if (*a->at != '(' || ++a->depth > DEPTH_MAX) {
    a->failed = true;
    return 0;
  }
  a->at++;
  const int64_t value = terms(a, "+-");
  skip_blanks(a);
  if (*a->at != ')') a->failed = true;
  a->at += *a->at == ')';
  return value;
}

static int64_t apply(arithmetic *a, int64_t x, char operation, int64_t y) {
  int64_t value = 0;
  bool fails = false;
  if (operation == '+') fails = __builtin_add_overflow(x, y, &value);
  if (operation == '-') fails = __builtin_sub_overflow(x, y, &value);
  if (operation == '*') fails = __builtin_mul_overflow(x, y, &value);
  if (operation == '/' || operation == '%') {
    fails = y == 0 || y == -1;
    if (!fails) value = operation == '/' ? x / y : x % y;
  }
  if (fails) a->failed = true;
  return value;
}

// Terms joined by `operators`: "+-", between products, or "*/%", between factors.
static int64_t terms(arithmetic *a, const char *operators) {
  const bool products = *operators == '*';
  int64_t value = products ? factor(a) : terms(a, "*/%");
  for (skip_blanks(a); !a->failed && ot_text_has(operators, *a->at); skip_blanks(a)) {
    const char operation = *a->at++;
    value = apply(a, value, operation, products ? factor(a) : terms(a, "*/%"));
  }
  return value;
}

// ---- words ----

typedef struct expansion {
  ot_shell_state *s;
  ot_shell_list *out;
  ot_text_builder word;  // under construction
  bool begun;            // even an empty one
  int line;              // of the word's content
  int depth;
} expansion;

static void put(expansion *e, const char *text, int64_t length) {
  e->s->total += length;
  if (e->word.length + length > OT_SHELL_BYTES_MAX || e->s->total > 64 * OT_SHELL_BYTES_MAX) {
    e->s->too_long = true;
  }
  if (e->s->too_long) return;
  ot_text_append(&e->word, text, length);
  e->begun = true;
}

static void end_word(expansion *e) {
  if (!e->begun) return;
  const char *const text = ot_text_builder_text(&e->word);
  const ot_shell_word word = {.text = ot_arena_text(e->s->arena, text, ot_text_length(text)),
                              .line = e->line};
  ot_shell_append(e->s, e->out, word);
  e->word = (ot_text_builder){.arena = e->s->arena};
  e->begun = false;
}

// The words of a variable: the first continues the current word, the last stays open.
static void put_value(expansion *e, const ot_shell_list *value) {
  for (int64_t i = 0; i < value->count; i++) {
    if (i > 0) end_word(e);
    if (!e->begun) e->line = value->words[i].line;
    put(e, value->words[i].text, ot_text_length(value->words[i].text));
  }
}

static void put_text(expansion *e, const char *text, int64_t length, bool inside_quotes);

static void put_arithmetic(expansion *e, const char *piece, int64_t length) {
  arithmetic a = {.s = e->s, .at = ot_arena_text(e->s->arena, piece + 3, length - 5)};
  const int64_t value = terms(&a, "+-");
  if (a.failed || *a.at != '\0') {
    put(e, piece, length);
    return;
  }
  const char *const text = ot_arena_format(e->s->arena, "%lld", (long long)value);
  put(e, text, ot_text_length(text));
}

// ${NAME}, ${NAME[@]}, ${NAME:-default}, ${NAME-default}, ${NAME:=default}; others stay unexpanded.
static void put_braces(expansion *e, const char *piece, int64_t length, bool inside_quotes) {
  const char *const name = piece + 2, *const end = piece + length - 1;
  const char *at = name;
  while (ot_shell_is_name(*at)) at++;
  const ot_shell_variable *const found = ot_shell_find(e->s, name, at - name);
  const bool whole =
      at == end ||
      (end - at == 3 && (ot_text_starts_with(at, "[@]") || ot_text_starts_with(at, "[*]")));
  const int64_t skip =
      ot_text_starts_with(at, ":-") || ot_text_starts_with(at, ":=") ? 2 : *at == '-';
  if ((whole || skip > 0) && found && found->value.count > 0) {
    put_value(e, &found->value);
  } else if (skip > 0) {
    e->begun = true;
    put_text(e, at + skip, end - at - skip, inside_quotes);
  } else if (!(whole && found)) {
    put(e, piece, length);
  }
}

static void put_dollar(expansion *e, const char *piece, int64_t length, bool inside_quotes) {
  if (length > 5 && ot_text_starts_with(piece, "$((") && piece[length - 2] == ')' &&
      piece[length - 1] == ')') {
    put_arithmetic(e, piece, length);
  } else if (length > 3 && piece[1] == '{' && piece[length - 1] == '}') {
    put_braces(e, piece, length, inside_quotes);
  } else {
    const ot_shell_variable *const found = ot_shell_find(e->s, piece + 1, length - 1);
    if (found) {
      put_value(e, &found->value);
    } else {
      put(e, piece, length);
    }
  }
}

// A backslash quotes the next character; before a newline, both are a blank.
static int64_t put_escaped(expansion *e, const char *text, bool inside_quotes) {
  const bool special = !inside_quotes || ot_text_has("$`\"\\", text[1]);
  if (text[1] == '\n') {
    put(e, "\n", 1);
  } else if (special) {
    put(e, text + 1, 1);
  } else {
    put(e, text, 2);
  }
  return 2;
}

static void put_text(expansion *e, const char *text, int64_t length, bool inside_quotes) {
  if (++e->depth > DEPTH_MAX) e->s->too_long = true;
  for (int64_t i = 0; i < length && !e->s->too_long;) {
    const char c = text[i];
    const bool opens = c == '$' || c == '`' || (!inside_quotes && (c == '\'' || c == '"'));
    int64_t n = opens ? ot_shell_piece(text + i) : 1;
    if (n > length - i) n = length - i;
    if (c == '\\' && i + 1 < length) {
      n = put_escaped(e, text + i, inside_quotes);
    } else if (opens && c == '$' && n > 1) {
      put_dollar(e, text + i, n, inside_quotes);
    } else if (opens && c == '\'' && n > 1) {
      e->begun = true;
      put(e, text + i + 1, n - 2);
    } else if (opens && c == '"' && n > 1) {
      e->begun = true;
      put_text(e, text + i + 1, n - 2, true);
    } else {
      put(e, text + i, n);
    }
    i += n;
  }
  e->depth--;
}

void ot_shell_expand(ot_shell_state *s, const char *raw, int line, ot_shell_list *out) {
  expansion e = {.s = s, .out = out, .word = {.arena = s->arena}, .line = line};
  put_text(&e, raw, ot_text_length(raw), false);
  end_word(&e);
}
