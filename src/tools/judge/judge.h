// SPDX-License-Identifier: Apache-2.0
// Judges a recorded training step (recorded.h): computes it again and compares loss, gradients,
// copies on ranks, norm and update, and names what differs.
#pragma once

#include "base/status.h"
#include "judge/judge_report.h"

// How the step was computed: decides which rounding is its own.
typedef enum ot_judge_type {
  OT_JUDGE_AUTO,      // by the type of the weights; float32 weights that round like bf16: autocast
  OT_JUDGE_FP32,      //
  OT_JUDGE_BF16,      // weights and activations in bf16
  OT_JUDGE_AUTOCAST,  // float32 weights, matrix products in bf16
  OT_JUDGE_TYPES,
} ot_judge_type;

// "auto", "fp32", "bf16", "autocast".
extern const char *const ot_judge_type_names[OT_JUDGE_TYPES + 1];

typedef struct ot_judge_layers {
  int first, last;
} ot_judge_layers;

typedef struct ot_judge_request {
  const char *record;  // folder
  ot_judge_type type;
  const ot_judge_layers *layers;  // only these, from recorded activations; null: the whole step
  bool may_repeat;                // the data have too few samples for a step without repeated ones
  int threads;
  // Called after each block of the model; null: never.
  void (*progress)(void *context, int done, int all);
  void *context;
} ot_judge_request;

// The report lives in `arena`. OT_ENVIRONMENT and OT_USAGE as ot_recorded_read and
// ot_recomputation_run. Blocks.
ot_status ot_judge_record(const ot_judge_request *request, ot_arena *arena, ot_judge_report *out);
