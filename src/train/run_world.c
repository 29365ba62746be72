// SPDX-License-Identifier: Apache-2.0
// Everything except agreement uses one host-side all-reduce of a few words.
#include "train/run_world.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "runtime/host_allreduce.h"
#include "runtime/model_runtime.h"

struct ot_world {
  ot_comm *comm;  // null: one rank
  int rank, size;
  ot_mesh mesh;
  ot_host_allreduce *exchange;
  int64_t *collected;  // [size]
  int sharing;         // ranks that share this one's cores, itself included
};

// ---- create ----

// Identifies the machine and its set of cores.
static uint64_t cores_hash(const ot_comm *comm) {
  cpu_set_t set;
  CPU_ZERO(&set);
  (void)sched_getaffinity(0, sizeof set, &set);
  return ot_hash_bytes(ot_hash_text(OT_HASH_START, ot_comm_host(comm)), &set, sizeof set);
}

static ot_status count_sharing(ot_world *team) {
  const int64_t mine = (int64_t)cores_hash(team->comm);
  OT_TRY(ot_world_allgather(team, mine, team->collected));
  team->sharing = 0;
  for (int i = 0; i < team->size; i++) team->sharing += team->collected[i] == mine;
  return OT_OK;
}

static ot_status create(ot_world *team, const ot_run_parallel *parallel) {
  OT_TRY(ot_mesh_build(parallel, team->size, &team->mesh));
  const int64_t text_words = OT_WORLD_TEXT / (int64_t)sizeof(int64_t);
  OT_TRY(ot_host_allreduce_create(team->comm, team->size > text_words ? team->size : text_words,
                                  &team->exchange));
  team->collected = calloc((size_t)team->size, sizeof *team->collected);
  OT_CHECK(team->collected, OT_ENVIRONMENT, "out of memory");
  return OT_OK;
}

ot_status ot_world_create(const ot_run_parallel *parallel, ot_comm *comm, ot_world **out) {
  ot_world *team = calloc(1, sizeof *team);
  ot_status status = OT_OK;
  if (team) {
    *team = (ot_world){.comm = comm, .size = 1, .sharing = 1};
    if (comm) team->rank = ot_comm_rank(comm);
    if (comm) team->size = ot_comm_size(comm);
    status = create(team, parallel);
  } else {
    status = ot_fail(OT_ENVIRONMENT, "out of memory");
  }
  if (comm) status = ot_comm_agree(comm, status);
  if (status == OT_OK && comm) status = count_sharing(team);
  if (status != OT_OK) ot_world_destroy(&team);
  *out = team;
  return status;
}

void ot_world_destroy(ot_world **team) {
  if (!team || !*team) return;
  ot_host_allreduce_destroy(&(*team)->exchange);
  free((*team)->collected);
  free(*team);
  *team = NULL;
}

// ---- coordinates of this rank ----

int ot_world_rank(const ot_world *team) { return team ? team->rank : 0; }

int ot_world_size(const ot_world *team) { return team ? team->size : 1; }

ot_comm *ot_world_comm(const ot_world *team) { return team ? team->comm : NULL; }

const ot_mesh *ot_world_mesh(const ot_world *team) { return team ? &team->mesh : NULL; }

int ot_world_index(const ot_world *team, ot_axis axis) {
  return team ? ot_mesh_coordinate(&team->mesh, team->rank, axis) : 0;
}

int ot_world_degree(const ot_world *team, ot_axis axis) {
  return team ? team->mesh.degree[axis] : 1;
}

int ot_world_data_index(const ot_world *team) {
  const int shards = ot_world_degree(team, OT_AXIS_DP_SHARD);
  return ot_world_index(team, OT_AXIS_DP_REPLICATE) * shards +
         ot_world_index(team, OT_AXIS_DP_SHARD);
}

int ot_world_data_degree(const ot_world *team) {
  return ot_world_degree(team, OT_AXIS_DP_REPLICATE) * ot_world_degree(team, OT_AXIS_DP_SHARD);
}

int ot_world_core_sharers(const ot_world *team) { return team ? team->sharing : 1; }

int ot_world_threads(const ot_world *team) {
  const int threads = ot_runtime_cores() / ot_world_core_sharers(team);
  return threads > 1 ? threads : 1;
}

int64_t ot_world_machine(const ot_world *team) {
  const char *const host = team && team->comm ? ot_comm_host(team->comm) : "";
  return (int64_t)ot_hash_text(OT_HASH_START, host);
}

int64_t ot_world_process(const ot_world *team) {
  const pid_t process = getpid();
  return (int64_t)ot_hash_bytes((uint64_t)ot_world_machine(team), &process, sizeof process);
}

bool ot_world_is_leader(const ot_world *team) { return ot_world_rank(team) == 0; }

// ---- agreement ----

ot_status ot_world_agree(ot_world *team, ot_status status) {
  return team && team->comm ? ot_comm_agree(team->comm, status) : status;
}

void ot_world_set_timeout(ot_world *team, double seconds) {
  if (team && team->comm) ot_comm_set_timeout(team->comm, seconds);
}

ot_status ot_world_check_equal(ot_world *team, uint64_t value, const char *what) {
  if (!team || team->size == 1) return OT_OK;
  return ot_comm_check_equal(team->comm, OT_GROUP_WORLD, value, what);
}

// ---- words ----

ot_status ot_world_broadcast(ot_world *team, char *text) {
  return ot_world_broadcast_from(team, 0, text);
}

ot_status ot_world_broadcast_from(ot_world *team, int rank, char *text) {
  if (!team || team->size == 1) return OT_OK;
  char *const words = (char *)ot_host_allreduce_words(team->exchange);
  memset(words, 0, OT_WORLD_TEXT);
  if (team->rank == rank) ot_text_format(words, OT_WORLD_TEXT, "%s", text);
  OT_TRY(ot_host_allreduce_integers(team->exchange, OT_WORLD_TEXT / (int64_t)sizeof(int64_t)));
  memcpy(text, words, OT_WORLD_TEXT);
  return OT_OK;
}

ot_status ot_world_allreduce(ot_world *team, double *values, int count) {
  OT_ASSERT(count <= OT_WORLD_VALUES);
  if (!team || team->size == 1) return OT_OK;
  const size_t bytes = (size_t)count * sizeof *values;
  memcpy(ot_host_allreduce_words(team->exchange), values, bytes);
  OT_TRY(ot_host_allreduce_reals(team->exchange, count));
  memcpy(values, ot_host_allreduce_words(team->exchange), bytes);
  return OT_OK;
}

ot_status ot_world_allgather(ot_world *team, int64_t mine, int64_t *all) {
  all[0] = mine;
  if (!team || team->size == 1) return OT_OK;
  const size_t bytes = (size_t)team->size * sizeof *all;
  int64_t *const words = ot_host_allreduce_words(team->exchange);
  memset(words, 0, bytes);
  words[team->rank] = mine;
  OT_TRY(ot_host_allreduce_integers(team->exchange, team->size));
  memcpy(all, words, bytes);
  return OT_OK;
}
