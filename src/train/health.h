// SPDX-License-Identifier: Apache-2.0
// How every tensor and every block of a model fared in the last step, put together from all ranks;
// and whether the loss of a step stands out.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "runtime/instance.h"

// One value of one tensor, layer or head.
typedef struct ot_health_value {
  const char *name;  // HF tensor name, or name of the block
  double value;
} ot_health_value;

typedef struct ot_health {
  int num_tensors;
  ot_health_value *gradient_norm;  // [num_tensors] norm of each part's gradient
  ot_health_value *update_ratio;   // [num_tensors] |update| / |weight|
  int num_blocks;
  ot_health_value *max_activation;  // [num_blocks] largest |x| that left the block
  ot_health_value *max_logit;       // [num_blocks] largest scaled attention logit, 0 outside layers
} ot_health;

// Reads it after a step; arrays live in `arena`. `comm` is null on one rank. Collective over the
// world. Blocks.
ot_status ot_health_read(ot_instance *instance, ot_comm *comm, ot_arena *arena, ot_health *health);

// Where numbers of a step stopped being finite.
typedef struct ot_strange_place {
  const char *text;  // a clause: the block, the rank and the tensors whose gradients are not finite
  const char *block;  // the first whose output is not, else whose gradients are not; null: none
  int rank;           // the lowest that has it; -1: the reduction of gradients hides it
} ot_strange_place;

// After a step whose numbers are not finite; texts in `arena`, the same on all ranks. Collective
// over the world. Blocks.
ot_status ot_health_find_strange(ot_instance *instance, ot_comm *comm, ot_arena *arena,
                                 ot_strange_place *place);

// ---- steps that stand out ----

// How far a value is from the median of those before it, in standard deviations that the median
// deviation stands for, so that neither a trend nor an earlier spike moves the measure. Pure.

enum {
  OT_SPIKE_WINDOW = 200,  // values that the median is of, at most
  OT_SPIKE_LEAST = 20,    // before so many nothing is said
};

typedef struct ot_spike_monitor {
  double values[OT_SPIKE_WINDOW];  // ring
  int64_t count;                   // of values so far
  double z;                        // of the last one; 0 while there are too few
  bool high;                       // the last z was above 8
} ot_spike_monitor;

// Takes the next value. True: an alarm, because z > 20, or z > 8 twice in a row. A value that is
// not finite is left out. Deviations below a thousandth of the median count as that.
bool ot_spike_add(ot_spike_monitor *monitor, double value);
