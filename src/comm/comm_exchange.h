// SPDX-License-Identifier: Apache-2.0
// What a call moves: the only place that knows which block of which memory goes where. Every call
// is a list of transfers: to and from the other members of the group, and to the member itself. In
// a reduction a sum over the blocks received follows, in rank order; an all_reduce then has a
// second list, which gathers the blocks of the sum. Back ends carry the lists out: MPI with a
// message for each transfer, threads by a copy from one member's memory to the other's, or, for a
// sum, by reading the other's block in place. Pure.
#pragma once

#include "comm/comm_call.h"
#include "comm/comm_sum.h"

// A call as a member of its group sees it.
typedef struct ot_comm_exchange {
  const ot_comm_call *call;
  int size, index;  // of the group; the member
  bool direct;      // all_reduce in one step: all members get and add everything, which gives the
                    // same bits. The workspace then has size * count elements
} ot_comm_exchange;

// Part of a member's memory.
typedef struct ot_comm_block {
  char *memory;
  int64_t bytes;
  // Exchange: the block is rows of `memory`, in runs.
  const int32_t *run;  // [runs][2] first row, number of rows
  int runs;
  int64_t rows, row_bytes;
} ot_comm_block;

typedef struct ot_comm_transfer {
  bool sends;
  int peer;  // to or from which member
  ot_comm_block block;
} ot_comm_transfer;

bool ot_comm_is_reduction(ot_comm_kind kind);
// True when the call is between two ranks.
bool ot_comm_is_message(ot_comm_kind kind);

// Lists of transfers that follow each other: 2 for an all_reduce that is not direct, else 1.
int ot_comm_steps(const ot_comm_exchange *x);
// The transfers of a step to and from others: `which` in [0, ot_comm_transfers). Receives come
// first, and each member begins with its neighbours, so no member is sent to by all at once.
int ot_comm_transfers(const ot_comm_exchange *x);
ot_comm_transfer ot_comm_transfer_at(const ot_comm_exchange *x, int step, int which);

// True when member `from` (perhaps this one) has something for this member, be it of 0 bytes.
bool ot_comm_expects(const ot_comm_exchange *x, int from);
// What goes to member `to`, and where that is put which comes from member `from`. The two ends of a
// transfer have the same number of bytes, unless members mean different numbers of rows.
ot_comm_block ot_comm_sent(const ot_comm_exchange *x, int step, int to);
ot_comm_block ot_comm_received(const ot_comm_exchange *x, int step, int from);
// Bytes that this member receives in the first step, from itself, too.
int64_t ot_comm_received_bytes(const ot_comm_exchange *x);

// Copies a block, which both sides see in their memory, unless it is there.
void ot_comm_copy(const ot_comm_block *from, const ot_comm_block *to);

// The sum after the first step of a reduction. Its offsets are those for sources that are the
// `send` of the members, and for a target that is a member's `receive`; the caller sets both.
ot_comm_sum ot_comm_sum_of(const ot_comm_exchange *x);

// Bytes that this member puts on the wire.
double ot_comm_wire_bytes(const ot_comm_exchange *x);

// Panics unless all runs of an exchange lie in their memory, and the two memories apart.
void ot_comm_check_rows(const ot_comm_call *call, int size);
