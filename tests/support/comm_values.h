// SPDX-License-Identifier: Apache-2.0
// Numbers that every rank can tell of every other, and sums of them as comm.h defines them, written
// as plainly as can be: one element at a time.
#pragma once

#include "comm/comm.h"

// The members of a group, as one of them sees it.
typedef struct comm_members {
  ot_group_kind kind;
  int size, index;
  int ranks[64];
} comm_members;

// All ranks.
comm_members comm_world_of(const ot_comm *comm);

// Element `element` of what `rank` sends, written into `out` as `dtype`. Real numbers differ in
// size by 2^40, so that another order of a sum gives other bits.
void comm_value(int rank, int64_t element, ot_dtype dtype, void *out);

// Writes elements [first, first + count) of what `rank` sends into `out` [count].
void comm_values(int rank, int64_t first, int64_t count, ot_dtype dtype, void *out);

// What `call` makes of element `element` on the members: the sum in type `sum`, into `out`.
//   before  what `receive` held, of type `sum`; added last when call->accumulate
void comm_expected_sum(const ot_comm_call *call, const comm_members *members, int64_t element,
                       const void *before, void *out);
