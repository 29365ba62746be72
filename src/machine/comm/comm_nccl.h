// SPDX-License-Identifier: Apache-2.0
// Calls with streams between GPUs, by NCCL: it moves bytes, sums are our own (rank_sum.h), so they
// have the bits that every other way of communicating gives. The ranks meet in the GPUs' work
// alone: a call is done when it is queued, and no thread waits for another rank. Private to comm/.
#pragma once

#include "comm/comm.h"
#include "comm/comm_parts.h"

// Makes the NCCL communicators that `routes` need and that are missing, and runs one call of each
// kind, which connects the ranks. Collective over the world. Blocks.
ot_status ot_comm_nccl_open(ot_comm *comm, int ordinal, const ot_comm_route *routes, int count);

// Queues the call of a request on its stream.
ot_status ot_comm_nccl_queue(const ot_comm_request *request);

// The failure that NCCL reports of queued work, if there is one.
ot_status ot_comm_nccl_check(ot_comm *comm);

// Writes "'NAME' (...), 'NAME' (...)": of each NCCL communicator whose work is not finished, the
// latest call. Returns how many.
int ot_comm_nccl_say(ot_comm *comm, ot_comm_text *out);

// Ends all queued calls, undone. Later calls fail.
void ot_comm_nccl_abort(ot_comm *comm);

// The rank's main has returned `status`: waits for all ranks and releases everything, or aborts.
// Collective over the world. Blocks.
void ot_comm_nccl_close(ot_comm *comm, ot_status status);
