// SPDX-License-Identifier: Apache-2.0
// Ranks, groups of ranks, and what they say to each other. One contract, several back ends (threads
// of this process, MPI), one conformance suite (tests/comm).
//
// A rank holds one ot_comm: its end of the world and of every group it is in. Calls are started and
// make progress on their own, concurrently with compute, until they are done; waiting for one helps
// it along. Nothing is allocated between create and destroy: staging memory is the caller's
// (`workspace`).
//
// Sums are exact in the sense that matters here: each element is added over ranks in rank order, in
// the type `sum`, whatever the back end, the number of threads or the time of arrival.
#pragma once

#include "comm/comm_call.h"

// ---- worlds ----

// OT_FINDINGS and OT_STOPPED are no failures here: they are how a main that has done its work ends.

// Runs `main` on `ranks` threads of this process, each with an end of one world, and waits for all.
// The first rank that fails ends the calls of the others (they return OT_RANKS); its status and
// message are what this returns, with "rank R: " before a message that names no rank. Without a
// failure, it is the status of the lowest rank that returned another than OT_OK. Rank 0 runs on the
// calling thread; one rank alone is a call of `main`. Blocks.
ot_status ot_comm_run_threads(int ranks, ot_rank_main main, void *context);

// True when this process was started by an MPI launcher (the variables of Open MPI, MPICH's PMI and
// Slurm say so) and how many processes that launcher says there are. Local.
bool ot_comm_launched(int *ranks);

// Joins the processes of MPI_COMM_WORLD, runs `main`, leaves. OT_RANKS when the launcher's size and
// MPI's differ, OT_ENVIRONMENT when this build has no MPI. At most once in a process. The caller
// prints the message, unless it is empty: then another rank prints what has to be said. When `main`
// failed otherwise than by ot_comm_agree, all processes of the job end when this one exits (by
// return from the program's main or by exit), with its status. Blocks.
ot_status ot_comm_run_mpi(ot_rank_main main, void *context);

// True when this program was built with MPI.
bool ot_comm_has_mpi(void);

int ot_comm_rank(const ot_comm *comm);
int ot_comm_size(const ot_comm *comm);
// Name of the machine that the rank is on.
const char *ot_comm_host(const ot_comm *comm);
// Ranks of the world that share this rank's machine, itself included.
int ot_comm_local_size(const ot_comm *comm);

// This rank has failed with `status` and this thread's message: waits of all its threads, and with
// threads those of all ranks, end with OT_RANKS from now on, and none of its calls touches memory
// any more when this returns. For a rank that fails while calls are under way, before it gives
// their memory back and returns to its caller. Repeated calls have no effect.
void ot_comm_fail(ot_comm *comm, ot_status status);

// Ends the job at once: ot_comm_fail, and with MPI the end of all processes, this one included,
// with exit code `status`. For a rank that cannot return to its caller.
void ot_comm_abort(ot_comm *comm, ot_status status);

// ---- groups ----

// Makes group `kind` of the world ranks `ranks` [size >= 2], ascending, this rank among them.
// Collective over the members; all ranks of the world make their groups in the order of kinds.
ot_status ot_comm_add_group(ot_comm *comm, ot_group_kind kind, const int *ranks, int size);

// Ranks in the group of `kind`; 1 where there is none.
int ot_comm_group_size(const ot_comm *comm, ot_group_kind kind);

// ---- calls ----

// Starts `call`. Collective over the group (send, receive: the two ranks): members start the calls
// of a group in one order. Does not block. `request` is in use until done.
void ot_comm_start(ot_comm *comm, const ot_comm_call *call, ot_comm_request *request);

// True when the call is done, its memory free again. Does not block.
bool ot_comm_done(ot_comm *comm, ot_comm_request *request);

// Waits until it is done. OT_RANKS, naming what did not come and from which rank, when another rank
// has failed, when a rank that must come has ended or every rank waits and nothing can move (a
// deadlock; told by threads, at once), when members' calls differ (the numbers of rows of an
// exchange, too), or when ot_comm_set_patience ran out. After a failure no memory of this rank's
// calls is touched any more. One thread waits for a request. Blocks.
ot_status ot_comm_wait(ot_comm *comm, ot_comm_request *request);

// Start and wait. Blocks.
ot_status ot_comm_run(ot_comm *comm, const ot_comm_call *call);

// A thread of this rank is about to block on another thread of the rank (`waits`), or goes on. With
// this, and nothing else, back ends can tell a deadlock from a long kernel: a rank counts as
// waiting when all of its threads that could start a call do. While some thread has said so, a
// deadlock is believed after a second in which nothing happened, not at once.
void ot_comm_set_waiting(ot_comm *comm, bool waits);
// Another thread of this rank may start calls from now on (`more`), or no longer will. Said before
// the thread begins. A rank has one thread at first: that of its main.
void ot_comm_add_thread(ot_comm *comm, bool more);

// Seconds after which a wait gives up, naming the rank, the call and its sequence number that never
// came; 0 = never (the default).
void ot_comm_set_patience(ot_comm *comm, double seconds);

// Bytes that this rank has put on the wire since create, by group and kind: (size-1)/size of the
// whole for all_gather, reduce_scatter and all_to_all, twice that for all_reduce, the whole for
// shift and send, the rows for other ranks for exchange. Counted when a call is started.
double ot_comm_sent_bytes(const ot_comm *comm, ot_group_kind group, ot_comm_kind kind);

// ---- agreement ----

// All ranks return the same: OT_OK when `status` is OT_OK everywhere, else the status and message
// of the lowest rank that failed ("rank R on HOST: ..."). Collective over the world. Blocks.
ot_status ot_comm_agree(ot_comm *comm, ot_status status);

// OT_RANKS, naming the ranks that differ and `what`, unless `value` is equal on all ranks of the
// group. Collective over the group. Blocks.
ot_status ot_comm_check_equal(ot_comm *comm, ot_group_kind group, uint64_t value, const char *what);
