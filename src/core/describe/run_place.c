// SPDX-License-Identifier: Apache-2.0
// The place of rules over several keys. Their checks see a run, not a tree, and name keys in their
// messages, "SECTION: KEY=VALUE ...": the first of these that was written down decides.
#include "base/text.h"
#include "describe/run_keys.h"

enum { WORD_BYTES = 96 };

static bool is_key_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
}

// Copies the next word of keys' letters at or after `at` to `word` [WORD_BYTES]. Returns what
// follows it; null at the end of the text.
static const char *next_word(const char *at, char *word) {
  int length = 0;
  while (*at != '\0' && !is_key_letter(*at)) at++;
  if (*at == '\0') return NULL;
  for (; is_key_letter(*at); at++) {
    if (length < WORD_BYTES - 1) word[length++] = *at;
  }
  word[length] = '\0';
  return at;
}

static bool was_written(const ot_node *node) {
  return node && node->source && (node->line > 0 || ot_text_starts_with(node->source, "--"));
}

// The value at `word` of `section`, else at that path, else of any section that has such a key.
static const ot_node *find_value(const ot_node *tree, const ot_node *section, const char *word) {
  const ot_node *const own = section ? ot_node_find(section, word) : NULL;
  const ot_node *const path = ot_node_find(tree, word);
  if (was_written(own)) return own;
  if (was_written(path) && path->kind != OT_NODE_MAP) return path;
  for (const ot_node *other = tree->first; other; other = other->next) {
    const bool model = ot_text_equal(other->key, "model");
    const ot_key *const key = model ? ot_schema_find(&ot_model_schema, 0, word) : NULL;
    const ot_node *const found = key ? ot_schema_child(key, other) : ot_node_child(other, word);
    if (was_written(found)) return found;
  }
  return NULL;
}

// The key that decides, else its section, else the whole tree.
static const ot_node *find_place(const ot_node *tree, const char *message) {
  char word[WORD_BYTES];
  const char *at = next_word(message, word);
  const bool mesh = ot_text_equal(word, "mesh");
  const ot_node *const section = at ? ot_node_find(tree, mesh ? "parallel" : word) : NULL;
  for (bool first = true; at; at = next_word(at, word), first = false) {
    const bool names_key = first || *at == '=' || ot_text_find(word, ".");
    const ot_node *const value = names_key ? find_value(tree, section, word) : NULL;
    if (value) return value;
  }
  return was_written(section) ? section : tree;
}

ot_status ot_run_place_failure(ot_status status, const ot_node *tree, ot_arena *arena) {
  if (status == OT_OK) return OT_OK;
  const ot_node *const node = find_place(tree, ot_fail_message());
  const char *const hint = ot_arena_format(arena, "%s", ot_fail_hint_text());
  if (!node->source) return status;
  ot_fail(status, "%s (%s)", ot_fail_message(), ot_node_place(arena, node));
  return hint[0] != '\0' ? ot_fail_hint(status, "%s", hint) : status;
}
