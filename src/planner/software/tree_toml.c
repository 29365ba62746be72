// SPDX-License-Identifier: Apache-2.0
// TOML by recursive descent, line by line. Repeated keys are refused.
#include "software/tree_toml.h"

#include "base/text.h"

typedef struct toml_reader {
  const ot_tree_origin *origin;
  ot_arena *arena;
  const char *at;          // in a zero-terminated text
  const char *line_start;  // start of the current line
  int line;
  int64_t keys;
} toml_reader;

static int column(const toml_reader *r) { return (int)(r->at - r->line_start) + 1; }

static ot_status fail_here(const toml_reader *r, const char *what) {
  return ot_fail(OT_USAGE, "not valid TOML, or not supported here: %s (%s:%d:%d)", what,
                 r->origin->name, r->line, column(r));
}

static void skip_blanks(toml_reader *r) {
  while (*r->at == ' ' || *r->at == '\t' || *r->at == '\r') r->at++;
}

static void next_line(toml_reader *r) {
  r->at++;
  r->line++;
  r->line_start = r->at;
}

// Skips blanks, comments and newlines.
static void skip_space(toml_reader *r) {
  for (skip_blanks(r); *r->at == '#' || *r->at == '\n'; skip_blanks(r)) {
    if (*r->at == '\n') {
      next_line(r);
      continue;
    }
    while (*r->at != '\n' && *r->at != '\0') r->at++;
  }
}

static ot_status end_line(toml_reader *r) {
  skip_blanks(r);
  if (*r->at == '#') {
    while (*r->at != '\n' && *r->at != '\0') r->at++;
  }
  if (*r->at != '\n' && *r->at != '\0') return fail_here(r, "more after the value");
  if (*r->at == '\n') next_line(r);
  return OT_OK;
}

static ot_node *create(const toml_reader *r, ot_node_kind kind) {
  ot_node *const node = ot_node_create(r->arena, kind);
  node->source = r->origin->name;
  node->directory = r->origin->directory;
  node->line = r->line;
  node->column = column(r);
  return node;
}

// ---- strings ----

static ot_status read_escape(toml_reader *r, ot_text_builder *out) {
  static const char letters[] = "btnfr\"\\", meanings[] = "\b\t\n\f\r\"\\";
  int i = 0;
  while (letters[i] != '\0' && letters[i] != r->at[1]) i++;
  if (letters[i] == '\0') {
    return fail_here(r, "an escape other than \\b \\t \\n \\f \\r \\\" \\\\");
  }
  ot_text_append(out, &meanings[i], 1);
  r->at += 2;
  return OT_OK;
}

// 'literal' or "with escapes", on one line.
static ot_status read_quoted(toml_reader *r, const char **out) {
  const char quote = *r->at;
  if (r->at[1] == quote && r->at[2] == quote) return fail_here(r, "a multi-line string");
  ot_text_builder text = {.arena = r->arena};
  for (r->at++; *r->at != quote;) {
    if (*r->at == '\0' || *r->at == '\n') return fail_here(r, "an unterminated string");
    if (*r->at == '\\' && quote == '"') {
      OT_TRY(read_escape(r, &text));
    } else {
      ot_text_append(&text, r->at++, 1);
    }
  }
  r->at++;
  *out = ot_text_builder_text(&text);
  return OT_OK;
}

static bool is_bare(char c) {
  const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  return letter || ot_is_digit(c) || c == '_' || c == '-';
}

static ot_status read_key(toml_reader *r, const char **out) {
  if (*r->at == '"' || *r->at == '\'') return read_quoted(r, out);
  const char *const start = r->at;
  while (is_bare(*r->at)) r->at++;
  if (r->at == start) return fail_here(r, "a key is expected");
  *out = ot_arena_text(r->arena, start, r->at - start);
  return OT_OK;
}

// ---- values ----

static ot_status read_value(toml_reader *r, int depth, ot_node **out);

static ot_status read_list(toml_reader *r, int depth, ot_node **out) {
  if (depth >= OT_TREE_DEPTH_MAX) return fail_here(r, "lists nested too deeply");
  *out = create(r, OT_NODE_LIST);
  r->at++;
  for (skip_space(r); *r->at != ']'; skip_space(r)) {
    ot_node *item;
    OT_TRY(read_value(r, depth + 1, &item));
    ot_node_append(*out, item);
    skip_space(r);
    if (*r->at == ',') {
      r->at++;
    } else if (*r->at != ']') {
      return fail_here(r, "an unterminated list");
    }
  }
  r->at++;
  return OT_OK;
}

// A number or boolean; '_' between digits is removed.
static ot_status read_word(toml_reader *r, ot_node **out) {
  const char *const start = r->at;
  ot_text_builder text = {.arena = r->arena};
  *out = create(r, OT_NODE_SCALAR);
  while (is_bare(*r->at) || *r->at == '+' || *r->at == '.') {
    if (*r->at != '_') ot_text_append(&text, r->at, 1);
    r->at++;
  }
  const char *const word = ot_text_builder_text(&text);
  const bool truth = ot_text_equal(word, "true") || ot_text_equal(word, "false");
  const char first = word[0] == '+' || word[0] == '-' ? word[1] : word[0];
  const bool number = ot_is_digit(first) || ot_text_equal(word, "inf");
  if (!truth && !number) {
    r->at = start;
    return fail_here(r, "a value is expected");
  }
  (*out)->text = word[0] == '+' ? word + 1 : word;
  return OT_OK;
}

static ot_status read_value(toml_reader *r, int depth, ot_node **out) {
  if (*r->at == '[') return read_list(r, depth, out);
  if (*r->at == '{') return fail_here(r, "an inline table");
  if (*r->at != '"' && *r->at != '\'') return read_word(r, out);
  *out = create(r, OT_NODE_SCALAR);
  (*out)->quoted = true;
  return read_quoted(r, &(*out)->text);
}

// ---- lines ----

static ot_status put(toml_reader *r, ot_node *table, const char *key, ot_node *value) {
  const ot_node *const before = ot_node_child(table, key);
  OT_CHECK(!before, OT_USAGE, "the key \"%s\" is given twice, at %s and (%s)", key,
           ot_node_place(r->arena, before), ot_node_place(r->arena, value));
  if (++r->keys > OT_TREE_KEYS_MAX) return fail_here(r, "too many keys");
  ot_node_put(r->arena, table, key, value);
  return OT_OK;
}

// [a.b]: the table, created if absent.
static ot_status read_header(toml_reader *r, ot_node *root, ot_node **table) {
  *table = root;
  if (r->at[1] == '[') return fail_here(r, "an array of tables");
  do {
    const char *key;
    r->at++;
    skip_blanks(r);
    ot_node *const made = create(r, OT_NODE_MAP);
    OT_TRY(read_key(r, &key));
    skip_blanks(r);
    ot_node *found = ot_node_child(*table, key);
    if (found && *r->at == ']' && found->line > 0 && found->quoted)
      return fail_here(r, "a repeated table");
    if (!found) {
      found = made;
      OT_TRY(put(r, *table, key, made));
    }
    if (found->kind != OT_NODE_MAP) return fail_here(r, "a table with the name of a value");
    *table = found;
  } while (*r->at == '.');
  if (*r->at != ']') return fail_here(r, "an unterminated header");
  (*table)->quoted = true;  // has its own header
  r->at++;
  return end_line(r);
}

static ot_status read_pair(toml_reader *r, ot_node *table) {
  const char *key;
  ot_node *value;
  OT_TRY(read_key(r, &key));
  skip_blanks(r);
  if (*r->at == '.') return fail_here(r, "a dotted key");
  if (*r->at != '=') return fail_here(r, "= is expected");
  r->at++;
  skip_blanks(r);
  OT_TRY(read_value(r, 0, &value));
  OT_TRY(put(r, table, key, value));
  return end_line(r);
}

ot_status ot_tree_parse_toml(const ot_tree_origin *origin, const char *text, int64_t bytes,
                             ot_arena *arena, ot_node **out) {
  toml_reader r = {.origin = origin, .arena = arena, .line = 1};
  r.at = r.line_start = ot_arena_text(arena, text, bytes);
  ot_node *const root = create(&r, OT_NODE_MAP);
  ot_node *table = root;
  for (skip_space(&r); *r.at != '\0'; skip_space(&r)) {
    if (*r.at == '[') {
      OT_TRY(read_header(&r, root, &table));
    } else {
      OT_TRY(read_pair(&r, table));
    }
  }
  for (ot_node *child = root->first; child; child = child->next) {
    if (child->kind == OT_NODE_MAP) child->quoted = false;
  }
  *out = root;
  return OT_OK;
}
