// SPDX-License-Identifier: Apache-2.0
// Two files of log-probabilities side by side: their sequences by the ids of the user, else by
// their order; the tokens of each from its end, because one file may lack the prompt. Pure.
#pragma once

#include "judge/logprobs_read.h"

// The same sequence in both files, and its tokens that both score.
typedef struct ot_logprob_match {
  const ot_logprob_sequence *of[2];
  int64_t first, count;  // its tokens in the pair
  int64_t num_ids;       // 0: the beginning of the text, or an id, is in neither file
  const int32_t *ids;    // [num_ids] all tokens of the text up to the last one of both
} ot_logprob_match;

typedef struct ot_logprob_pair {
  const ot_logprob_file *file[2];
  ot_arena *arena;
  int64_t num_matches, left_out;  // left out: without tokens in a file
  ot_logprob_match *matches;      // [num_matches]
  int64_t count;
  double *logprob[2];  // [count] nats
  int64_t *match;      // [count]
  int64_t *token[2];   // [count] index in the tokens of the sequence
  int64_t *place;      // [count] index in the ids of the match
} ot_logprob_pair;

// OT_USAGE, naming the first place, if the files have other sequences or other tokens, and if no
// token is scored in both.
ot_status ot_logprob_pair_build(const ot_logprob_file *a, const ot_logprob_file *b, ot_arena *arena,
                                ot_logprob_pair *out);

static inline const ot_logprob_token *ot_logprob_pair_token(const ot_logprob_pair *pair, int side,
                                                            int64_t token) {
  const ot_logprob_match *const m = &pair->matches[pair->match[token]];
  return &m->of[side]->tokens[pair->token[side][token]];
}

// "a.jsonl:3, token 17": the place of a token of the pair in file `side`.
const char *ot_logprob_pair_words(const ot_logprob_pair *pair, int side, int64_t token);
