// SPDX-License-Identifier: Apache-2.0
// Worlds: the table of back ends, the common part of communicators, their groups, and the
// environment of launchers. Calls are run in comm_progress.c.
#include "comm/comm.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "comm/comm_nccl.h"
#include "comm/comm_parts.h"
#include "host/clock.h"

static const double listen_s = 0.2;  // between looks for requests of other ranks

// ---- back ends ----

enum { THREADS, MPI, BACKENDS };

// Null: not in this build. Only this table depends on MPI being built in.
static const ot_comm_backend *const backends[BACKENDS] = {
    [THREADS] = &ot_comm_thread,
#if OT_MPI
    [MPI] = &ot_comm_mpi,
#endif
};

bool ot_comm_has_mpi(void) { return backends[MPI] != NULL; }

ot_status ot_comm_run_threads(int ranks, ot_rank_main main, void *context) {
  OT_ASSERT(ranks >= 1);
  return backends[THREADS]->run(ranks, main, context);
}

ot_status ot_comm_run_mpi(ot_rank_main main, void *context) {
  if (backends[MPI]) return backends[MPI]->run(0, main, context);
  ot_fail(OT_ENVIRONMENT, "comm: this program was built without MPI, so it cannot join %s",
          "the processes of an MPI launcher");
  return ot_fail_hint(OT_ENVIRONMENT,
                      "install an MPI (libopenmpi-dev) and run make again, or use "
                      "--ranks N without a launcher");
}

// ---- launchers ----

// Variables that process launchers set: Open MPI's mpirun, launchers that speak PMI (MPICH's
// mpirun, srun with pmi2), and srun itself. Of Slurm only the variables of a step are read: a plain
// sbatch script has those of the job, too.
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

ot_status ot_comm_run_main(ot_comm *comm, ot_rank_main main, void *context) {
  const ot_status status = main(comm, context);
  ot_comm_nccl_close(comm, status);
  return status;
}

// ---- groups ----

// Rank `i` of a group is ranks[i] (null: i) of the world.
static ot_status make_group(ot_comm *comm, ot_group_kind kind, const int *ranks, int size) {
  const size_t n = (size_t)size;
  ot_comm_group *const group = &comm->groups[kind];
  *group = (ot_comm_group){.size = size,
                           .index = -1,
                           .ranks = calloc(n, sizeof *group->ranks),
                           .sent = calloc(n, sizeof *group->sent),
                           .received = calloc(n, sizeof *group->received)};
  OT_CHECK(group->ranks && group->sent && group->received, OT_ENVIRONMENT,
           "comm: out of memory for a group of %d ranks", size);
  for (int i = 0; i < size; i++) {
    group->ranks[i] = comm->first + (ranks ? ranks[i] : i);
    if (group->ranks[i] == comm->rank) group->index = i;
  }
  return OT_OK;
}

static void free_group(ot_comm_group *group) {
  free(group->ranks);
  free(group->sent);
  free(group->received);
  *group = (ot_comm_group){0};
}

static ot_status add_group(ot_comm *comm, ot_group_kind kind, const int *ranks, int size) {
  pthread_mutex_lock(&comm->process->lock);
  const ot_status status = make_group(comm, kind, ranks, size);
  pthread_mutex_unlock(&comm->process->lock);
  return status == OT_OK ? comm->backend->add_group(comm, kind) : status;
}

ot_status ot_comm_add_group(ot_comm *comm, ot_group_kind kind, const int *ranks, int size) {
  OT_ASSERT(kind > OT_GROUP_WORLD && kind < OT_GROUP_KINDS);
  OT_ASSERT(size >= 2 && size <= comm->world_size && comm->groups[kind].size == 0);
  bool member = false;
  for (int i = 0; i < size; i++) {
    OT_ASSERT(ranks[i] >= 0 && ranks[i] < comm->world_size && (i == 0 || ranks[i - 1] < ranks[i]));
    member |= ranks[i] == ot_comm_rank(comm);
  }
  OT_ASSERT(member);
  return add_group(comm, kind, ranks, size);
}

ot_status ot_comm_divide(ot_comm *comm, int first) {
  OT_ASSERT(first > 0 && first < comm->size && comm->world_size == comm->size);
  const bool later = comm->rank >= first;
  OT_TRY(add_group(comm, OT_GROUP_JOB, NULL, comm->size));
  pthread_mutex_lock(&comm->process->lock);
  free_group(&comm->groups[OT_GROUP_WORLD]);
  comm->first = later ? first : 0;
  comm->world_size = later ? comm->size - first : first;
  pthread_mutex_unlock(&comm->process->lock);
  const ot_comm_call left = {
      .kind = OT_COMM_BARRIER, .group = OT_GROUP_JOB, .name = "division of the world"};
  OT_TRY(ot_comm_run(comm, &left));
  if (comm->world_size == 1) return OT_OK;
  return add_group(comm, OT_GROUP_WORLD, NULL, comm->world_size);
}

int ot_comm_group_size(const ot_comm *comm, ot_group_kind kind) {
  const int size = comm->groups[kind].size;
  return size > 0 ? size : 1;
}

// ---- communicators ----

static void make_conditions(ot_comm *comm) {
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&comm->woken, &monotonic);
  pthread_cond_init(&comm->work, &monotonic);
  pthread_condattr_destroy(&monotonic);
}

ot_status ot_comm_head_create(ot_comm *comm, const ot_comm_backend *backend,
                              ot_comm_process *process, int rank, int size) {
  comm->backend = backend;
  comm->process = process;
  comm->next = process->ends;
  process->ends = comm;
  comm->rank = rank;
  comm->size = comm->world_size = size;
  comm->local_size = 1;
  comm->threads = 1;
  make_conditions(comm);
  if (gethostname(comm->host, sizeof comm->host - 1) != 0) memcpy(comm->host, "localhost", 10);
  comm->gathered = calloc((size_t)size, sizeof *comm->gathered);
  comm->scratch = calloc((size_t)size + OT_AGREEMENT_WORDS, sizeof *comm->scratch);
  OT_CHECK(comm->gathered && comm->scratch, OT_ENVIRONMENT, "comm: out of memory for %d ranks",
           size);
  return size > 1 ? make_group(comm, OT_GROUP_WORLD, NULL, size) : OT_OK;
}

void ot_comm_head_destroy(ot_comm *comm) {
  for (int kind = 0; kind < OT_GROUP_KINDS; kind++) free_group(&comm->groups[kind]);
  pthread_cond_destroy(&comm->woken);
  pthread_cond_destroy(&comm->work);
  free(comm->gathered);
  free(comm->scratch);
}

int ot_comm_rank(const ot_comm *comm) { return comm->rank - comm->first; }

int ot_comm_size(const ot_comm *comm) { return comm->world_size; }

const char *ot_comm_host(const ot_comm *comm) { return comm->host; }

int ot_comm_local_size(const ot_comm *comm) { return comm->local_size; }

int ot_comm_process_ranks(const ot_comm *comm) {
  return comm->backend->shares_memory ? comm->local_size : 1;
}

int ot_comm_local_rank(const ot_comm *comm) { return comm->local_rank; }

void ot_comm_ask(ot_comm *comm) { comm->process->asked = true; }

// A rank that only computes would not hear.
static void listen(ot_comm *comm) {
  const double now = ot_clock_s();
  if (!comm->backend->poll || now < comm->listens_s) return;
  comm->listens_s = now + listen_s;
  pthread_mutex_lock(&comm->process->lock);
  if (!comm->process->failed) comm->backend->poll(comm);
  pthread_mutex_unlock(&comm->process->lock);
}

bool ot_comm_is_asked(ot_comm *comm) {
  if (!comm->process->asked) listen(comm);
  return comm->process->asked;
}

void ot_comm_set_timeout(ot_comm *comm, double seconds) { comm->timeout_s = seconds; }

double ot_comm_sent_bytes(const ot_comm *comm, ot_group_kind group, ot_comm_kind kind) {
  return atomic_load_explicit(&comm->sent_bytes[group][kind], memory_order_relaxed);
}
