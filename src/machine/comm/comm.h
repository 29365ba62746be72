// SPDX-License-Identifier: Apache-2.0
// Ranks, groups of ranks, and their communication. One contract, several back ends (threads of this
// process, MPI), one conformance suite (tests/comm).
//
// A rank holds one ot_comm: its communicator for the world and for each of its groups. Calls are
// asynchronous and progress concurrently with compute; waiting for one also progresses it. Nothing
// is allocated between create and destroy: the caller provides staging memory (`workspace`).
//
// Reductions are deterministic: each element is added over ranks in rank order, in the dtype `sum`,
// independent of back end, number of threads and time of arrival.
#pragma once

#include "comm/comm_call.h"

// ---- worlds ----

// OT_FINDINGS and OT_STOPPED are not failures here: a main that has done its work may return them.

// Runs `main` on `ranks` threads of this process, each with its communicator of one world, and
// joins them. The first rank that fails cancels the calls of the others (they return OT_RANKS); its
// status and message are returned, with "rank R: " before a message that names no rank. Without a
// failure, returns the status of the lowest rank that returned another status than OT_OK. Rank 0
// runs on the calling thread; with one rank this is a call of `main`. Blocks.
ot_status ot_comm_run_threads(int ranks, ot_rank_main main, void *context);

// True if this process was started by an MPI launcher (according to the variables of Open MPI,
// MPICH's PMI and Slurm); `ranks` is that launcher's number of processes. Local.
bool ot_comm_launched(int *ranks);

// Joins the processes of MPI_COMM_WORLD, runs `main`, finalizes. OT_RANKS if the sizes of launcher
// and MPI differ, OT_ENVIRONMENT if this build has no MPI. At most once per process. The caller
// prints the message unless it is empty: then another rank prints it. If `main` failed other than
// through ot_comm_agree, all processes of the job end when this one exits (by return from the
// program's main or by exit), with its status. Blocks.
ot_status ot_comm_run_mpi(ot_rank_main main, void *context);

// True when this program was built with MPI.
bool ot_comm_has_mpi(void);

// Divides the world in two: the ranks before `first` and the others. Each part is a world from then
// on, in which ranks count from 0; OT_GROUP_JOB has all ranks, as they were numbered. Before other
// groups are created; at most once. Collective over the undivided world. Blocks.
ot_status ot_comm_divide(ot_comm *comm, int first);

int ot_comm_rank(const ot_comm *comm);
int ot_comm_size(const ot_comm *comm);
// Host name of the rank.
const char *ot_comm_host(const ot_comm *comm);
// Ranks of the world on this rank's host, this rank included, and this rank's number among them.
int ot_comm_local_size(const ot_comm *comm);
// The number of these ranks that are threads of this process.
int ot_comm_process_ranks(const ot_comm *comm);
int ot_comm_local_rank(const ot_comm *comm);

// This rank failed with `status` and this thread's message. From now on waits of all its threads
// return OT_RANKS (with the thread back end, waits of all ranks), and on return none of its calls
// uses memory. For a rank that fails with calls in flight, before it releases their memory and
// returns to its caller. Repeated calls have no effect.
void ot_comm_fail(ot_comm *comm, ot_status status);

// Asks all ranks of the world to leave what they do (for the caller to define): a rank is asked
// some time after one of them has asked. Not collective, does not block.
void ot_comm_ask(ot_comm *comm);
// Called by one thread of the rank.
bool ot_comm_is_asked(ot_comm *comm);

// ---- groups ----

// Creates group `kind` from the world ranks `ranks` [size >= 2], ascending, this rank among them.
// Collective over the members; all ranks of the world create their groups in the order of kinds.
ot_status ot_comm_add_group(ot_comm *comm, ot_group_kind kind, const int *ranks, int size);

// Ranks in the group of `kind`; 1 if there is no group.
int ot_comm_group_size(const ot_comm *comm, ot_group_kind kind);

// ---- device memory ----

// A kind of calls with streams. Of messages: those with one peer and tag.
typedef struct ot_comm_route {
  ot_group_kind group;
  ot_comm_kind kind;
  int peer, tag;  // send, receive: see ot_comm_call
} ot_comm_route;

// Which of the `devices` GPUs of a host this rank takes: one of its own if each rank of the host
// can have one, else the first. Local.
int ot_comm_ordinal(const ot_comm *comm, int devices);

// Makes ready calls with buffers in the memory of GPU `ordinal`, of the kinds `routes` [count]:
// where messages are sent, both ranks give a route. Ranks that are threads and have the same GPU
// read each other's memory; else every rank has a GPU of its own and NCCL moves all bytes.
// OT_ENVIRONMENT on all ranks if processes have the same GPU, if some ranks share one and others do
// not, or without NCCL; OT_RANKS if more than 64 ranks of a group add up values. May be called
// again, for more routes. Collective over the world; the groups exist. Blocks.
ot_status ot_comm_use_device(ot_comm *comm, int ordinal, const ot_comm_route *routes, int count);
// The version of NCCL if it moves the bytes of calls with streams: 10000 major + 100 minor + patch.
// Else, and for null, 0. Local.
int ot_comm_nccl_version(const ot_comm *comm);

// Waits for all work of `stream`, calls included; afterwards nothing of it uses memory. `comm` may
// be null. OT_RANKS if another rank fails, or names the calls that have not finished within the
// timeout, which with NCCL counts from here. If the GPU fails, so does the rank (ot_comm_fail).
// Blocks.
ot_status ot_comm_synchronize(ot_comm *comm, ot_stream *stream);

// ---- calls ----

// Starts `call`. Collective over the group (send, receive: the two ranks): all members start the
// calls of a group in the same order. Does not block. `request` is in use until done.
void ot_comm_start(ot_comm *comm, const ot_comm_call *call, ot_comm_request *request);

// True if the call is done and its buffers are free. Does not block.
bool ot_comm_done(ot_comm *comm, ot_comm_request *request);

// Waits until the call is done. OT_RANKS, naming the call and the missing ranks, if another rank
// has failed, if a required rank has ended, on a deadlock (every rank waits; the thread back end
// detects it at once), if the members' calls differ (including the token counts of an
// all-to-all-v), or after the timeout of ot_comm_set_timeout. After a failure no call of this rank
// uses memory. One thread waits for a request. Blocks.
ot_status ot_comm_wait(ot_comm *comm, ot_comm_request *request);

// CPU time of the calling thread in ot_comm_wait so far, in seconds: of polls, and of data that it
// moved and added meanwhile.
double ot_comm_waiting_s(void);

// Start and wait. Blocks.
ot_status ot_comm_run(ot_comm *comm, const ot_comm_call *call);

// A thread of this rank is about to block on another thread of the rank (`waits`), or continues.
// Only this lets back ends tell a deadlock from a long kernel: a rank counts as waiting when all of
// its threads that could start a call wait. While a thread has declared a wait, a deadlock is
// reported after a second without events, not at once.
void ot_comm_set_waiting(ot_comm *comm, bool waits);
// Another thread of this rank may start calls from now on (`more`), or no longer will. Call it
// before the thread begins. A rank starts with one thread: that of its main.
void ot_comm_add_thread(ot_comm *comm, bool more);

// Timeout of a wait in seconds; its message names the missing rank, the call and its sequence
// number. 0 = no timeout (the default).
void ot_comm_set_timeout(ot_comm *comm, double seconds);

// Bytes that this rank has sent since create, by group and kind: (size-1)/size of the whole for
// all_gather, reduce_scatter and all_to_all, twice that for all_reduce, the whole for shift and
// send, the tokens for other ranks for all-to-all-v. Counted when a call starts.
double ot_comm_sent_bytes(const ot_comm *comm, ot_group_kind group, ot_comm_kind kind);

// ---- agreement ----

// Returns the same on all ranks: OT_OK if `status` is OT_OK everywhere, else the status and message
// of the lowest rank that failed ("rank R on HOST: ..."). Collective over the world. Blocks.
ot_status ot_comm_agree(ot_comm *comm, ot_status status);

// OT_RANKS, naming `what` and the ranks that differ, unless `value` is equal on all ranks of the
// group. Collective over the group. Blocks.
ot_status ot_comm_check_equal(ot_comm *comm, ot_group_kind group, uint64_t value, const char *what);
