// SPDX-License-Identifier: Apache-2.0
// A trie, and a table of the first bytes of tokens, which suffices for most of the text.
#include "tokenizer/added_tokens.h"

#include <stdlib.h>

#include "tokenizer/byte_trie.h"
#include "tokenizer/unicode.h"

struct ot_added_tokens {
  ot_added_token *tokens;  // [count]; content is not kept
  ot_byte_trie trie;       // values are indices of `tokens`
  bool begins[256];
  bool look_back;
};

static ot_status fill(ot_added_tokens *t, const ot_added_token *tokens, int64_t count) {
  t->tokens = calloc((size_t)count + 1, sizeof *t->tokens);
  OT_CHECK(t->tokens, OT_ENVIRONMENT, "out of memory (added tokens)");
  OT_TRY(ot_byte_trie_create(&t->trie));
  for (int64_t i = 0; i < count; i++) {
    const ot_added_token *const token = &tokens[i];
    t->tokens[i] = *token;
    t->tokens[i].content = NULL;
    if (token->length == 0) continue;
    int64_t node;
    OT_TRY(ot_byte_trie_add(&t->trie, (const uint8_t *)token->content, token->length, &node));
    if (t->trie.values[node] < 0) t->trie.values[node] = (int32_t)i;
    t->begins[(uint8_t)token->content[0]] = true;
    t->look_back = t->look_back || token->single_word || token->lstrip;
  }
  return OT_OK;
}

ot_status ot_added_tokens_create(const ot_added_token *tokens, int64_t count,
                                 ot_added_tokens **out) {
  *out = calloc(1, sizeof **out);
  OT_CHECK(*out, OT_ENVIRONMENT, "out of memory (added tokens)");
  const ot_status status = fill(*out, tokens, count);
  if (status != OT_OK) ot_added_tokens_destroy(out);
  return status;
}

void ot_added_tokens_destroy(ot_added_tokens **tokens) {
  if (!*tokens) return;
  free((*tokens)->tokens);
  ot_byte_trie_release(&(*tokens)->trie);
  free(*tokens);
  *tokens = NULL;
}

bool ot_added_tokens_look_back(const ot_added_tokens *tokens) { return tokens->look_back; }

// The longest token at byte `start`. Undecided if unfinished text ends while longer tokens are
// possible.
static ot_added_match match_at(const ot_added_tokens *t, const ot_added_text *text, int64_t start,
                               const ot_added_token **token) {
  ot_added_match match = {.outcome = OT_ADDED_NONE, .start = start};
  int64_t node = 0;
  int64_t i = start;
  for (; i < text->length; i++) {
    node = ot_byte_trie_step(&t->trie, node, text->text[i]);
    if (node < 0) return match;
    if (t->trie.values[node] < 0) continue;
    *token = &t->tokens[t->trie.values[node]];
    match = (ot_added_match){
        .outcome = OT_ADDED_FOUND, .start = start, .stop = i + 1, .id = (*token)->id};
  }
  if (!text->final && t->trie.inner[node]) match.outcome = OT_ADDED_UNDECIDED;
  return match;
}

static bool stands_alone(const ot_added_text *text, int64_t start, int64_t stop) {
  int width;
  if (start > 0 && ot_unicode_is_word(ot_unicode_last(text->text, start, &width))) return false;
  if (stop == text->length) return true;
  return !ot_unicode_is_word(ot_unicode_first(text->text + stop, text->length - stop, &width));
}

// The token at byte `start`, if its context allows it; `next` is where to continue if there is
// none.
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

static bool is_all_space(const ot_added_text *text, int64_t from, int64_t to) {
  int width;
  for (; from < to; from += width) {
    if (!ot_unicode_is_space(ot_unicode_first(text->text + from, to - from, &width))) return false;
  }
  return true;
}

// White space up to the next token, which may itself be white space (huggingface/tokenizers,
// AddedVocabulary::find_matches: a match counts even if a previous one has taken part of it, unless
// it strips white space before it and nothing is left).
static void strip_right(const ot_added_tokens *t, const ot_added_text *text,
                        ot_added_match *match) {
  int width;
  int64_t next = match->stop;
  for (int64_t i = match->stop; i < text->length; i += width) {
    if (!ot_unicode_is_space(ot_unicode_first(text->text + i, text->length - i, &width))) return;
    const ot_added_token *token = NULL;
    ot_added_match found = {.outcome = OT_ADDED_NONE};
    if (i >= next) found = token_at(t, text, i, &token, &next);
    if (found.outcome == OT_ADDED_UNDECIDED) match->outcome = found.outcome;
    const bool vanishes = found.outcome == OT_ADDED_FOUND && token->lstrip &&
                          is_all_space(text, found.start, found.stop);
    if (found.outcome != OT_ADDED_NONE && !vanishes) return;
    if (vanishes) next = found.stop;
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
