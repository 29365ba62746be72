// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of one process: the world they share, its groups, and the life of its threads.
// How calls move: comm_thread_call.c; how threads wait: comm_thread_wait.c.
#include "comm/comm_thread.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/text.h"

// ---- groups ----

static void group_destroy(ot_thread_group *group) {
  if (!group) return;
  for (int i = 0; i < OT_THREAD_SLOTS; i++) {
    free(group->slots[i].requests);
    free(group->slots[i].sends);
    free(group->slots[i].receives);
  }
  free(group->ranks);
  free(group->members);
  free(group->sent);
  free(group->received);
  free(group);
}

static bool slots_create(ot_thread_group *group, size_t size) {
  bool all = true;
  for (int i = 0; i < OT_THREAD_SLOTS; i++) {
    ot_thread_slot *const slot = &group->slots[i];
    slot->sequence = i > 0 ? i : OT_THREAD_SLOTS;  // calls are numbered from 1
    slot->requests = calloc(size, sizeof *slot->requests);
    slot->sends = calloc(size, sizeof *slot->sends);
    slot->receives = calloc(size, sizeof *slot->receives);
    all &= slot->requests && slot->sends && slot->receives;
  }
  return all;
}

// Null when out of memory.
static ot_thread_group *group_create(ot_group_kind kind, const int *ranks, int size) {
  const size_t n = (size_t)size;
  ot_thread_group *group = calloc(1, sizeof *group);
  if (!group) return NULL;
  group->kind = kind;
  group->size = size;
  group->ranks = calloc(n, sizeof *group->ranks);
  group->members = calloc(n, sizeof *group->members);
  group->sent = calloc(n * n, sizeof *group->sent);
  group->received = calloc(n * n, sizeof *group->received);
  const bool lists = group->ranks && group->members && group->sent && group->received;
  if (!lists || !slots_create(group, n)) {
    group_destroy(group);
    return NULL;
  }
  memcpy(group->ranks, ranks, n * sizeof *ranks);
  return group;
}

static bool has_rank(const int *ranks, int size, int rank) {
  for (int i = 0; i < size; i++) {
    if (ranks[i] == rank) return true;
  }
  return false;
}

// The group of `kind` that another member has made already, or null.
static ot_thread_group *find_group(ot_thread_world *world, ot_group_kind kind, int rank) {
  for (ot_thread_group *group = world->groups; group; group = group->next) {
    if (group->kind == kind && has_rank(group->ranks, group->size, rank)) return group;
  }
  return NULL;
}

static ot_status join_group(ot_thread_end *end, ot_group_kind kind, const int *ranks, int size) {
  ot_thread_group *group = find_group(end->world, kind, end->comm.rank);
  if (!group) {
    group = group_create(kind, ranks, size);
    OT_CHECK(group, OT_ENVIRONMENT, "comm: out of memory for a group of %d ranks", size);
    group->next = end->world->groups;
    end->world->groups = group;
  }
  OT_CHECK(group->size == size && memcmp(group->ranks, ranks, (size_t)size * sizeof *ranks) == 0,
           OT_RANKS,
           "comm: rank %d makes group %s of %d ranks, another member of %d or of other ranks",
           end->comm.rank, ot_group_name(kind), size, group->size);
  end->groups[kind] = group;
  return OT_OK;
}

static ot_status add_group(ot_comm *comm, ot_group_kind kind, const int *ranks, int size) {
  ot_thread_end *const end = (ot_thread_end *)comm;
  pthread_mutex_lock(&end->world->lock);
  const ot_status status = join_group(end, kind, ranks, size);
  pthread_mutex_unlock(&end->world->lock);
  return status;
}

// ---- failing ----

// Under the lock: the calling thread's failure becomes the failure of the world.
static void fail_rank(ot_thread_end *end, ot_status status) {
  ot_thread_world *const world = end->world;
  if (world->failed_rank >= 0) return;
  world->failed_rank = end->comm.rank;
  ot_failure_take(&world->failure, status);
  char why[sizeof world->why];
  ot_text_format(why, sizeof why, "rank %d has failed: %s", end->comm.rank, ot_fail_message());
  ot_thread_fail_world(world, why);
}

static void fail(ot_comm *comm, ot_status status) {
  ot_thread_end *const end = (ot_thread_end *)comm;
  pthread_mutex_lock(&end->world->lock);
  fail_rank(end, status);
  ot_thread_settle(end);
  pthread_mutex_unlock(&end->world->lock);
}

static const ot_comm_backend backend = {
    .add_group = add_group,
    .start = ot_thread_start,
    .done = ot_thread_done,
    .wait = ot_thread_wait,
    .set_waiting = ot_thread_set_waiting,
    .add_thread = ot_thread_add_thread,
    .fail = fail,
    .abort = fail,
};

// ---- the life of a rank ----

static void finish_rank(ot_thread_end *end, ot_status status) {
  ot_thread_world *const world = end->world;
  if (!ot_comm_is_failure(status) && end->open > 0 && !world->failed) {
    status = ot_fail(OT_BUG, "comm: main returned with %d calls under way", end->open);
  }
  end->status = status;
  if (ot_comm_is_failure(status)) fail_rank(end, status);
  if (world->failed) ot_thread_settle(end);
  end->finished = true;
  ot_thread_update_stuck(end);
  for (int i = 0; i < world->ranks; i++) ot_thread_wake(&world->ends[i]);
}

static void run_rank(ot_thread_end *end) {
  const ot_status status = end->main(&end->comm, end->context);
  pthread_mutex_lock(&end->world->lock);
  finish_rank(end, status);
  pthread_mutex_unlock(&end->world->lock);
}

// A thread of a rank: runs its main once all threads of the world are there.
static void *rank_thread(void *context) {
  ot_thread_end *const end = context;
  ot_thread_world *const world = end->world;
  pthread_mutex_lock(&world->lock);
  while (world->gate == 0) pthread_cond_wait(&end->woken, &world->lock);
  const bool go = world->gate > 0;
  pthread_mutex_unlock(&world->lock);
  if (go) run_rank(end);
  return NULL;
}

// ---- the world ----

static void world_destroy(ot_thread_world *world) {
  while (world->groups) {
    ot_thread_group *const next = world->groups->next;
    group_destroy(world->groups);
    world->groups = next;
  }
  for (int i = 0; i < world->ranks; i++) {
    ot_comm_head_destroy(&world->ends[i].comm);
    pthread_cond_destroy(&world->ends[i].woken);
    pthread_cond_destroy(&world->ends[i].work);
  }
  pthread_mutex_destroy(&world->lock);
  free(world->ends);
}

static int usable_cores(void) {
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

static ot_status end_create(ot_thread_world *world, int rank) {
  ot_thread_end *const end = &world->ends[rank];
  end->world = world;
  end->threads = 1;
  OT_TRY(ot_comm_head_create(&end->comm, &backend, rank, world->ranks));
  end->comm.local_size = world->ranks;
  if (world->ranks == 1) return OT_OK;
  int *const all = calloc((size_t)world->ranks, sizeof *all);
  OT_CHECK(all, OT_ENVIRONMENT, "comm: out of memory for %d ranks", world->ranks);
  for (int i = 0; i < world->ranks; i++) all[i] = i;
  ot_status status = ot_comm_head_group(&end->comm, OT_GROUP_WORLD, all, world->ranks);
  if (status == OT_OK) status = join_group(end, OT_GROUP_WORLD, all, world->ranks);
  free(all);
  return status;
}

// Makes all that can fail. On failure the world is still fit for destroy.
static ot_status world_create(ot_thread_world *world, int ranks) {
  world->ends = calloc((size_t)ranks, sizeof *world->ends);
  OT_CHECK(world->ends, OT_ENVIRONMENT, "comm: out of memory for %d ranks", ranks);
  world->ranks = ranks;
  world->failed_rank = -1;
  world->spins = ranks <= usable_cores();
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  for (int i = 0; i < ranks; i++) {
    pthread_cond_init(&world->ends[i].woken, &monotonic);
    pthread_cond_init(&world->ends[i].work, &monotonic);
  }
  pthread_condattr_destroy(&monotonic);
  for (int i = 0; i < ranks; i++) OT_TRY(end_create(world, i));
  return OT_OK;
}

// Starts an engine for every rank, and a thread for every rank but 0; returns how many of these
// 2 * ranks - 1 threads there are.
static int start_threads(ot_thread_world *world) {
  for (int i = 0; i < 2 * world->ranks - 1; i++) {
    ot_thread_end *const end = &world->ends[i < world->ranks ? i : i - world->ranks + 1];
    const int error = i < world->ranks ? pthread_create(&end->engine, NULL, ot_thread_engine, end)
                                       : pthread_create(&end->thread, NULL, rank_thread, end);
    if (error) return i;
  }
  return 2 * world->ranks - 1;
}

static void open_gate(ot_thread_world *world, int gate) {
  pthread_mutex_lock(&world->lock);
  world->gate = gate;
  for (int i = 0; i < world->ranks; i++) pthread_cond_broadcast(&world->ends[i].woken);
  pthread_mutex_unlock(&world->lock);
}

static void stop_engines(ot_thread_world *world) {
  pthread_mutex_lock(&world->lock);
  world->stopping = true;
  for (int i = 0; i < world->ranks; i++) pthread_cond_signal(&world->ends[i].work);
  pthread_mutex_unlock(&world->lock);
}

// The failure of a world, which names its rank.
static ot_status repeat_failure(const ot_thread_world *world) {
  ot_failure failure = world->failure;
  if (!ot_text_starts_with(world->failure.message, "rank")) {
    ot_text_format(failure.message, sizeof failure.message, "rank %d: %s", world->failed_rank,
                   world->failure.message);
  }
  return ot_failure_repeat(&failure);
}

// What the world ends with: the first failure, else the first rank that ended otherwise than OT_OK.
static ot_status world_status(const ot_thread_world *world) {
  if (world->failed_rank >= 0) return repeat_failure(world);
  for (int i = 0; i < world->ranks; i++) {
    if (world->ends[i].status != OT_OK) return world->ends[i].status;
  }
  return OT_OK;
}

static ot_status run_world(ot_thread_world *world) {
  const int wanted = 2 * world->ranks - 1;
  const int threads = start_threads(world);
  open_gate(world, threads == wanted ? 1 : -1);
  if (threads == wanted) run_rank(&world->ends[0]);
  for (int i = world->ranks; i < threads; i++) {
    pthread_join(world->ends[i - world->ranks + 1].thread, NULL);
  }
  stop_engines(world);
  for (int i = 0; i < threads && i < world->ranks; i++) {
    pthread_join(world->ends[i].engine, NULL);
  }
  OT_CHECK(threads == wanted, OT_ENVIRONMENT,
           "comm: the system gave %d of the %d threads that %d ranks need", threads, wanted,
           world->ranks);
  return world_status(world);
}

ot_status ot_comm_run_threads(int ranks, ot_rank_main main, void *context) {
  OT_ASSERT(ranks >= 1);
  ot_thread_world world = {.lock = PTHREAD_MUTEX_INITIALIZER};
  ot_status status = world_create(&world, ranks);
  for (int i = 0; i < world.ranks; i++) {
    world.ends[i].main = main;
    world.ends[i].context = context;
  }
  if (status == OT_OK) {
    status = ranks == 1 ? main(&world.ends[0].comm, context) : run_world(&world);
  }
  world_destroy(&world);
  return status;
}
