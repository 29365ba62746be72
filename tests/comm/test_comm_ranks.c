// SPDX-License-Identifier: Apache-2.0
// run: alone (a world of one process), or by test_comm_mpi.sh under an MPI launcher. Ranks as
// processes: the conformance suite; with an argument, one failure mode.
//   test_comm_ranks [fails|fails_in_call|fails_in_exchange|late|all_late|late_beside|late_behind|
//                    late_in_exchange|killed|killed_in_exchange|agrees|differs|fewer_rows|
//                    more_rows|no_rows|unexpected_rows|own_rows|stops]
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "support/comm_suite.h"

enum { SKIPPED = 77 };

static ot_status barrier(ot_comm *comm, const char *name) {
  return ot_comm_run(comm, &(ot_comm_call){.kind = OT_COMM_BARRIER, .name = name});
}

static void rest(double seconds) {
  const struct timespec time = {.tv_sec = (time_t)seconds,
                                .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
  nanosleep(&time, NULL);
}

// The last rank fails while the others wait for it.
static ot_status fails(ot_comm *comm, void *context) {
  (void)context;
  OT_TRY(barrier(comm, "together"));
  if (ot_comm_rank(comm) == ot_comm_size(comm) - 1) {
    return ot_fail(OT_ENVIRONMENT, "cannot read the shard");
  }
  return barrier(comm, "alone");
}

// The last rank computes for long; the timeouts of the others expire at the same time.
static ot_status late(ot_comm *comm, void *context) {
  (void)context;
  ot_comm_set_timeout(comm, 0.5);
  OT_TRY(barrier(comm, "together"));
  if (ot_comm_rank(comm) == ot_comm_size(comm) - 1) rest(60.0);
  return barrier(comm, "patient");
}

static ot_status receive(ot_comm *comm, int peer, const char *name) {
  float memory[4];
  return ot_comm_run(
      comm,
      &(ot_comm_call){
          .kind = OT_COMM_RECEIVE, .peer = peer, .receive = memory, .count = 4, .name = name});
}

// Every rank waits for a message that no rank sends.
static ot_status all_late(ot_comm *comm, void *context) {
  (void)context;
  ot_comm_set_timeout(comm, 0.5);
  OT_TRY(barrier(comm, "together"));
  return receive(comm, (ot_comm_rank(comm) + 1) % ot_comm_size(comm), "circle");
}

// Rank 2 computes for long; rank 1 waits for it and therefore reaches no barrier.
static ot_status late_beside(ot_comm *comm, void *context) {
  (void)context;
  ot_comm_set_timeout(comm, ot_comm_rank(comm) == 1 ? 30.0 : 0.5);
  OT_TRY(barrier(comm, "together"));
  if (ot_comm_rank(comm) == 2) rest(60.0);
  if (ot_comm_rank(comm) == 1) OT_TRY(receive(comm, 2, "message"));
  return barrier(comm, "patient");
}

// Rank 0 waits for rank 1, which waits for rank 2.
static ot_status late_behind(ot_comm *comm, void *context) {
  (void)context;
  ot_comm_set_timeout(comm, ot_comm_rank(comm) == 1 ? 30.0 : 0.5);
  OT_TRY(barrier(comm, "together"));
  if (ot_comm_rank(comm) == 2) rest(60.0);
  return receive(comm, ot_comm_rank(comm) + 1, "chain");
}

// With a call in progress whose memory is freed before main returns.
static ot_status fails_in_call(ot_comm *comm, void *context) {
  (void)context;
  enum { COUNT = 1 << 20 };
  float *const memory = calloc((size_t)COUNT * 9, sizeof *memory);
  ot_comm_request request;
  OT_TRY(barrier(comm, "together"));
  const ot_comm_call call = {.kind = OT_COMM_ALL_GATHER,
                             .send = memory,
                             .count = COUNT,
                             .receive = memory + COUNT,
                             .name = "under way"};
  ot_comm_start(comm, &call, &request);
  ot_status status = OT_OK;
  if (ot_comm_rank(comm) == ot_comm_size(comm) - 1) {
    status = ot_fail(OT_ENVIRONMENT, "cannot read the shard");
    ot_comm_fail(comm, status);
    free(memory);
    return status;
  }
  status = ot_comm_wait(comm, &request);
  if (status == OT_OK) status = barrier(comm, "alone");
  free(memory);
  return status;
}

// Rows of COUNT elements for every rank; the last rank does `last` instead of waiting.
typedef ot_status (*last_act)(ot_comm *comm);

static ot_status exchange(ot_comm *comm, float *memory, last_act last) {
  enum { COUNT = 1 << 18, MOST = 8 };
  int32_t run[MOST][2];
  for (int i = 0; i < MOST; i++) run[i][0] = i, run[i][1] = 1;
  const ot_comm_call call = {.kind = OT_COMM_ALL_TO_ALL_V,
                             .send = memory,
                             .receive = memory + COUNT * MOST,
                             .count = COUNT,
                             .sends = {1, run[0], MOST},
                             .receives = {1, run[0], MOST},
                             .name = "rows"};
  ot_comm_request request;
  OT_TRY(barrier(comm, "together"));
  if (ot_comm_rank(comm) == ot_comm_size(comm) - 1) OT_TRY(last(comm));
  ot_comm_start(comm, &call, &request);
  OT_TRY(ot_comm_wait(comm, &request));
  return barrier(comm, "alone");
}

static ot_status exchange_with(ot_comm *comm, last_act last) {
  float *const memory = calloc((size_t)1 << 22, sizeof *memory);
  const ot_status status = exchange(comm, memory, last);
  free(memory);
  return status;
}

static ot_status fail_now(ot_comm *comm) {
  const ot_status status = ot_fail(OT_ENVIRONMENT, "cannot read the shard");
  ot_comm_fail(comm, status);
  return status;
}

static ot_status fails_in_exchange(ot_comm *comm, void *context) {
  (void)context;
  return exchange_with(comm, fail_now);
}

static ot_status rest_long(ot_comm *comm) {
  (void)comm;
  rest(60.0);
  return OT_OK;
}

static ot_status late_in_exchange(ot_comm *comm, void *context) {
  (void)context;
  ot_comm_set_timeout(comm, 0.5);
  return exchange_with(comm, rest_long);
}

static ot_status kill_now(ot_comm *comm) {
  (void)comm;
  raise(SIGKILL);
  return OT_OK;
}

static ot_status killed_in_exchange(ot_comm *comm, void *context) {
  (void)context;
  return exchange_with(comm, kill_now);
}

static ot_status killed(ot_comm *comm, void *context) {
  (void)context;
  OT_TRY(barrier(comm, "together"));
  if (ot_comm_rank(comm) == ot_comm_size(comm) - 1) raise(SIGKILL);
  return barrier(comm, "alone");
}

static ot_status agrees(ot_comm *comm, void *context) {
  (void)context;
  const bool last = ot_comm_rank(comm) == ot_comm_size(comm) - 1;
  return ot_comm_agree(comm, last ? ot_fail(OT_NUMERIC, "the loss is not a number") : OT_OK);
}

static ot_status differs(ot_comm *comm, void *context) {
  (void)context;
  float memory[64] = {0}, all[512];
  const int count = ot_comm_rank(comm) == 0 ? 3 : 4;
  return ot_comm_run(comm, &(ot_comm_call){.kind = OT_COMM_ALL_GATHER,
                                           .send = memory,
                                           .receive = all,
                                           .count = count,
                                           .name = "uneven"});
}

static ot_status fewer_rows(ot_comm *comm, void *context) {
  (void)context;
  return comm_uneven_exchange(comm, &(comm_row_mismatch){1, 0, 3, 5, 5, 3});
}

static ot_status more_rows(ot_comm *comm, void *context) {
  (void)context;
  return comm_uneven_exchange(comm, &(comm_row_mismatch){0, 2, 5, 4, 5, 100000});
}

static ot_status no_rows(ot_comm *comm, void *context) {
  (void)context;
  return comm_uneven_exchange(comm, &(comm_row_mismatch){2, 1, 0, 1, 2, 1});
}

static ot_status unexpected_rows(ot_comm *comm, void *context) {
  (void)context;
  return comm_uneven_exchange(comm, &(comm_row_mismatch){2, 1, 1, 0, 2, 1});
}

static ot_status own_rows(ot_comm *comm, void *context) {
  (void)context;
  return comm_uneven_exchange(comm, &(comm_row_mismatch){1, 1, 1, 2, 2, 1});
}

static ot_status stops(ot_comm *comm, void *context) {
  (void)context;
  OT_TRY(barrier(comm, "together"));
  return ot_fail(OT_STOPPED, "stopped by a signal");
}

static const struct {
  const char *name;
  ot_rank_main main;
} mains[] = {{"suite", comm_suite_main},
             {"fails", fails},
             {"fails_in_call", fails_in_call},
             {"fails_in_exchange", fails_in_exchange},
             {"late", late},
             {"all_late", all_late},
             {"late_beside", late_beside},
             {"late_behind", late_behind},
             {"late_in_exchange", late_in_exchange},
             {"killed", killed},
             {"killed_in_exchange", killed_in_exchange},
             {"agrees", agrees},
             {"differs", differs},
             {"fewer_rows", fewer_rows},
             {"more_rows", more_rows},
             {"no_rows", no_rows},
             {"unexpected_rows", unexpected_rows},
             {"own_rows", own_rows},
             {"stops", stops}};

int main(int count, char **arguments) {
  if (!ot_comm_has_mpi()) return SKIPPED;
  const char *const name = count > 1 ? arguments[1] : "suite";
  for (int i = 0; i < OT_COUNT(mains); i++) {
    if (strcmp(mains[i].name, name) != 0) continue;
    const ot_status status = ot_comm_run_mpi(mains[i].main, NULL);
    if (status != OT_OK && ot_fail_message()[0]) fprintf(stderr, "error: %s\n", ot_fail_message());
    return status;
  }
  return OT_USAGE;
}
