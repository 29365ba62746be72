// SPDX-License-Identifier: Apache-2.0
// run: alone (a world of one process), or by test_comm_mpi.sh under an MPI launcher. Ranks as
// processes: the conformance suite, and with an argument one way to fail.
//   test_comm_ranks [fails|fails_in_call|late|all_late|killed|agrees|aborts|differs|stops]
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

// The last rank computes for long; the patience of the others ends at the same time.
static ot_status late(ot_comm *comm, void *context) {
  (void)context;
  ot_comm_set_patience(comm, 0.5);
  OT_TRY(barrier(comm, "together"));
  if (ot_comm_rank(comm) == ot_comm_size(comm) - 1) rest(60.0);
  return barrier(comm, "patient");
}

// Every rank waits for a message that nobody sends.
static ot_status all_late(ot_comm *comm, void *context) {
  (void)context;
  float memory[4];
  ot_comm_set_patience(comm, 0.5);
  OT_TRY(barrier(comm, "together"));
  const int size = ot_comm_size(comm), rank = ot_comm_rank(comm);
  return ot_comm_run(comm, &(ot_comm_call){.kind = OT_COMM_RECEIVE,
                                           .peer = (rank + 1) % size,
                                           .receive = memory,
                                           .count = 4,
                                           .name = "circle"});
}

// As above, with a call under way whose memory is given back before main returns.
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

static ot_status aborts(ot_comm *comm, void *context) {
  (void)context;
  OT_TRY(barrier(comm, "together"));
  if (ot_comm_rank(comm) == 0) ot_comm_abort(comm, OT_NUMERIC);
  return barrier(comm, "alone");
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
             {"late", late},
             {"all_late", all_late},
             {"killed", killed},
             {"agrees", agrees},
             {"aborts", aborts},
             {"differs", differs},
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
