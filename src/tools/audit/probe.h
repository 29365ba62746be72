// SPDX-License-Identifier: Apache-2.0
// A model on one rank that returns logits: of whole sequences, as in training, or token by token
// with a key-value cache, as in inference; or the log-probabilities of targets alone, for which no
// logits are kept. Audits compare the logits of one input on two paths, or of inputs whose
// difference must not matter.
#pragma once

#include "data/micro_batch.h"
#include "runtime/model_runtime.h"

typedef struct ot_probe_request {
  const ot_model *model;  // with `files` only the vocabulary is used
  ot_mode mode;           // OT_MODE_LOGITS, OT_MODE_SCORE, or OT_MODE_DECODE of one sequence
  int64_t sequences;      // per forward
  int64_t tokens;         // per sequence; at most when decoding
  ot_dtype compute;       // OT_F32 or OT_F64
  ot_dtype storage;       // of weights and activations: compute, or OT_BF16
  int threads;            // 0 = all cores
  ot_backend backend;
  const char *files;  // HF directory of model and weights; null: weights are written later
} ot_probe_request;

// Allocates the memory.
ot_status ot_probe_create(const ot_probe_request *request, ot_runtime **out);

// Logits of all tokens, each sequence a document when decoded; targets are ignored.
//   rows    [sequences, tokens] of the request, or fewer tokens to decode
//   logits  [sequences * tokens, V]
ot_status ot_probe_ask(ot_runtime *probe, const ot_micro_batch *rows, double *logits);

// ln p of the target of each token, 0 without one; for OT_MODE_SCORE.
//   rows      [sequences, tokens] of the request
//   logprobs  [sequences * tokens]
ot_status ot_probe_score(ot_runtime *probe, const ot_micro_batch *rows, double *logprobs);
