// SPDX-License-Identifier: Apache-2.0
// Values that every rank can compute for every other rank, and reductions of them as comm.h defines
// them, coded as plainly as possible: one element at a time.
#pragma once

#include "comm/comm.h"

// Members of a group as one member sees them.
typedef struct comm_members {
  ot_group_kind kind;
  int size, index;
  int ranks[64];
} comm_members;

// All ranks.
comm_members comm_world_of(const ot_comm *comm);

// Writes element `element` of the send buffer of `rank` into `out` as `dtype`. Real values span a
// factor of 2^40, so another order of summation gives other bits.
void comm_value(int rank, int64_t element, ot_dtype dtype, void *out);

// Writes elements [first, first + count) of the send buffer of `rank` into `out` [count].
void comm_values(int rank, int64_t first, int64_t count, ot_dtype dtype, void *out);

// Expected result of `call` for element `element`: the reduction over the members in type `sum`,
// into `out`.
//   before  previous content of `receive`, of type `sum`; added last if call->accumulate
void comm_expected_sum(const ot_comm_call *call, const comm_members *members, int64_t element,
                       const void *before, void *out);
