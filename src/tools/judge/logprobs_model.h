// SPDX-License-Identifier: Apache-2.0
// The log-probabilities of a pair of files computed again with the plain model, from the weights of
// a checkpoint: the texts as they are, in several types, and with faults of what surrounds them.
// All ways go through the model together, block by block, up to the head, which is then computed as
// often as it is needed.
#pragma once

#include "judge/logprobs_pair.h"
#include "judge/plain.h"

// The view of a text that the model has.
typedef enum ot_logprob_view {
  OT_VIEW_TEXT,
  OT_VIEW_BOS,        // without its bos if it begins with one, else with one before it
  OT_VIEW_PADDING,    // padding before it up to the longest text, as if it were text
  OT_VIEW_POSITIONS,  // one position is left out after the prompt
  OT_VIEWS,
} ot_logprob_view;

typedef struct ot_logprob_stream {
  ot_logprob_view view;
  ot_plain_type type;
  bool reversed;  // see ot_plain_request
} ot_logprob_stream;

typedef struct ot_logprob_model_request {
  const char *path;             // checkpoint, run or Hugging Face directory
  const ot_logprob_pair *pair;  // kept
  int num_streams;
  const ot_logprob_stream *streams;  // [num_streams], kept
  int64_t most_tokens;  // in all texts that are computed, which are the first ones, at least one
  int threads;
  void (*progress)(void *context, int done, int all);  // after each block; null: never
  void *context;
} ot_logprob_model_request;

typedef struct ot_logprob_model ot_logprob_model;

// Computes all streams up to the head. OT_USAGE and OT_ENVIRONMENT for a checkpoint that is not
// readable or not supported, and for ids or lengths that its model does not have. Blocks.
ot_status ot_logprob_model_create(const ot_logprob_model_request *request, ot_logprob_model **out);
void ot_logprob_model_destroy(ot_logprob_model **model);

int64_t ot_logprob_model_vocab(const ot_logprob_model *model);
// Texts and tokens that are computed.
int64_t ot_logprob_model_texts(const ot_logprob_model *model);
int64_t ot_logprob_model_tokens(const ot_logprob_model *model);
// "llama, 1.24 G parameters".
const char *ot_logprob_model_words(const ot_logprob_model *model, ot_arena *arena);

// The logits [vocab] that predict token `token` of the pair, whose id is `target`.
typedef void ot_logprob_visit(void *context, int64_t token, int32_t target, const double *logits);

// Calls `visit` with each token of the pair that the stream predicts: none where a view changes no
// text. Blocks.
void ot_logprob_model_visit(ot_logprob_model *model, int stream, ot_logprob_visit *visit,
                            void *context);
