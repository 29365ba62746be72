// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of one process. All state is guarded by the world's lock; data is moved outside
// it. A call of a group is met in a *slot*, where the requests of the members come together; when
// the last one comes, each member has a *part* to do: all reads and writes that give that member
// its result (for an all_reduce: that give all members one block of it). Parts of a call touch
// disjoint memory, so whoever is free does them: a thread that waits for the call, or the engine, a
// thread of each rank that sleeps while there is nothing to do. Private to comm/.
#pragma once

#include <assert.h>
#include <pthread.h>

#include "base/failure.h"
#include "comm/comm_parts.h"

enum {
  OT_THREAD_SLOTS = 64,         // calls of a group that can be under way; later ones queue
  OT_THREAD_SMALL = 32 * 1024,  // bytes up to which the last to come does all parts at once
};

// What a member's request is at; only forward.
enum {
  OT_PART_STARTED,   // others have not come
  OT_PART_READY,     // to be done by whoever is free; in the ready list of its rank
  OT_PART_RUNNING,   // being done
  OT_PART_FINISHED,  // done, but others still read or write memory of the call
  OT_PART_DONE,      // the request is its owner's again
};

typedef struct ot_thread_world ot_thread_world;
typedef struct ot_thread_end ot_thread_end;

typedef struct ot_thread_slot {
  int64_t sequence;            // of the call it is for
  int arrived;                 // members that came
  int finished;                // parts that are done
  int64_t bytes;               // that the parts of those that came touch
  ot_comm_request **requests;  // [size] null until it came
  const void **sends;          // [size]
  void **receives;             // [size]
} ot_thread_slot;

typedef struct ot_thread_member {
  int64_t started;            // collective calls
  ot_comm_request *backlog;   // started, their slot still taken; in order
  ot_comm_request *sends;     // to this member, without their receive; in order
  ot_comm_request *receives;  // of this member, without their send; in order
} ot_thread_member;

typedef struct ot_thread_group {
  ot_group_kind kind;
  int size;
  int *ranks;                 // [size]
  ot_thread_member *members;  // [size]
  int64_t *sent;              // [size * size] sends from i to j
  int64_t *received;          // [size * size] receives at j from i
  ot_thread_slot slots[OT_THREAD_SLOTS];
  struct ot_thread_group *next;
} ot_thread_group;

// The private words of a request.
typedef struct __attribute__((may_alias)) ot_thread_part {
  ot_thread_end *end;        // whose it is
  ot_thread_group *group;    //
  ot_thread_slot *slot;      // of a collective call, when it has one
  ot_comm_request *partner;  // of a send or receive, when it came
  ot_comm_request *next_waited;
  int64_t bytes;  // that it touches, of a collective call
  int index;      // of the rank in the group
  bool waited;    // a thread waits for it and counts as waiting
} ot_thread_part;
static_assert(sizeof(ot_thread_part) <= sizeof((ot_comm_request){0}.private_words), "must fit");

struct ot_thread_end {
  ot_comm comm;
  ot_thread_world *world;
  ot_thread_group *groups[OT_GROUP_KINDS];
  ot_rank_main main;
  void *context;
  pthread_t thread, engine;
  pthread_cond_t woken;     // threads of the rank that wait for calls
  pthread_cond_t work;      // the engine
  int sleepers;             // threads on `woken`
  ot_comm_request *ready;   // parts to be done, in order
  ot_comm_request *waited;  // requests that threads wait for
  int threads;              // registered
  int waiting;              // of them, in a wait or by ot_comm_set_waiting
  int open;                 // requests that are not done
  bool stuck;               // all threads wait, or finished
  bool finished;            // main has returned
  ot_status status;         // what main returned
};

struct ot_thread_world {
  pthread_mutex_t lock;
  int ranks;
  ot_thread_end *ends;      // [ranks]
  ot_thread_group *groups;  // all
  bool spins;               // there are cores for everyone
  bool stopping;            // engines end
  int gate;                 // 0: rank threads hold back; 1: go; -1: not all could be made
  int ready, running;       // parts
  int declared;             // threads that wait by ot_comm_set_waiting
  int stuck;                // ranks that cannot go on by themselves
  double stuck_since_s;     // when the last rank got stuck; restarted by every event
  _Atomic bool failed;      // all waits end
  int failed_rank;          // whose main failed first; -1: nobody's did
  ot_failure failure;       // of failed_rank
  char why[2048];           // what waits say
};

static inline ot_thread_part *ot_thread_part_of(ot_comm_request *request) {
  return (ot_thread_part *)request->private_words;
}

static inline int ot_thread_phase(const ot_comm_request *request) {
  return __atomic_load_n(&request->phase, __ATOMIC_ACQUIRE);
}

// ---- comm_thread_call.c: how calls meet and are carried out ----

void ot_thread_start(ot_comm *comm, ot_comm_request *request);
bool ot_thread_done(ot_comm *comm, ot_comm_request *request);
// Under the lock: a part that brings `request` on and that nobody has taken, now RUNNING; or null.
ot_comm_request *ot_thread_take(ot_comm_request *request);
// Under the lock, which is let go meanwhile: does a part that is RUNNING.
void ot_thread_run_part(ot_thread_world *world, ot_comm_request *part);
// The thread that does the parts of a rank that nobody waits for.
void *ot_thread_engine(void *end);
// True when member `index` of the group has not come to the call of `request`.
bool ot_thread_is_absent(const void *request, int index);

// ---- comm_thread_wait.c: who waits, and when that has no end ----

ot_status ot_thread_wait(ot_comm *comm, ot_comm_request *request);
void ot_thread_set_waiting(ot_comm *comm, bool waits);
void ot_thread_add_thread(ot_comm *comm, bool more);
// Under the lock: the counts of the rank's threads have changed.
void ot_thread_update_stuck(ot_thread_end *end);
// Under the lock: nobody waits for `request` any more.
void ot_thread_forget_waited(ot_comm_request *request);
// Under the lock: all waits end with OT_RANKS and `why`.
void ot_thread_fail_world(ot_thread_world *world, const char *why);
// Under the lock: returns when no thread touches memory of calls any more; the world has failed.
void ot_thread_settle(ot_thread_end *end);
// Wakes the threads of the rank that wait.
void ot_thread_wake(ot_thread_end *end);
