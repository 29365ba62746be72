// SPDX-License-Identifier: Apache-2.0
// The schedule of a tiny model, planned but not run: input of tests of graph and schedule.
#pragma once

#include "runtime/model_runtime.h"
#include "support/tiny_model.h"

typedef struct tiny_plan {
  ot_heap heap;
  ot_arena arena;
  ot_model model;
  ot_run run;
  ot_recompute recompute;
  ot_graph graphs[OT_MODES];
  ot_schedule schedule;
} tiny_plan;

typedef struct tiny_request {
  ot_recompute recompute;
  bool split_backward;
  int micro_batches;  // of the only step program
  int64_t guard_bytes;
  ot_backend backend;
} tiny_request;

// Train and evaluate modes, two sequences of 7 tokens, one thread, fp32. Fails the test on an
// error.
void tiny_plan_create(const ot_model *model, const tiny_request *request, tiny_plan *plan);
void tiny_plan_destroy(tiny_plan *plan);
