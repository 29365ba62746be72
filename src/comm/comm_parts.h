// SPDX-License-Identifier: Apache-2.0
// What back ends of comm.h are made of: the head of an end, what ends of one process share, and how
// a request gets from start to done. A back end says how the members of a call meet (messages, or
// shared memory); waiting, work on data by whichever thread is free, failing and timeouts are
// common (comm_progress.c). Private to comm/.
#pragma once

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>

#include "base/failure.h"
#include "comm/comm_exchange.h"

// ---- what a request is at; only forward, but for the steps of a call ----

enum {
  OT_COMM_STARTED,   // transfers are under way, or other members have not come
  OT_COMM_READY,     // data is to be copied or added by any free thread: in its end's `ready`
  OT_COMM_RUNNING,   // being copied or added
  OT_COMM_FINISHED,  // done, but others still read or write memory of the call
  OT_COMM_DONE,      // the request is its owner's again
};

// A thread that waits, or an engine, at its work.
typedef struct ot_comm_pace {
  double deadline_s;  // when the wait gives up; infinity: never
  double seen_s;      // when it was last seen to run: time of a stopped process does not count
  bool spun;          // since something has moved
  double idle_since_s, nap_s;  // a back end's that polls
} ot_comm_pace;

// What a back end does. Under the lock of the process, where nothing else is said. Arguments have
// been checked; see comm.h for the contracts.
typedef struct ot_comm_backend {
  // Makes the end or ends of this process and runs `main` on each. `ranks`: see
  // ot_comm_run_threads. Not under the lock.
  ot_status (*run)(int ranks, ot_rank_main main, void *context);
  // The head has the group. Not under the lock.
  ot_status (*add_group)(ot_comm *comm, ot_group_kind kind);
  // Begins the transfers of a request. When their data is there, the back end offers the request.
  void (*post)(ot_comm_request *request);
  // Copies or adds the data of an offered request. Not under the lock.
  ot_status (*work)(ot_comm_request *request);
  // That is done: goes on to the next step, or completes the request.
  void (*worked)(ot_comm_request *request);
  // Nothing is to be done for `request` (null: by the engine): spins, polls or sleeps for a moment.
  void (*rest)(ot_comm *comm, ot_comm_request *request, ot_comm_pace *pace);
  // True when what member `index` has to do for the request is missing.
  bool (*is_absent)(const void *request, int index);
  // Null where a back end has nothing to do:
  void (*poll)(ot_comm *comm);     // moves what can be moved
  void (*recount)(ot_comm *comm);  // the numbers of the rank's threads have changed, see `threads`
  void (*settle)(ot_comm *comm);   // the process has failed. Lets go of the lock meanwhile. Blocks
  void (*abort)(ot_status status);
} ot_comm_backend;

extern const ot_comm_backend ot_comm_thread, ot_comm_mpi;

// What the ends of a process share: those of all ranks where these are threads, else it has one.
typedef struct ot_comm_process {
  pthread_mutex_t lock;            // guards all that follows, and the ends
  ot_comm *ends;                   // list
  bool spins;                      // there are cores for all ranks of this machine
  bool stopping;                   // engines end
  int ready, running;              // requests in these phases
  _Atomic bool failed;             // all waits end
  char why[2048];                  // what waits say
  int failed_rank;                 // whose main failed first; -1: none of this process
  ot_failure failure;              // of failed_rank
  const ot_comm_request *overdue;  // whose wait timed out
} ot_comm_process;

// A group as the rank sees it; size 0 where there is none.
typedef struct ot_comm_group {
  int size;
  int index;          // of this rank
  int *ranks;         // [size] of the world; owned by the end
  int64_t started;    // collective calls
  int64_t *sent;      // [size] messages to member i
  int64_t *received;  // [size] messages from member i
} ot_comm_group;

// 32-bit words in which a rank tells the others of its failure.
enum { OT_AGREEMENT_WORDS = 640 };

// The head of every back end's end of a world.
struct ot_comm {
  const ot_comm_backend *backend;
  ot_comm_process *process;
  ot_comm *next;  // end of the process
  int rank;
  int size;
  int local_size;  // ranks on this machine
  char host[128];
  _Atomic double patience_s;  // 0: without end
  bool agreed;                // on a failure that all ranks know, by the same message
  int64_t *gathered;          // [size] scratch of agreements
  int32_t *scratch;           // [OT_AGREEMENT_WORDS + size] too
  ot_comm_group groups[OT_GROUP_KINDS];
  _Atomic double sent_bytes[OT_GROUP_KINDS][OT_COMM_KINDS];  // see ot_comm_sent_bytes
  bool has_engine;
  pthread_t engine;         // the thread for work that no thread waits for
  pthread_cond_t woken;     // threads of the rank that wait for calls
  pthread_cond_t work;      // the engine
  int sleepers;             // threads on `woken`
  ot_comm_request *ready;   // list
  ot_comm_request *waited;  // requests that threads wait for
  int open;                 // requests that are not done
  int threads;              // that may start calls: see ot_comm_add_thread
  _Atomic int waiting;      // of them, in a wait
  int declared;             // of them, by ot_comm_set_waiting
};

// Fills the head of a zeroed end, with the world group, and puts it into `process`.
// OT_ENVIRONMENT when out of memory; then it is fit for destroy, too.
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
static inline ot_comm_exchange ot_comm_exchange_of(const ot_comm_request *request) {
  const ot_comm_group *const group = ot_comm_group_of(request);
  return (ot_comm_exchange){.call = &request->call, .size = group->size, .index = group->index};
}

// Lists of requests, linked by `next`.
void ot_comm_append(ot_comm_request **list, ot_comm_request *request);
// The data of the request is there: any free thread may copy or add it.
void ot_comm_offer(ot_comm_request *request);
// The same, by this thread and now. Lets go of the lock meanwhile.
void ot_comm_run_work(ot_comm_request *request);
// Gives the request back to its owner, who may use its memory for other things at once.
void ot_comm_complete(ot_comm_request *request);
// Wakes the threads of the rank that wait.
void ot_comm_wake(ot_comm *comm);
// Lets go of the lock meanwhile: sleeps until woken, or until a time (infinity: without end).
void ot_comm_sleep(ot_comm *comm, pthread_cond_t *condition, double until_s);
// Until when a waiting thread may sleep to see its deadline in time.
double ot_comm_next_look(const ot_comm_pace *pace);
// True when the deadline is over.
bool ot_comm_is_over(ot_comm_pace *pace);

// All waits of the process end with OT_RANKS and `why`.
void ot_comm_fail_process(ot_comm_process *process, const char *why);
// The calling thread's failure is that of the rank, and of the process.
void ot_comm_fail_rank(ot_comm *comm, ot_status status);
// Lets go of the lock meanwhile: returns when no thread touches memory of calls any more.
void ot_comm_settle(ot_comm *comm);

// The engine's life. Not under the lock.
bool ot_comm_start_engine(ot_comm *comm);
void ot_comm_stop_engines(ot_comm_process *process);
// The failure of a main that returned `status` and left calls under way, else `status`.
ot_status ot_comm_check_left(const ot_comm *comm, ot_status status);

// False for what is not a failure of a rank: done, an audit's findings, stopped by a signal.
bool ot_comm_is_failure(ot_status status);

// ---- calls ----

// Panics unless `call` is one that comm.h allows.
void ot_comm_check_call(const ot_comm *comm, const ot_comm_call *call);
// Copies what member `from` sends to member `to`, whose request it is, when both are in reach.
// OT_RANKS when they mean different numbers of rows.
ot_status ot_comm_deliver(const ot_comm_request *request, const ot_comm_exchange *from,
                          const ot_comm_exchange *to);

// ---- launchers ----

// The number of this process as its launcher counts; 0 when there is none.
int ot_comm_launched_rank(void);

// ---- texts ----

// Text in fixed memory; what does not fit is dropped.
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
// ", which has not come in 0.5 s", of `count` ranks.
void ot_comm_say_late(ot_comm_text *out, const ot_comm *comm, int count);
// OT_RANKS: "ranks differ in 'NAME' (...): rank 1 sends 3 rows to rank 0, which expects 4".
ot_status ot_comm_fail_uneven(const ot_comm_request *request, int from, int to, int64_t sent,
                              int64_t expected);
// "all_gather", ...
const char *ot_comm_kind_name(ot_comm_kind kind);
