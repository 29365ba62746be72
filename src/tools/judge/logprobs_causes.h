// SPDX-License-Identifier: Apache-2.0
// The causes of different log-probabilities, each a row of a table: what the logits, the text and
// the lists become by a fault, computed for a source.
#pragma once

#include "judge/logprobs_fit.h"
#include "judge/logprobs_model.h"

// The streams that the causes need, in this order: the reference first.
enum { OT_LOGPROB_STREAMS = 8 };
// Fills in the streams: `narrow` is the type of OT_LOGPROB_BF16.
void ot_logprob_streams(ot_plain_type narrow, ot_logprob_stream out[OT_LOGPROB_STREAMS]);

typedef struct ot_logprob_causes {
  ot_arena *arena;
  const ot_logprob_pair *pair;
  int side;                 // of the pair that is explained
  ot_logprob_model *model;  // null: by the two files alone
  ot_logprob_source source;
  int count;
  int64_t capacity;
  ot_logprob_candidate *candidates;  // [count]
  double temperature_spread[OT_LOGPROB_TYPES];
} ot_logprob_causes;

// Computes what each cause alone predicts. The source's x is that of the side.
void ot_logprob_causes_compute(ot_logprob_causes *causes);

// Adds a candidate without tokens; valid until the next call.
ot_logprob_candidate *ot_logprob_causes_add(ot_logprob_causes *causes,
                                            const ot_logprob_cause *cause, const char *factor);

// Truncated sampling: the probabilities are renormalised over the tokens that are kept.
extern const ot_logprob_cause ot_logprob_renormalised;

// Adds what truncated sampling predicts, by usual numbers of top-p, top-k and min-p: alone, and of
// logits that are divided by usual temperatures. With a model only.
void ot_logprob_truncations_add(ot_logprob_causes *causes);
void ot_logprob_heated_truncations_add(ot_logprob_causes *causes);

// The values of a stream [tokens of the pair]; NAN where it predicts none.
const double *ot_logprob_values(ot_logprob_model *model, int stream, const ot_logprob_pair *pair,
                                ot_arena *arena);
