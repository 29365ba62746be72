// SPDX-License-Identifier: Apache-2.0
// Cutting a chain of equal layers between an embedding and a head, several chunks a rank. Any
// number of layers can go to any chunk, so nothing needs to be searched for. Private to schedule/.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"

typedef struct ot_even_cut_request {
  int num_layers;              // of equal cost, between the first and the last block
  int64_t layer, first, last;  // costs >= 0
  int num_ranks, num_chunks;   // >= 2
  const int *rank_of;          // [num_chunks]
} ot_even_cut_request;

// Fills `begin` [num_chunks + 1] as ot_stage_cut does and returns true, when the most expensive
// rank, the largest chunk and the squares of ranks are as small as any cut can make them. Else
// false, and somebody must search.
bool ot_even_cut(const ot_even_cut_request *request, ot_arena *arena, int *begin);
