// SPDX-License-Identifier: Apache-2.0
// The trie: nodes with a first child and a next sibling, and a table of the bytes that can begin a
// token, which is all that most of the text is looked up in.
#include "tokenizer/added_tokens.h"

#include <stdlib.h>
#include <string.h>

#include "tokenizer/unicode.h"

typedef struct trie_node {
  int32_t child, sibling;  // -1: none
  int32_t token;           // index of the token that ends here, -1: none
  uint8_t byte;
} trie_node;

struct ot_added_tokens {
  ot_added_token *tokens;  // [count]; content is not kept
  trie_node *nodes;        // [num_nodes]; node 0 is the root
  int32_t num_nodes;
  bool begins[256];
  bool look_back;
};

static int32_t find_child(const ot_added_tokens *t, int32_t node, uint8_t byte) {
  int32_t child = t->nodes[node].child;
  while (child >= 0 && t->nodes[child].byte != byte) child = t->nodes[child].sibling;
  return child;
}

static int32_t add_child(ot_added_tokens *t, int32_t node, uint8_t byte) {
  const int32_t child = t->num_nodes++;
  t->nodes[child] =
      (trie_node){.child = -1, .sibling = t->nodes[node].child, .token = -1, .byte = byte};
  t->nodes[node].child = child;
  return child;
}

static void insert(ot_added_tokens *t, const ot_added_token *token, int32_t index) {
  int32_t node = 0;
  for (int64_t i = 0; i < token->length; i++) {
    const uint8_t byte = (uint8_t)token->content[i];
    const int32_t child = find_child(t, node, byte);
    node = child >= 0 ? child : add_child(t, node, byte);
  }
  if (t->nodes[node].token < 0) t->nodes[node].token = index;
}

ot_status ot_added_tokens_create(const ot_added_token *tokens, int64_t count,
                                 ot_added_tokens **out) {
  *out = NULL;
  int64_t total = 1;
  for (int64_t i = 0; i < count; i++) total += tokens[i].length;
  OT_CHECK(total < INT32_MAX, OT_USAGE, "%lld bytes of added tokens are too many",
           (long long)total);
  ot_added_tokens *t = calloc(1, sizeof *t);
  OT_CHECK(t, OT_ENVIRONMENT, "out of memory (added tokens)");
  t->tokens = calloc((size_t)count + 1, sizeof *t->tokens);
  t->nodes = calloc((size_t)total, sizeof *t->nodes);
  if (!t->tokens || !t->nodes) {
    ot_added_tokens_destroy(&t);
    return ot_fail(OT_ENVIRONMENT, "out of memory (added tokens)");
  }
  t->nodes[0] = (trie_node){.child = -1, .sibling = -1, .token = -1};
  t->num_nodes = 1;
  for (int64_t i = 0; i < count; i++) {
    t->tokens[i] = tokens[i];
    t->tokens[i].content = NULL;
    if (tokens[i].length == 0) continue;
    insert(t, &tokens[i], (int32_t)i);
    t->begins[(uint8_t)tokens[i].content[0]] = true;
    t->look_back = t->look_back || tokens[i].single_word || tokens[i].lstrip;
  }
  *out = t;
  return OT_OK;
}

void ot_added_tokens_destroy(ot_added_tokens **tokens) {
  if (!*tokens) return;
  free((*tokens)->tokens);
  free((*tokens)->nodes);
  free(*tokens);
  *tokens = NULL;
}

bool ot_added_tokens_look_back(const ot_added_tokens *tokens) { return tokens->look_back; }

// The longest token at byte `start`. When the end of unfinished text is reached while longer ones
// are possible: undecided.
static ot_added_match match_at(const ot_added_tokens *t, const ot_added_text *text, int64_t start,
                               const ot_added_token **token) {
  ot_added_match match = {.outcome = OT_ADDED_NONE, .start = start};
  int32_t node = 0;
  int64_t i = start;
  for (; i < text->length; i++) {
    node = find_child(t, node, text->text[i]);
    if (node < 0) return match;
    if (t->nodes[node].token < 0) continue;
    *token = &t->tokens[t->nodes[node].token];
    match = (ot_added_match){
        .outcome = OT_ADDED_FOUND, .start = start, .stop = i + 1, .id = (*token)->id};
  }
  if (!text->final && t->nodes[node].child >= 0) match.outcome = OT_ADDED_UNDECIDED;
  return match;
}

static bool stands_alone(const ot_added_text *text, int64_t start, int64_t stop) {
  int width;
  if (start > 0 && ot_unicode_is_word(ot_unicode_last(text->text, start, &width))) return false;
  if (stop == text->length) return true;
  return !ot_unicode_is_word(ot_unicode_first(text->text + stop, text->length - stop, &width));
}

// The token at byte `start`, if it stands as it must; `next` is where to look on if there is none.
static ot_added_match token_at(const ot_added_tokens *t, const ot_added_text *text, int64_t start,
                               const ot_added_token **token, int64_t *next) {
  ot_added_match match = {.outcome = OT_ADDED_NONE, .start = start};
  *next = start + 1;
  if (!t->begins[text->text[start]]) return match;
  match = match_at(t, text, start, token);
  if (match.outcome != OT_ADDED_FOUND || !(*token)->single_word) return match;
  if (!text->final && match.stop == text->length) {
    match.outcome = OT_ADDED_UNDECIDED;
  } else if (!stands_alone(text, start, match.stop)) {
    match.outcome = OT_ADDED_NONE;
    *next = match.stop;
  }
  return match;
}

static int64_t strip_left(const ot_added_text *text, int64_t from, int64_t start) {
  int width;
  while (start > from && ot_unicode_is_space(ot_unicode_last(text->text, start, &width))) {
    start -= width;
  }
  return start > from ? start : from;
}

// White space up to the next token, which may be white space itself (huggingface/tokenizers,
// AddedVocabulary::find_matches: a match is one whatever those before it took along).
static void strip_right(const ot_added_tokens *t, const ot_added_text *text,
                        ot_added_match *match) {
  int width;
  int64_t next = match->stop;
  for (int64_t i = match->stop; i < text->length; i += width) {
    if (!ot_unicode_is_space(ot_unicode_first(text->text + i, text->length - i, &width))) return;
    const ot_added_token *token = NULL;
    const ot_added_outcome outcome =
        i < next ? OT_ADDED_NONE : token_at(t, text, i, &token, &next).outcome;
    if (outcome == OT_ADDED_UNDECIDED) match->outcome = outcome;
    if (outcome != OT_ADDED_NONE) return;
    match->stop = i + width;
  }
  if (!text->final) match->outcome = OT_ADDED_UNDECIDED;
}

ot_added_match ot_added_tokens_next(const ot_added_tokens *tokens, const ot_added_text *text,
                                    int64_t from) {
  int64_t next;
  for (int64_t i = from; i < text->length; i = next) {
    const ot_added_token *token = NULL;
    ot_added_match match = token_at(tokens, text, i, &token, &next);
    if (match.outcome == OT_ADDED_NONE) continue;
    if (match.outcome == OT_ADDED_FOUND && token->rstrip) strip_right(tokens, text, &match);
    if (match.outcome == OT_ADDED_FOUND && token->lstrip) {
      match.start = strip_left(text, from, match.start);
    }
    return match;
  }
  return (ot_added_match){.outcome = OT_ADDED_NONE};
}
