// SPDX-License-Identifier: Apache-2.0
// Reductions over ranks, the same on every back end: element by element, in rank order, in one
// dtype. The data is in this process (a rank's own buffer, another thread's, or a workspace).
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"

// target = (((x_0 + x_1) + x_2) + ...), x_r being elements of source r.
typedef struct ot_comm_reduction {
  // Returns the array of dtype that is source `i`, or target `i`; called in ascending order, from 0
  // again for each block. All targets receive the sum; they may be sources.
  const void *(*source)(void *context, int i);
  void *(*target)(void *context, int i);
  void *context;
  int num_sources, num_targets;  // >= 1
  int64_t source_offset;         // elements to skip in each source
  int64_t target_offset;         // elements to skip in each target
  int64_t count;                 // elements
  ot_dtype dtype;                // of the sources: fp32, fp64, bf16, i32, i64
  ot_dtype sum;                  // reduction dtype: dtype; fp32 or fp64 for bf16
  ot_dtype target_dtype;         // dtype, sum, or bf16: the sum is rounded to it once
  bool round;                    // each partial sum is rounded to dtype
  bool accumulate;               // target += the sum, added in `sum`; one target only
} ot_comm_reduction;

void ot_comm_reduce_run(const ot_comm_reduction *job);
