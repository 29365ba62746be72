// SPDX-License-Identifier: Apache-2.0
// Sums over ranks in device memory, element by element, in rank order, in one dtype: the same bits
// as comm/comm_reduction.h gives in host memory.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"

enum { OT_RANK_SUM_MOST = 64 };

// Every target = ((source_0 + source_1) + source_2) + ...; all sources of an element are read
// before it is written, so a target may be a source.
typedef struct ot_rank_sum {
  const void *source[OT_RANK_SUM_MOST];  // [num_sources][count] of `dtype`
  void *target[OT_RANK_SUM_MOST];        // [num_targets][count] of `target_dtype`
  int num_sources, num_targets;          // [1, OT_RANK_SUM_MOST]
  int64_t count;                         // elements
  ot_dtype dtype;                        // fp32, fp64, bf16, i32, i64
  ot_dtype sum;                          // dtype of the sum: dtype; fp32 or fp64 for bf16
  ot_dtype target_dtype;                 // dtype, sum, or bf16: the sum is rounded to it once
  bool round;                            // each partial sum is rounded to dtype
  bool accumulate;                       // target += the sum; one target only
} ot_rank_sum;

// Queues the sum on `stream` (a cudaStream_t), whose device is the calling thread's.
void ot_rank_sum_cuda(void *stream, const ot_rank_sum *job);
