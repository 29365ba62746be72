// SPDX-License-Identifier: Apache-2.0
// Ranks as processes of an MPI job. Only MPI-3.1 point-to-point calls carry data: every collective
// is an exchange of one message with each member (an all_reduce of two), after which reductions add
// what came, in rank order, from the workspace. So the sums are those of threads, and a receive
// that is not complete says which rank has not come.
//
// MPI is called by one thread at a time, the one that *leads*: a thread that waits (the poller), or
// else the engine, a thread that sleeps while nothing is under way. Who starts a call queues it for
// the leader, or posts it itself when nobody leads. Private to comm/.
#pragma once

#include <assert.h>
#include <mpi.h>
#include <pthread.h>

#include "comm/comm_parts.h"

enum {
  OT_MPI_SLOTS = 32,               // collective calls of a group under way; later ones are held
  OT_MPI_STAGE = 32 * 1024,        // bytes of a slot for all_reduces in one exchange
  OT_MPI_SMALL_SUM = 64 * 1024,    // bytes up to which the leader adds at once
  OT_MPI_LARGEST_PIECE = 1 << 30,  // bytes; larger messages are of a type made of such pieces
};

// What a request is at.
enum {
  OT_MPI_QUEUED,     // for its next exchange
  OT_MPI_EXCHANGES,  // messages under way
  OT_MPI_CAME,       // what came is to be added
  OT_MPI_ADDS,       // being added
  OT_MPI_DONE,       // the request is its owner's again
};

typedef struct ot_mpi_slot {
  ot_comm_request *request;
  MPI_Request *pending;  // [2 * size] receive from member i; send to member i
  int64_t *bytes;        // [size] expected from member i
  const void **sources;  // [size] of the sum
  unsigned char *stage;  // [OT_MPI_STAGE]
  struct ot_mpi_slot *next;
} ot_mpi_slot;

typedef struct ot_mpi_group {
  MPI_Comm calls, messages;
  int size, index;
  int64_t started;    // collective calls
  int64_t *sent;      // [size] messages to member i
  int64_t *received;  // [size] messages from member i
  ot_mpi_slot slots[OT_MPI_SLOTS];
  ot_mpi_slot *unused;    // list
  ot_comm_request *held;  // without a slot, in order; the leader's
} ot_mpi_group;

// The private words of a request.
typedef struct __attribute__((may_alias)) ot_mpi_part {
  ot_mpi_group *group;
  ot_mpi_slot *slot;    // of a collective call
  MPI_Request message;  // of a send or receive
  int step;             // exchanges that are complete
  bool waited;
} ot_mpi_part;
static_assert(sizeof(ot_mpi_part) <= sizeof((ot_comm_request){0}.private_words), "must fit");

typedef struct ot_mpi_end {
  ot_comm comm;
  ot_mpi_group *groups[OT_GROUP_KINDS];
  pthread_t engine;
  pthread_mutex_t lock;            // guards all that is not the leader's
  pthread_cond_t changed;          // threads that wait
  pthread_cond_t work;             // the engine
  bool spins;                      // there are cores for everyone on this machine
  double crowded_until_s;          // other processes keep cores busy: no thread yields to them
  bool stopping;                   // the engine ends
  bool led;                        // a thread calls MPI
  bool polled;                     // a waiting thread leads whenever it is useful
  int under_way;                   // calls
  ot_comm_request *queue;          // to be posted, in order
  _Atomic int queued;              // how many
  ot_comm_request *came;           // to be added
  _Atomic bool failed;             // all waits end
  _Atomic int waiting;             // threads that wait, or waited when all failed
  const ot_comm_request *overdue;  // whose wait ran out of patience
  bool muted;                      // another rank tells the user of the failure
  bool settling, settled;          // see ot_mpi_settle
  bool broken;                     // MPI itself failed: perhaps a process is dead
  char why[2048];                  // what waits say
  // The leader's.
  ot_mpi_slot *active;        // list
  ot_comm_request *messages;  // sends and receives under way
  int held;                   // requests without a slot, over all groups
  int *indices;               // [2 * size] scratch
  MPI_Status *statuses;       // [2 * size]
  MPI_Comm control;           // for news
  MPI_Request news;           // a receive from any rank
  int32_t news_in;            // see comm_mpi_failure.c
  int32_t failure, waits;     // sent by this rank
  bool *answered;             // [size] ranks that are known to have failed, or to wait
} ot_mpi_end;

static inline ot_mpi_part *ot_mpi_part_of(ot_comm_request *request) {
  return (ot_mpi_part *)request->private_words;
}

static inline int ot_mpi_phase(const ot_comm_request *request) {
  return __atomic_load_n(&request->phase, __ATOMIC_ACQUIRE);
}

static inline void ot_mpi_set_phase(ot_comm_request *request, int phase) {
  __atomic_store_n(&request->phase, phase, __ATOMIC_RELEASE);
}

// comm_mpi.c: see ot_comm_run_mpi.
ot_status ot_comm_mpi_run(ot_rank_main main, void *context);
// The text of MPI's error `code`, as a failure.
ot_status ot_mpi_fail(int code, const char *call);
#define OT_TRY_MPI(call)                                                      \
  do {                                                                        \
    const int ot_try_code_ = (call);                                          \
    if (ot_try_code_ != MPI_SUCCESS) return ot_mpi_fail(ot_try_code_, #call); \
  } while (0)

// ---- comm_mpi_message.c: one message. By the leader ----

// To or from member `peer` of `comm`: `bytes` bytes of `send` or `receive`.
typedef struct ot_mpi_message {
  const void *send;
  void *receive;
  int64_t bytes;
  const int32_t *run;  // [runs][2] first row and number of rows: where these bytes lie
  int runs;            // 0: in one piece
  int64_t row_bytes;
  int peer, tag;
  MPI_Comm comm;
} ot_mpi_message;

ot_status ot_mpi_post_message(const ot_mpi_message *m, bool sends, MPI_Request *request);

// ---- comm_mpi_exchange.c: what is sent where. By the leader ----

// Posts the next exchange of `request`, which has a slot when it is collective.
ot_status ot_mpi_post(const ot_mpi_end *end, ot_comm_request *request);
// Asks MPI what has come of the request's exchange; `all` is set when everything has.
ot_status ot_mpi_test(ot_mpi_end *end, ot_comm_request *request, bool *all);
// True when the request's data must be added after the exchange that has come.
bool ot_mpi_must_add(ot_comm_request *request);
// Adds it. By any thread. Returns true when a second exchange has to follow.
bool ot_mpi_add(ot_comm_request *request);
// True when the message from or to member `index` is not complete.
bool ot_mpi_is_absent(const void *request, int index);

// ---- comm_mpi_progress.c: who leads, and who waits ----

void ot_mpi_start(ot_comm *comm, ot_comm_request *request);
bool ot_mpi_done(ot_comm *comm, ot_comm_request *request);
ot_status ot_mpi_wait(ot_comm *comm, ot_comm_request *request);
void *ot_mpi_engine(void *end);
// Makes the calling thread the leader, and lets go of that. For calls that block.
void ot_mpi_lead(ot_mpi_end *end);
void ot_mpi_let_go(ot_mpi_end *end);
// All waits end with OT_RANKS and `why`.
void ot_mpi_fail_all(ot_mpi_end *end, const char *why);

// ---- comm_mpi_failure.c: what a rank does that has failed ----

// Takes what other ranks have said, and answers. `*failed` becomes the lowest rank that says that
// it has failed, where that is lower.
ot_status ot_mpi_hear(ot_mpi_end *end, int *failed);
// The world has failed: finds out which rank is to tell the user. MPI is not called any more when
// this returns, so memory of calls may be given back. Blocks, for a fraction of a second.
void ot_mpi_settle(ot_mpi_end *end);
// The backend's fail and abort.
void ot_mpi_fail_rank(ot_comm *comm, ot_status status);
void ot_mpi_abort(ot_comm *comm, ot_status status);
// This rank's main has failed otherwise than by agreement. Returns `status`, with a message on the
// rank that tells the user and without on others, and makes the process end the job when it exits.
ot_status ot_mpi_end_failed(ot_mpi_end *end, ot_status status);
// Sleeps.
void ot_mpi_nap(double seconds);
