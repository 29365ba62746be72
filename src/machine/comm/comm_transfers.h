// SPDX-License-Identifier: Apache-2.0
// The data movement of a call: which block of which buffer is sent where. Every call is a list of
// transfers, to and from the other members of the group and to the member itself. In a reduction
// the received blocks are then added in rank order; an all_reduce then has a second list, which
// gathers the reduced blocks. Back ends run the lists: MPI sends a message per transfer; threads
// copy between the members' buffers or, in a reduction, read the other's block in place. Pure.
#pragma once

#include "comm/comm_call.h"
#include "comm/comm_reduction.h"

// A call from the view of one member of its group.
typedef struct ot_comm_member_call {
  const ot_comm_call *call;
  int size, index;  // of the group; the member
  bool direct;      // all_reduce in one step: all members receive and add everything (same bits);
                    // the workspace has size * count elements
} ot_comm_member_call;

// Part of a member's buffer.
typedef struct ot_comm_block {
  char *memory;
  int64_t bytes;
  // all-to-all-v: the block is rows of `memory`, in runs.
  const int32_t *run;  // [runs][2] first row, number of rows
  int runs;
  int64_t rows, row_bytes;
} ot_comm_block;

typedef struct ot_comm_transfer {
  bool sends;
  int peer;  // the other member
  ot_comm_block block;
} ot_comm_transfer;

bool ot_comm_is_reduction(ot_comm_kind kind);
// True for a call between two ranks.
bool ot_comm_is_message(ot_comm_kind kind);

// Number of transfer lists: 2 for an all_reduce that is not direct, else 1.
int ot_comm_steps(const ot_comm_member_call *x);
// The transfers of a step to and from other members: `which` in [0, ot_comm_transfers). Sends
// come first (comm_mpi.c says why), and each member starts with its neighbours, so that senders do
// not all target one member.
int ot_comm_transfers(const ot_comm_member_call *x);
ot_comm_transfer ot_comm_transfer_at(const ot_comm_member_call *x, int step, int which);

// True if member `from` (perhaps this one) sends to this member, even 0 bytes.
bool ot_comm_expects(const ot_comm_member_call *x, int from);
// The block sent to member `to`, and the block received from member `from`. Both ends of a transfer
// have the same number of bytes unless the members' row counts differ.
ot_comm_block ot_comm_sent(const ot_comm_member_call *x, int step, int to);
ot_comm_block ot_comm_received(const ot_comm_member_call *x, int step, int from);
// Bytes that this member receives in the first step, its own included.
int64_t ot_comm_received_bytes(const ot_comm_member_call *x);

// Copies a block between buffers that both are addressable, unless it is in place: at once, or on
// `stream`.
ot_status ot_comm_copy(ot_stream *stream, const ot_comm_block *from, const ot_comm_block *to);

// The reduction after the first step. Its offsets assume the members' `send` as sources and one
// member's `receive` as target; the caller sets both.
ot_comm_reduction ot_comm_reduction_of(const ot_comm_member_call *x);

// The same for sources that are where the first step left them: the blocks received, and the
// member's own in `send`. Keeps `x`.
ot_comm_reduction ot_comm_reduction_of_received(ot_comm_member_call *x);

// Bytes that this member sends to others.
double ot_comm_wire_bytes(const ot_comm_member_call *x);

// Panics unless all runs of an all-to-all-v lie in their buffers and the two buffers are disjoint.
void ot_comm_check_rows(const ot_comm_call *call, int size);
