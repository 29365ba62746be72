// SPDX-License-Identifier: Apache-2.0
// Partitions a chain of blocks of known cost into chunks that are assigned to ranks.
#pragma once

#include <stdint.h>

#include "base/arena.h"

typedef struct ot_chain_request {
  int num_blocks;
  const double *cost;  // [num_blocks] >= 0
  int num_ranks, num_chunks;
  const int *rank_of;  // [num_chunks] rank of each chunk
} ot_chain_request;

// Partitions into num_chunks <= num_blocks contiguous chunks of at least one block. Minimises the
// most expensive rank, then the largest chunk, then balances the costs. Exact with one chunk per
// rank; otherwise the best result of a search (optimal for all but one in hundreds of small random
// chains), the same on every host.
//   first  [num_chunks + 1] chunk c holds blocks [first[c], first[c + 1])
void ot_chain_partition(const ot_chain_request *request, ot_arena *arena, int *first);
