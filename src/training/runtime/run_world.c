// SPDX-License-Identifier: Apache-2.0
// Everything except agreement uses one host-side all-reduce of a few words.
#include "runtime/run_world.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "host/cores.h"
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

static ot_status count_sharing(ot_world *world) {
  const int64_t mine = (int64_t)cores_hash(world->comm);
  OT_TRY(ot_world_allgather(world, mine, world->collected));
  world->sharing = 0;
  for (int i = 0; i < world->size; i++) world->sharing += world->collected[i] == mine;
  // On one machine ranks outside this world share with those that all share.
  const int job = ot_comm_group_size(world->comm, OT_GROUP_JOB);
  const bool one_machine = ot_comm_local_size(world->comm) == job;
  if (one_machine && world->sharing == world->size) world->sharing = job;
  return OT_OK;
}

static ot_status create(ot_world *world, const ot_run_parallel *parallel) {
  OT_TRY(ot_mesh_build(parallel, world->size, &world->mesh));
  const int64_t text_words = OT_WORLD_TEXT / (int64_t)sizeof(int64_t);
  const int64_t values = OT_WORLD_VALUES + world->size;
  OT_TRY(ot_host_allreduce_create(world->comm, values > text_words ? values : text_words,
                                  &world->exchange));
  world->collected = calloc((size_t)world->size, sizeof *world->collected);
  OT_CHECK(world->collected, OT_ENVIRONMENT, "out of memory");
  return OT_OK;
}

ot_status ot_world_create(const ot_run_parallel *parallel, ot_comm *comm, ot_world **out) {
  ot_world *world = calloc(1, sizeof *world);
  ot_status status = OT_OK;
  if (world) {
    *world = (ot_world){.comm = comm, .size = 1, .sharing = 1};
    if (comm) world->rank = ot_comm_rank(comm);
    if (comm) world->size = ot_comm_size(comm);
    status = create(world, parallel);
  } else {
    status = ot_fail(OT_ENVIRONMENT, "out of memory");
  }
  if (comm) status = ot_comm_agree(comm, status);
  if (status == OT_OK && comm) status = count_sharing(world);
  if (status != OT_OK) ot_world_destroy(&world);
  *out = world;
  return status;
}

void ot_world_destroy(ot_world **world) {
  if (!world || !*world) return;
  ot_host_allreduce_destroy(&(*world)->exchange);
  free((*world)->collected);
  free(*world);
  *world = NULL;
}

// ---- coordinates of this rank ----

int ot_world_rank(const ot_world *world) { return world ? world->rank : 0; }

int ot_world_size(const ot_world *world) { return world ? world->size : 1; }

ot_comm *ot_world_comm(const ot_world *world) { return world ? world->comm : NULL; }

const ot_mesh *ot_world_mesh(const ot_world *world) { return world ? &world->mesh : NULL; }

int ot_world_index(const ot_world *world, ot_axis axis) {
  return world ? ot_mesh_coordinate(&world->mesh, world->rank, axis) : 0;
}

int ot_world_degree(const ot_world *world, ot_axis axis) {
  return world ? world->mesh.degree[axis] : 1;
}

int ot_world_data_index(const ot_world *world) {
  const int shards = ot_world_degree(world, OT_AXIS_DP_SHARD);
  return ot_world_index(world, OT_AXIS_DP_REPLICATE) * shards +
         ot_world_index(world, OT_AXIS_DP_SHARD);
}

int ot_world_data_degree(const ot_world *world) {
  return ot_world_degree(world, OT_AXIS_DP_REPLICATE) * ot_world_degree(world, OT_AXIS_DP_SHARD);
}

int ot_world_core_sharers(const ot_world *world) { return world ? world->sharing : 1; }

int ot_world_threads(const ot_world *world) {
  return ot_host_threads(ot_world_core_sharers(world));
}

int64_t ot_world_machine(const ot_world *world) {
  const char *const host = world && world->comm ? ot_comm_host(world->comm) : "";
  return (int64_t)ot_hash_text(OT_HASH_START, host);
}

int64_t ot_world_process(const ot_world *world) {
  const pid_t process = getpid();
  return (int64_t)ot_hash_bytes((uint64_t)ot_world_machine(world), &process, sizeof process);
}

bool ot_world_is_leader(const ot_world *world) { return ot_world_rank(world) == 0; }

// ---- agreement ----

ot_status ot_world_agree(ot_world *world, ot_status status) {
  return world && world->comm ? ot_comm_agree(world->comm, status) : status;
}

ot_status ot_world_agree_on_damage(ot_world *world, ot_status status, bool *damaged) {
  double found[] = {status != OT_OK && !*damaged, *damaged};
  OT_TRY(ot_world_allreduce(world, found, OT_COUNT(found)));
  *damaged = found[0] == 0 && found[1] > 0;
  return ot_world_agree(world, status);
}

void ot_world_set_timeout(ot_world *world, double seconds) {
  if (world && world->comm) ot_comm_set_timeout(world->comm, seconds);
}

ot_status ot_world_check_equal(ot_world *world, uint64_t value, const char *what) {
  if (!world || world->size == 1) return OT_OK;
  return ot_comm_check_equal(world->comm, OT_GROUP_WORLD, value, what);
}

ot_status ot_world_check_file(ot_world *world, const char *path, uint64_t hash) {
  if (!world || world->size == 1) return OT_OK;
  OT_TRY(ot_world_allgather(world, (int64_t)hash, world->collected));
  const int64_t *const found = world->collected;
  int first = 0;
  while (first + 1 < world->size && found[first] == 0) first++;
  bool same = true;
  for (int i = first; i < world->size; i++) same &= found[i] == 0 || found[i] == found[first];
  if (same) return OT_OK;
  ot_status status = OT_OK;
  if (hash != 0 && (int64_t)hash != found[first]) {
    ot_fail(OT_RANKS, "%s has another content here than on rank %d", path, first);
    status = ot_fail_hint(OT_RANKS, "copy the file from one host to all others");
  }
  return ot_world_agree(world, status);
}

// ---- words ----

ot_status ot_world_broadcast(ot_world *world, char *text) {
  return ot_world_broadcast_from(world, 0, text);
}

ot_status ot_world_broadcast_from(ot_world *world, int rank, char *text) {
  if (!world || world->size == 1) return OT_OK;
  char *const words = (char *)ot_host_allreduce_words(world->exchange);
  memset(words, 0, OT_WORLD_TEXT);
  if (world->rank == rank) ot_text_format(words, OT_WORLD_TEXT, "%s", text);
  OT_TRY(ot_host_allreduce_integers(world->exchange, OT_WORLD_TEXT / (int64_t)sizeof(int64_t)));
  memcpy(text, words, OT_WORLD_TEXT);
  return OT_OK;
}

ot_status ot_world_allreduce(ot_world *world, double *values, int count) {
  OT_ASSERT(count <= OT_WORLD_VALUES + ot_world_size(world));
  if (!world || world->size == 1) return OT_OK;
  const size_t bytes = (size_t)count * sizeof *values;
  memcpy(ot_host_allreduce_words(world->exchange), values, bytes);
  OT_TRY(ot_host_allreduce_reals(world->exchange, count));
  memcpy(values, ot_host_allreduce_words(world->exchange), bytes);
  return OT_OK;
}

ot_status ot_world_allgather(ot_world *world, int64_t mine, int64_t *all) {
  all[0] = mine;
  if (!world || world->size == 1) return OT_OK;
  const size_t bytes = (size_t)world->size * sizeof *all;
  int64_t *const words = ot_host_allreduce_words(world->exchange);
  memset(words, 0, bytes);
  words[world->rank] = mine;
  OT_TRY(ot_host_allreduce_integers(world->exchange, world->size));
  memcpy(all, words, bytes);
  return OT_OK;
}
