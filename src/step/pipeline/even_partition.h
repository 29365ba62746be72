// SPDX-License-Identifier: Apache-2.0
// Partitions a chain of equal layers between an embedding and a head, with several chunks per rank.
// Any number of layers can go to any chunk, so no search is needed. Private to pipeline/.
#pragma once

#include <stdint.h>

#include "base/arena.h"

typedef struct ot_even_partition_request {
  int num_layers;              // equal layers between the first and the last block
  int64_t layer, first, last;  // costs >= 0
  int num_ranks, num_chunks;   // >= 2
  const int *rank_of;          // [num_chunks]
} ot_even_partition_request;

// Fills `begin` [num_chunks + 1] as ot_chain_partition: the cost of the most expensive rank is
// minimal, then that of the largest chunk, then the squares of ranks. num_chunks is at most
// num_layers + 2.
void ot_even_partition(const ot_even_partition_request *request, ot_arena *arena, int *begin);
