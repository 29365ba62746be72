// SPDX-License-Identifier: Apache-2.0
// Cutting a chain of blocks of known cost into chunks that stand on ranks.
#pragma once

#include <stdint.h>

#include "base/arena.h"

typedef struct ot_cut_request {
  int num_blocks;
  const double *cost;  // [num_blocks] >= 0
  int num_ranks, num_chunks;
  const int *rank_of;  // [num_chunks] rank of each chunk
} ot_cut_request;

// Cuts into num_chunks <= num_blocks contiguous chunks of at least one block: the most expensive
// rank is as cheap as can be, then the largest chunk, then costs are as even as they can be. With
// one chunk a rank that is exact; with more it is the best that a search finds (of small random
// chains, the optimum for all but one in hundreds), the same on every host.
//   first  [num_chunks + 1] chunk c holds blocks [first[c], first[c + 1])
void ot_stage_cut(const ot_cut_request *request, ot_arena *arena, int *first);
