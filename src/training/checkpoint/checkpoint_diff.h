// SPDX-License-Identifier: Apache-2.0
// The difference of two checkpoints, tensor by tensor.
#pragma once

#include "checkpoint/checkpoint.h"

// One tensor that is not the same bits in both.
typedef struct ot_tensor_difference {
  const char *name;  // "optimizer" tensors with their prefix: "m.NAME"
  const char *what;  // "values", "shape [8,4] and [4,8]", "dtype F32 and BF16", "only in the first"
  bool compared;     // same shape: the figures below are known
  int64_t elements;  // compared
  int64_t different;  // elements whose values differ
  double absolute;    // largest |a - b|; infinite if one of them is not finite
  double relative;    // largest |a - b| / max(|a|, |b|)
} ot_tensor_difference;

// Weights, or one kind of state of the optimizer.
typedef struct ot_difference_group {
  const char *name;           // "weights", "m", "v", "master", ...
  int64_t tensors, equal;     // equal: type, shape and bits
  double absolute, relative;  // largest of its tensors
} ot_difference_group;

typedef struct ot_checkpoint_difference {
  ot_difference_group *groups;  // [num_groups]
  int64_t num_groups, group_capacity;
  ot_tensor_difference *tensors;  // [num_tensors] that differ
  int64_t num_tensors, tensor_capacity;
} ot_checkpoint_difference;

// Compares the tensors of two open checkpoints; a missing optimizer has no tensors. Reads both
// completely. All results are in `arena`.
ot_status ot_checkpoint_compare(ot_checkpoint *a, ot_checkpoint *b, ot_arena *arena,
                                ot_checkpoint_difference *difference);
