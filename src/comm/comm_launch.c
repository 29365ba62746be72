// SPDX-License-Identifier: Apache-2.0
// What launchers of processes leave in the environment: Open MPI's mpirun, launchers that speak PMI
// (MPICH's mpirun, srun with pmi2), and srun by itself. Only Slurm's variables of a step count:
// those of a job are there in a plain sbatch script too.
#include <stdint.h>
#include <stdlib.h>

#include "comm/comm_parts.h"

static const struct {
  const char *size, *rank;
} launchers[] = {
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
    {"PMI_SIZE", "PMI_RANK"},
    {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"},
};

// A whole number from 0 in the environment variable `name`, or -1.
static int read_number(const char *name) {
  const char *const text = getenv(name);
  if (!text || !text[0]) return -1;
  int64_t value = 0;
  for (const char *c = text; *c; c++) {
    if (*c < '0' || *c > '9') return -1;
    value = value * 10 + (*c - '0');
    if (value > INT32_MAX) return -1;
  }
  return (int)value;
}

bool ot_comm_launched(int *ranks) {
  for (int i = 0; i < OT_COUNT(launchers); i++) {
    const int size = read_number(launchers[i].size);
    if (size < 1) continue;
    *ranks = size;
    return true;
  }
  return false;
}

int ot_comm_launched_rank(void) {
  for (int i = 0; i < OT_COUNT(launchers); i++) {
    if (read_number(launchers[i].size) < 1) continue;
    const int rank = read_number(launchers[i].rank);
    return rank > 0 ? rank : 0;
  }
  return 0;
}
