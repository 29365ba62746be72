// SPDX-License-Identifier: Apache-2.0
// Words end at blanks and operators that are not inside a quote or a substitution.
#include "import/shell_tokens.h"

#include <ctype.h>
#include <string.h>

#include "base/text.h"

enum { DELIMITER_BYTES = 64, DEPTH_MAX = 32 };

typedef struct lexer {
  ot_arena *arena;
  const char *at;  // in a text that ends in zero
  int line;
  bool blank;                       // since the last token
  char delimiter[DELIMITER_BYTES];  // of a here-document that begins behind this line; "" = none
  ot_shell_token *tokens;
  int64_t count, capacity;
} lexer;

static ot_shell_token *add(lexer *l, ot_shell_kind kind) {
  l->tokens = ot_arena_grow(l->arena, l->tokens, l->count, &l->capacity, sizeof *l->tokens);
  ot_shell_token *const token = &l->tokens[l->count++];
  *token = (ot_shell_token){.kind = kind, .text = "", .line = l->line, .joined = !l->blank};
  l->blank = false;
  return token;
}

// ---- pieces that belong together ----

static int64_t piece(const char *text, int depth_left);

// Up to and with the `close` that ends what `text` opens with `open`; quotes inside are skipped.
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
  if (!isalpha((unsigned char)text[1]) && text[1] != '_') {
    return isdigit((unsigned char)text[1]) || (text[1] != '\0' && strchr("@*#?", text[1])) ? 2 : 1;
  }
  int64_t i = 2;
  while (isalnum((unsigned char)text[i]) || text[i] == '_') i++;
  return i;
}

int64_t ot_shell_piece(const char *text) { return piece(text, DEPTH_MAX); }

// ---- tokens ----

static bool ends_word(char c) { return c == '\0' || strchr(" \t\r\n;&|()<>", c) != NULL; }

static void count_lines(lexer *l, const char *from, const char *to) {
  for (const char *p = from; p < to; p++) l->line += *p == '\n';
}

static void take_word(lexer *l) {
  const char *const start = l->at;
  ot_shell_token *const token = add(l, OT_SHELL_WORD);
  while (!ends_word(*l->at)) {
    if (*l->at == '\\' && l->at[1] != '\0') {
      l->at += 2;
    } else if (strchr("'\"`$", *l->at)) {
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

// The lines of a here-document, with the one that ends it.
static void skip_document(lexer *l) {
  const int64_t length = ot_text_length(l->delimiter);
  bool found = length == 0;
  while (!found && *l->at != '\0') {
    const char *start = l->at;
    while (*start == '\t') start++;
    found = strncmp(start, l->delimiter, (size_t)length) == 0 &&
            (start[length] == '\n' || start[length] == '\0');
    skip_line(l);
    if (*l->at == '\n') l->at++;
    l->line++;
  }
  l->delimiter[0] = '\0';
}

static void take_new_line(lexer *l) {
  add(l, OT_SHELL_END);
  l->at++;
  l->line++;
  skip_document(l);
}

// The 2 of 2>&1 is no word.
static void drop_descriptor(lexer *l) {
  const ot_shell_token *const last = l->count > 0 ? &l->tokens[l->count - 1] : NULL;
  if (!last || l->blank || last->kind != OT_SHELL_WORD) return;
  if (isdigit((unsigned char)last->text[0]) && last->text[1] == '\0') l->count--;
}

// < > >> <<EOF 2>&1: the target is no argument.
static void skip_redirection(lexer *l) {
  drop_descriptor(l);
  const bool document = l->at[0] == '<' && l->at[1] == '<' && l->at[2] != '<';
  while (strchr("<>&-", *l->at) && *l->at != '\0') l->at++;
  while (*l->at == ' ') l->at++;
  const char *start = l->at;
  while (!ends_word(*l->at)) l->at++;
  if (!document) return;
  const bool has_quote = *start == '\'' || *start == '"';
  const int64_t length = l->at - start - (has_quote ? 2 : 0);
  ot_text_format(l->delimiter, DELIMITER_BYTES, "%.*s", (int)(length > 0 ? length : 0),
                 start + has_quote);
}

static void take_operator(lexer *l) {
  const char c = *l->at;
  if (c == '<' || c == '>') {
    skip_redirection(l);
    return;
  }
  const bool twice = l->at[1] == c;
  if (c == '&') {
    add(l, twice ? OT_SHELL_AND : OT_SHELL_END);
  } else if (c == '|') {
    add(l, twice ? OT_SHELL_OR : OT_SHELL_PIPE);
  } else {
    add(l, c == '(' ? OT_SHELL_OPEN : c == ')' ? OT_SHELL_CLOSE : OT_SHELL_END);
  }
  l->at += twice && c != '(' && c != ')' ? 2 : 1;
}

static void take(lexer *l) {
  const char c = *l->at;
  if (c == '\\' && (l->at[1] == '\n' || (l->at[1] == '\r' && l->at[2] == '\n'))) {
    l->at += l->at[1] == '\n' ? 2 : 3;
    l->line++;
    l->blank = true;
  } else if (c == '\n') {
    take_new_line(l);
  } else if (isspace((unsigned char)c)) {
    l->at++;
    l->blank = true;
  } else if (c == '#') {
    skip_line(l);
  } else if (ends_word(c)) {
    take_operator(l);
  } else {
    take_word(l);
  }
}

ot_shell_token *ot_shell_tokens(const char *text, int64_t bytes, ot_arena *arena) {
  lexer l = {.arena = arena, .at = ot_arena_text(arena, text, bytes), .line = 1, .blank = true};
  while (*l.at != '\0') take(&l);
  add(&l, OT_SHELL_END);
  add(&l, OT_SHELL_LAST);
  return l.tokens;
}
