// SPDX-License-Identifier: Apache-2.0
// This process starts ranks as threads; the processes of a launcher connect through MPI.
#include "cli/ranks.h"

#include <poll.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/output.h"
#include "cli/output_queue.h"
#include "host/clock.h"

static ot_status check_ranks_option(const ot_options *options, int ranks) {
  const int asked = (int)ot_options_integer(options, "ranks");
  if (!ot_options_given(options, "ranks") || asked == ranks) return OT_OK;
  ot_fail(OT_RANKS, "the launcher started %d process%s, and --ranks says %d", ranks,
          ot_text_plural(ranks, "es"), asked);
  return ot_fail_hint(OT_RANKS, "leave --ranks out under mpirun and srun");
}

ot_status ot_ranks_count(const ot_options *options, int *ranks, bool *processes) {
  *processes = false;
  if (!ot_comm_launched(ranks)) {
    *ranks = (int)ot_options_integer(options, "ranks");
    return OT_OK;
  }
  *processes = *ranks > 1;
  // Several processes check --ranks later, when they can agree on one message.
  if (!*processes) return check_ranks_option(options, 1);
  if (ot_comm_has_mpi()) return OT_OK;
  ot_fail(OT_RANKS, "the launcher started %d processes, but this program was built without MPI",
          *ranks);
  return ot_fail_hint(OT_RANKS, "build it with MPI installed, or use --ranks without a launcher");
}

typedef struct process {
  const ot_options *options;
  const ot_ranks_verb *verb;
} process;

// One process of a launcher.
static ot_status run_process(ot_comm *comm, void *context) {
  const process *const p = context;
  const int ranks = ot_comm_size(comm);
  ot_status status = check_ranks_option(p->options, ranks);
  if (status == OT_OK) status = p->verb->prepare(p->verb->context, ranks);
  OT_TRY(ot_comm_agree(comm, status));
  return p->verb->run(comm, p->verb->context);
}

// Ranks that are threads of this process.
typedef struct threads {
  const ot_ranks_verb *verb;
  _Atomic int inside;  // ranks that have not ended
} threads;

// A thread that hangs can neither be joined nor ended: after a failure the process ends without it.
static void leave_behind(const threads *t, ot_status status) {
  static const double patience_s = 1;
  const double until_s = ot_clock_s() + patience_s;
  while (t->inside > 0 && ot_clock_s() < until_s) usleep(10000);
  if (t->inside == 0) return;
  ot_output_failure(status);
  ot_output_queue_exit(status);
}

static ot_status run_thread(ot_comm *comm, void *context) {
  threads *const t = context;
  const ot_status status = t->verb->run(comm, t->verb->context);
  t->inside--;
  if (status == OT_OK || status == OT_FINDINGS || status == OT_STOPPED) return status;
  if (ot_comm_size(comm) == 1) return status;
  ot_comm_fail(comm, status);
  leave_behind(t, status);
  return status;
}

ot_status ot_ranks_run(const ot_options *options, const ot_ranks_verb *verb) {
  int ranks;
  bool processes;
  process p = {options, verb};
  ot_output_queue_begin();
  OT_TRY(ot_ranks_count(options, &ranks, &processes));
  if (processes) return ot_comm_run_mpi(run_process, &p);
  OT_TRY(verb->prepare(verb->context, ranks));
  threads t = {.verb = verb, .inside = ranks};
  return ot_comm_run_threads(ranks, run_thread, &t);
}

void ot_ranks_end_at_hang(void) {
  static atomic_flag ends = ATOMIC_FLAG_INIT;
  while (atomic_flag_test_and_set(&ends)) pause();  // another rank of the process ends it
  ot_output_failure(OT_RANKS);
  ot_output_queue_exit(OT_RANKS);
}

void ot_ranks_end_at_start(void) {
  static const char text[] =
      "stopped by a signal before the first step; nothing was changed: run the same command "
      "again\n";
  int launched = 0;
  // Each process of a launcher would print it.
  struct pollfd reader = {.fd = STDERR_FILENO, .events = POLLOUT};
  if ((!ot_comm_launched(&launched) || launched == 1) && poll(&reader, 1, 0) == 1) {
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
  }
  _exit(OT_STOPPED);
}
