// SPDX-License-Identifier: Apache-2.0
// The common parts of back ends of comm.h: the base of a communicator, the state shared by the
// communicators of a process, and the phases of a request. A back end defines how the members of a
// call meet (messages or shared memory); waits, data work by any free thread, failures and timeouts
// are common (comm_progress.c). Private to comm/.
#pragma once

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>

#include "base/failure.h"
#include "comm/comm_transfers.h"

// ---- phases of a request; forward only, except between the steps of a call ----

enum {
  OT_COMM_STARTED,   // transfers in flight, or other members have not arrived
  OT_COMM_READY,     // data to be copied or added by any free thread: in `ready` of its owner
  OT_COMM_RUNNING,   // being copied or added
  OT_COMM_FINISHED,  // done, but others still access buffers of the call
  OT_COMM_DONE,      // the owner may reuse the request
};

// The pace of a thread that waits, or of a progress thread.
typedef struct ot_comm_pace {
  double deadline_s;           // timeout of the wait; infinity: none
  double seen_s;               // when last seen running: time of a stopped process does not count
  bool spun;                   // since the last progress
  double idle_since_s, nap_s;  // for a polling back end
} ot_comm_pace;

// The operations of a back end. Called under the lock of the process unless stated otherwise.
// Arguments are checked; see comm.h for the contracts.
typedef struct ot_comm_backend {
  bool shares_memory;  // ranks are threads of a process
  // Creates the communicators of this process and runs `main` on each. `ranks`: see
  // ot_comm_run_threads. Not under the lock.
  ot_status (*run)(int ranks, ot_rank_main main, void *context);
  // The base already has the group. Not under the lock.
  ot_status (*add_group)(ot_comm *comm, ot_group_kind kind);
  // Starts the transfers of a request. When their data has arrived, the back end offers the
  // request.
  void (*post)(ot_comm_request *request);
  // Copies or adds the data of an offered request. Not under the lock.
  ot_status (*work)(ot_comm_request *request);
  // The work is done: starts the next step, or completes the request.
  void (*worked)(ot_comm_request *request);
  // No work for `request` (null: the progress thread): spins, polls or sleeps for a moment.
  void (*rest)(ot_comm *comm, ot_comm_request *request, ot_comm_pace *pace);
  // True if the contribution of member `index` to the request is missing.
  bool (*is_absent)(const void *request, int index);
  // Null if a back end has nothing to do:
  void (*poll)(ot_comm *comm);     // progresses calls
  void (*recount)(ot_comm *comm);  // the numbers of the rank's threads have changed, see `threads`
  void (*settle)(ot_comm *comm);   // the process has failed. Releases the lock meanwhile. Blocks
} ot_comm_backend;

extern const ot_comm_backend ot_comm_thread, ot_comm_mpi;

// Shared by the communicators of a process: of all ranks with threads, else of one.
typedef struct ot_comm_process {
  pthread_mutex_t lock;            // guards all following fields and the communicators
  ot_comm *ends;                   // list
  bool spins;                      // every rank of this host has a core
  bool stopping;                   // progress threads end
  int ready, running;              // requests in these phases
  _Atomic bool failed;             // all waits return
  _Atomic bool asked;              // see ot_comm_ask
  char why[2048];                  // message of waits
  int failed_rank;                 // first rank whose main failed; -1: none of this process
  ot_failure failure;              // of failed_rank
  const ot_comm_request *overdue;  // the wait that timed out
} ot_comm_process;

// A group as the rank sees it; size 0 if it does not exist.
typedef struct ot_comm_group {
  int size;
  int index;          // of this rank
  int *ranks;         // [size] world ranks; owned by the communicator
  int64_t started;    // collective calls
  int64_t *sent;      // [size] messages to member i
  int64_t *received;  // [size] messages from member i
} ot_comm_group;

// 32-bit words of a failure message between ranks.
enum { OT_AGREEMENT_WORDS = 640 };

// The base of every back end's communicator.
struct ot_comm {
  const ot_comm_backend *backend;
  ot_comm_process *process;
  ot_comm *next;   // communicator of the process
  int rank;        // in the job
  int size;        // of the job
  int first;       // rank in the job of the first one of this rank's world
  int world_size;  // of that world: `size` until it is divided
  int local_size;  // ranks on this host
  int local_rank;  // this rank among them
  char host[128];
  _Atomic double timeout_s;  // timeout; 0: none
  bool agreed;               // all ranks know the failure, by the same message
  int64_t *gathered;         // [size] scratch of agreements
  int32_t *scratch;          // [OT_AGREEMENT_WORDS + size] too
  ot_comm_group groups[OT_GROUP_KINDS];
  _Atomic double sent_bytes[OT_GROUP_KINDS][OT_COMM_KINDS];  // see ot_comm_sent_bytes
  bool shares_device;         // calls with streams read the memory of other ranks
  struct ot_comm_nccl *nccl;  // calls with streams; null: none
  bool has_engine;
  pthread_t engine;         // progress thread, for work that no thread waits for
  pthread_cond_t woken;     // threads of the rank that wait for calls
  pthread_cond_t work;      // the progress thread
  int sleepers;             // threads on `woken`
  ot_comm_request *ready;   // list
  ot_comm_request *waited;  // requests that threads wait for
  int open;                 // requests in flight
  int threads;              // that may start calls: see ot_comm_add_thread
  _Atomic int waiting;      // of these, in a wait
  int declared;             // of these, declared by ot_comm_set_waiting
  double listens_s;         // when ot_comm_is_asked next looks for requests
};

// Initializes the base of a zeroed communicator, with the world group, and adds it to `process`.
// OT_ENVIRONMENT when out of memory; destroy is then still allowed.
ot_status ot_comm_head_create(ot_comm *comm, const ot_comm_backend *backend,
                              ot_comm_process *process, int rank, int size);
void ot_comm_head_destroy(ot_comm *comm);

// ---- progress: all under the lock ----

static inline int ot_comm_phase(const ot_comm_request *request) {
  return __atomic_load_n(&request->phase, __ATOMIC_ACQUIRE);
}

static inline void ot_comm_set_phase(ot_comm_request *request, int phase) {
  __atomic_store_n(&request->phase, phase, __ATOMIC_RELEASE);
}

static inline ot_comm_group *ot_comm_group_of(const ot_comm_request *request) {
  return &request->end->groups[request->call.group];
}

// The call as this member sees it.
static inline ot_comm_member_call ot_comm_member_call_of(const ot_comm_request *request) {
  const ot_comm_group *const group = ot_comm_group_of(request);
  return (ot_comm_member_call){.call = &request->call, .size = group->size, .index = group->index};
}

// Lists of requests, linked by `next`.
void ot_comm_append(ot_comm_request **list, ot_comm_request *request);
// The data of the request is available: any free thread may copy or add it.
void ot_comm_offer(ot_comm_request *request);
// The same, by this thread and now. Releases the lock meanwhile.
void ot_comm_run_work(ot_comm_request *request);
// Returns the request to its owner, who may reuse its buffers at once.
void ot_comm_complete(ot_comm_request *request);
// Wakes the threads of the rank that wait.
void ot_comm_wake(ot_comm *comm);
// Releases the lock: sleeps until woken, or until a time (infinity: no limit).
void ot_comm_sleep(ot_comm *comm, pthread_cond_t *condition, double until_s);
// How long a waiting thread may sleep without missing its deadline.
double ot_comm_next_look(const ot_comm_pace *pace);
// True after the deadline.
bool ot_comm_is_timed_out(ot_comm_pace *pace);

// All waits of the process return OT_RANKS with `why`.
void ot_comm_fail_process(ot_comm_process *process, const char *why);
// The calling thread's failure becomes that of the rank and of the process.
void ot_comm_fail_rank(ot_comm *comm, ot_status status);
// Releases the lock meanwhile: returns when no thread uses buffers of calls.
void ot_comm_settle(ot_comm *comm);

// Starts and stops the progress thread. Not under the lock.
bool ot_comm_start_progress(ot_comm *comm);
void ot_comm_stop_progress(ot_comm_process *process);
// A failure if `main` returned `status` with calls in flight, else `status`.
ot_status ot_comm_check_left(const ot_comm *comm, ot_status status);

// False for statuses that are not failures: done, an audit's findings, stopped by a signal.
bool ot_comm_is_failure(ot_status status);

// ---- calls ----

// Panics unless comm.h allows `call`.
void ot_comm_check_call(const ot_comm *comm, const ot_comm_call *call);
// Copies what member `from` sends to member `to`, the owner of the request, if both are
// addressable. OT_RANKS if their row counts differ.
ot_status ot_comm_deliver(const ot_comm_request *request, const ot_comm_member_call *from,
                          const ot_comm_member_call *to);

// ---- device memory ----

// Queues the reduction on the stream of a GPU.
ot_status ot_comm_queue_sum(ot_stream *stream, const ot_comm_reduction *sum);

// ---- launchers ----

// Runs the rank's main, then releases what its calls with streams have made. Not under the lock.
ot_status ot_comm_run_main(ot_comm *comm, ot_rank_main main, void *context);
// The number of this process given by its launcher; 0 without one.
int ot_comm_launched_rank(void);

// ---- texts ----

// Text in fixed memory; excess is dropped.
typedef struct ot_comm_text {
  char text[2048];
  int64_t length;
} ot_comm_text;

void ot_comm_say(ot_comm_text *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
// "rank 3", "ranks 0-3 7": those of `ranks` [size] (null: 0, 1, ...) for which `is`(context, index)
// (null: all); returns how many.
typedef bool (*ot_comm_rank_filter)(const void *context, int index);
int ot_comm_say_ranks(ot_comm_text *out, const int *ranks, int size, ot_comm_rank_filter is,
                      const void *context);
// "'NAME' (reduce_scatter 5 of group shard, ranks 0-3)".
void ot_comm_say_call(ot_comm_text *out, const ot_comm_request *request);
// "rank 1 waits in 'NAME' (...) for ranks 0 2"; returns how many it waits for.
int ot_comm_say_wait(ot_comm_text *out, const ot_comm_request *request, ot_comm_rank_filter is,
                     const void *context);
// ", which has not arrived in 0.5 s", of `count` ranks.
void ot_comm_say_timeout(ot_comm_text *out, const ot_comm *comm, int count);
// OT_RANKS: "ranks differ in 'NAME' (...): rank 1 sends 3 rows to rank 0, which expects 4".
ot_status ot_comm_fail_row_mismatch(const ot_comm_request *request, int from, int to, int64_t sent,
                                    int64_t expected);
// "all_gather", ...
const char *ot_comm_kind_name(ot_comm_kind kind);
