// SPDX-License-Identifier: Apache-2.0
// The log-probabilities of a text by the inference engine (runtime/inference.h), as `orthant serve`
// gives them: in chunks, among other sequences.
#pragma once

#include "data/micro_batch.h"
#include "runtime/model_runtime.h"

typedef struct ot_serving_probe {
  const ot_model *model;
  ot_runtime *weights;         // of these weights, on one rank
  ot_dtype compute;            // of weights and activations: OT_F32 or OT_F64
  const ot_micro_batch *rows;  // one sequence
} ot_serving_probe;

// ln p of the target of each token [T], NaN for the last one. *serves: false for a model that the
// engine refuses (experts with a capacity); then nothing is computed.
ot_status ot_serving_probe_ask(const ot_serving_probe *probe, double *logprobs, bool *serves);
