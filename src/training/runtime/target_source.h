// SPDX-License-Identifier: Apache-2.0
// A source of weighted targets for the micro-batches of a run. The trainer calls it in each step
// and knows nothing else of it. Calls are collective over the world, except fill and destroy.
#pragma once

#include "runtime/model_runtime.h"
#include "runtime/run_world.h"

struct ot_micro_batch;

// Samples of each rank of data parallelism: micro-batch m of rank d begins with sample
// first + d * apart + m * stride.
typedef struct ot_target_samples {
  int64_t first, apart, stride, count;  // micro-batches
} ot_target_samples;

// Mean nats of a step.
typedef struct ot_target_losses {
  double all;   // of all targets, by their weights
  double data;  // of the data's targets
} ot_target_losses;

typedef struct ot_target_source {
  // The step of these samples begins; `runtime` has the weights.
  ot_status (*begin)(void *context, ot_runtime *runtime, const ot_target_samples *samples);
  // Fills the weighted targets of the next micro-batch of this rank.
  ot_status (*fill)(void *context, struct ot_micro_batch *rows);
  // The samples of the next step; the source may compute their targets while this step runs.
  ot_status (*begin_next)(void *context, const ot_target_samples *samples);
  // The step has ended. *divergence: of the source's distribution and the model's, nats a token;
  // NAN if unknown.
  ot_status (*end)(void *context, ot_world *world, const ot_target_losses *losses,
                   double *divergence);
  void (*destroy)(void *context);
  void *context;  // null: the run has no such source
} ot_target_source;
