// SPDX-License-Identifier: Apache-2.0
// Statistics of every tensor and block of a model in the last step, combined over all ranks; and
// detection of loss spikes.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "runtime/model_runtime.h"

// A value of one tensor, layer or head.
typedef struct ot_health_value {
  const char *name;  // HF tensor name, or name of the block
  double value;
} ot_health_value;

typedef struct ot_health {
  int num_tensors;
  ot_health_value *gradient_norm;  // [num_tensors] norm of each part's gradient
  ot_health_value *update_ratio;   // [num_tensors] |update| / |weight|
  int num_blocks;
  ot_health_value *max_activation;  // [num_blocks] largest |x| of the block's output
  ot_health_value *max_logit;       // [num_blocks] largest scaled attention logit, 0 outside layers
} ot_health;

// Reads the statistics after a step; arrays are in `arena`. `comm` is null on one rank. Collective
// over the world. Blocks.
ot_status ot_health_read(ot_runtime *runtime, ot_comm *comm, ot_arena *arena, ot_health *health);

// Where numbers of a step became non-finite.
typedef struct ot_nonfinite_location {
  const char *text;   // a clause: the block, the rank and the tensors with non-finite gradients
  const char *block;  // first with a non-finite output, else gradient; null: none
  int rank;           // lowest rank that has it; -1: unknown after the reduction
} ot_nonfinite_location;

// Call after a step with non-finite numbers; texts in `arena`, the same on all ranks. Collective
// over the world. Blocks.
ot_status ot_health_find_nonfinite(ot_runtime *runtime, ot_comm *comm, ot_arena *arena,
                                   ot_nonfinite_location *place);

// ---- spikes ----

// Distance of a value from the median of previous values, in standard deviations estimated from the
// median absolute deviation, so that neither a trend nor an earlier spike distorts it. Pure.

enum {
  OT_SPIKE_WINDOW = 200,  // values in the median, at most
  OT_SPIKE_LEAST = 20,    // values before the first verdict
};

typedef struct ot_spike_monitor {
  double values[OT_SPIKE_WINDOW];  // ring buffer
  int64_t count;                   // values so far
  double z;                        // of the last value; 0 while there are too few
  bool high;                       // the last z was above 8
} ot_spike_monitor;

// Adds the next value. True: an alarm, because z > 20, or z > 8 twice in a row. Non-finite values
// are skipped. Deviations below a thousandth of the median are raised to that.
bool ot_spike_add(ot_spike_monitor *monitor, double value);
