// SPDX-License-Identifier: Apache-2.0
// The pieces of a recorded tensor by what they hold: pieces with the same elements form a part, and
// those of its pieces that are summed form a copy of it.
#pragma once

#include "judge/recorded.h"

typedef struct ot_part_copy {
  int num_pieces;
  const ot_recorded_piece **pieces;  // [num_pieces] by rank
} ot_part_copy;

typedef struct ot_part {
  const ot_recorded_tensor *tensor;
  const ot_recorded_piece *piece;  // one of them
  const int64_t *run_first;        // [num_runs] elements of the piece before each run
  int num_copies;
  ot_part_copy *copies;  // [num_copies] by their first ranks
} ot_part;

typedef struct ot_parts {
  int count;
  ot_part *part;  // [count]
} ot_parts;

// The parts of `tensor`, where pieces are summed over its partial axes and those in `sum_axes`.
// OT_USAGE if a piece of a sum over partial axes is missing. In `arena`.
ot_status ot_parts_build(const ot_recorded_step *step, const ot_recorded_tensor *tensor,
                         uint32_t sum_axes, ot_arena *arena, ot_parts *out);

// Element `at` of a part, [0, piece->elements), as an element of the tensor; the first element of a
// part that is not before element `element` of the tensor; the number of elements from `at` on that
// follow each other in the tensor.
int64_t ot_part_element(const ot_part *part, int64_t at);
int64_t ot_part_find(const ot_part *part, int64_t element);
int64_t ot_part_run(const ot_part *part, int64_t at);

// The axes, by bits, that a rank shares with those that it may be summed or compared with over the
// axes `over`: all others, but those that follow from the others. Meshes may have axes such as ep
// that are made of the ranks of others.
uint32_t ot_axes_shared(const ot_recorded_step *step, uint32_t over, ot_arena *arena);

// The axes on which two ranks differ.
uint32_t ot_axes_between(const ot_recorded_step *step, int a, int b);
