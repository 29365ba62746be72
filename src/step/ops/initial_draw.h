// SPDX-License-Identifier: Apache-2.0
// Initial weights, drawn where they are stored. An element is a pure function of the seed, its
// stream and its counter, with the same bits on the CPU and on a GPU, so layout and number of ranks
// do not change it.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"

// A copy of the weights or a part of it: elements [first, end) of the matrix in `dtype`.
typedef struct ot_initial_target {
  int64_t offset;  // bytes from the arena's begin to element `first`
  int64_t first, end;
  ot_dtype dtype;  // fp64, fp32, bf16: the double is rounded to fp32, then to bf16
} ot_initial_target;

enum { OT_INITIAL_TARGETS = 2 };  // weights and master copies

// Elements of a matrix, row by row: `scale` times the normal number of ot_rng_normal at the
// element's counter, or `scale` itself.
typedef struct ot_initial_draw {
  bool normal;
  double scale;
  uint64_t seed, stream;
  uint64_t counter, row_step, column_step;  // counter + row * row_step + column * column_step
  int64_t columns;
  ot_initial_target target[OT_INITIAL_TARGETS];
  int num_targets;
} ot_initial_draw;
