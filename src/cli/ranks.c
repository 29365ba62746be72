// SPDX-License-Identifier: Apache-2.0
// Threads are started by this process; the processes of a launcher find each other through MPI.
#include "cli/ranks.h"

ot_status ot_ranks_count(const ot_options *options, int *ranks, bool *processes) {
  const int asked = (int)ot_options_integer(options, "ranks");
  *processes = false;
  if (!ot_comm_launched(ranks)) {
    *ranks = asked;
    return OT_OK;
  }
  *processes = *ranks > 1;
  if (ot_options_given(options, "ranks") && asked != *ranks) {
    ot_fail(OT_RANKS, "the launcher started %d processes, and --ranks says %d", *ranks, asked);
    return ot_fail_hint(OT_RANKS, "leave --ranks out under mpirun and srun");
  }
  if (*processes && !ot_comm_has_mpi()) {
    ot_fail(OT_RANKS, "the launcher started %d processes, and this program was built without MPI",
            *ranks);
    return ot_fail_hint(OT_RANKS,
                        "build it where MPI is installed, or start it alone with --ranks");
  }
  return OT_OK;
}

// One process of a launcher.
static ot_status run_process(ot_comm *comm, void *context) {
  const ot_ranks_verb *const verb = context;
  OT_TRY(ot_comm_agree(comm, verb->prepare(verb->context, ot_comm_size(comm))));
  return verb->run(comm, verb->context);
}

ot_status ot_ranks_run(const ot_options *options, const ot_ranks_verb *verb) {
  int ranks;
  bool processes;
  OT_TRY(ot_ranks_count(options, &ranks, &processes));
  if (processes) return ot_comm_run_mpi(run_process, (void *)verb);
  OT_TRY(verb->prepare(verb->context, ranks));
  return ot_comm_run_threads(ranks, verb->run, verb->context);
}
