// SPDX-License-Identifier: Apache-2.0
#include "audit/compute_check.h"

#include "audit/replica_units.h"
#include "base/text.h"
#include "describe/groups.h"

// One computation on all ranks, and its hashes.
typedef struct opinion {
  int shift;        // rank of data parallelism d computed on the samples of d + shift
  int64_t *hashes;  // [num_parts] of this rank
  int64_t *of;      // [ranks] of all its parts, by rank
} opinion;

typedef struct check {
  ot_trainer *trainer;
  ot_world *world;
  ot_arena *arena;
  int ranks, parts;
  int shift;  // to a rank with other samples that otherwise computes the same; 0: none
} check;

// The rank `shift` further in data parallelism, cyclically.
static int neighbour(const check *c, int rank, int shift) {
  const ot_mesh *const mesh = ot_world_mesh(c->world);
  if (!mesh) return rank;
  const int shards = mesh->degree[OT_AXIS_DP_SHARD];
  const int dp = shards * mesh->degree[OT_AXIS_DP_REPLICATE];
  int at[4];
  for (int i = 0; i < 4; i++) at[i] = ot_mesh_coordinate(mesh, rank, (ot_axis)(OT_AXIS_TP + i));
  const int d = (at[3] * shards + at[2] + shift + dp) % dp;
  at[2] = d % shards;
  at[3] = d / shards;
  return ot_mesh_rank(mesh, at, ot_mesh_coordinate(mesh, rank, OT_AXIS_PP));
}

static int data_index(const ot_mesh *mesh, int rank) {
  return ot_mesh_coordinate(mesh, rank, OT_AXIS_DP_REPLICATE) * mesh->degree[OT_AXIS_DP_SHARD] +
         ot_mesh_coordinate(mesh, rank, OT_AXIS_DP_SHARD);
}

// Ranks that share experts exchange tokens: only all of them together compute the same again.
static int find_shift(const check *c) {
  const ot_mesh *const mesh = ot_world_mesh(c->world);
  if (!mesh) return 0;
  const int dp = ot_world_data_degree(c->world);
  const ot_model *const model = &ot_trainer_run(c->trainer)->model;
  int *const group = ot_arena_array(c->arena, mesh->ranks, sizeof *group);
  const int size = ot_group_ranks(mesh, OT_GROUP_EXPERT, model->num_kv_heads, 0, group);
  int span = 1;
  for (int i = 0; i < size && model->moe.num_experts > 0; i++) {
    const int d = data_index(mesh, group[i]);
    if (d + 1 > span) span = d + 1;
  }
  return dp % span == 0 && dp > span ? span : 0;
}

static ot_status compute(const check *c, int shift, opinion *out) {
  const int dp = ot_world_data_degree(c->world);
  *out = (opinion){.shift = shift,
                   .hashes = ot_arena_array(c->arena, c->parts + 1, sizeof *out->hashes),
                   .of = ot_arena_array(c->arena, c->ranks, sizeof *out->of)};
  const int other = (ot_world_data_index(c->world) + shift + dp) % dp;
  OT_TRY(ot_trainer_hash_gradients(c->trainer, other, out->hashes));
  const uint64_t all =
      ot_hash_bytes(OT_HASH_START, out->hashes, (size_t)c->parts * sizeof(int64_t));
  return ot_world_allgather(c->world, (int64_t)all, out->of);
}

// The first part in which `a` of rank `rank_a` and `b` of rank `rank_b` differ: halves the range
// until one part is left.
static ot_status first_part(const check *c, const opinion *a, const opinion *b, const int rank[2],
                            int *part) {
  int64_t *const of_a = ot_arena_array(c->arena, c->ranks, sizeof *of_a);
  int64_t *const of_b = ot_arena_array(c->arena, c->ranks, sizeof *of_b);
  int low = 0, high = c->parts;
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    const size_t bytes = (size_t)(middle - low) * sizeof(int64_t);
    const uint64_t x = ot_hash_bytes(OT_HASH_START, a->hashes + low, bytes);
    const uint64_t y = ot_hash_bytes(OT_HASH_START, b->hashes + low, bytes);
    OT_TRY(ot_world_allgather(c->world, (int64_t)x, of_a));
    OT_TRY(ot_world_allgather(c->world, (int64_t)y, of_b));
    if (of_a[rank[0]] != of_b[rank[1]])
      high = middle;
    else
      low = middle;
  }
  *part = low;
  return OT_OK;
}

// A difference: `owner` trains on the samples, `other` computed them again; the same rank if only
// repetitions are compared.
typedef struct difference {
  int owner, other, count;
} difference;

static difference find_difference(const check *c, const opinion *own, const opinion *again) {
  difference found = {.count = 0};
  for (int rank = c->ranks - 1; rank >= 0; rank--) {
    const int owner = neighbour(c, rank, again->shift);
    if (own->of[owner] == again->of[rank]) continue;
    found = (difference){.owner = owner, .other = rank, .count = found.count + 1};
  }
  return found;
}

// "rank 2", or "the group of ranks 2 3" if these exchange activations: then wrong bits of one make
// those of the others wrong.
static const char *suspect(const check *c, int rank) {
  const ot_mesh *const mesh = ot_world_mesh(c->world);
  const char *list = "";
  int count = 0;
  for (int i = 0; i < c->ranks; i++) {
    const int span = c->shift > 0 ? c->shift : c->ranks;
    if (mesh && data_index(mesh, i) / span != data_index(mesh, rank) / span) continue;
    list = ot_arena_format(c->arena, "%s %d", list, i);
    count++;
  }
  return count > 1 ? ot_arena_format(c->arena, "the group of ranks%s", list)
                   : ot_arena_format(c->arena, "rank %d", rank);
}

// Says which rank is at fault, and how; computes once or twice more.
static ot_status judge(const check *c, const difference *d, const opinion *own,
                       const opinion *again, const char **verdict) {
  opinion own_repeated, repeated, third;
  const char *const owner = suspect(c, d->owner), *const other = suspect(c, d->other);
  *verdict = NULL;
  if (again->shift == 0) {
    *verdict =
        ot_arena_format(c->arena, "%s does not repeat its own bits: a transient fault", owner);
    return OT_OK;
  }
  OT_TRY(compute(c, 0, &own_repeated));
  OT_TRY(compute(c, again->shift, &repeated));
  const bool owner_repeats = own_repeated.of[d->owner] == own->of[d->owner];
  const bool other_repeats = repeated.of[d->other] == again->of[d->other];
  if (!owner_repeats || !other_repeats) {
    *verdict = ot_arena_format(c->arena, "%s does not repeat its own bits: a transient fault",
                               owner_repeats ? other : owner);
    return OT_OK;
  }
  const int judge_rank = neighbour(c, d->other, -again->shift);
  if (judge_rank == d->owner || judge_rank == d->other) {
    *verdict = ot_arena_format(c->arena,
                               "%s or %s computes it wrongly each time: a "
                               "lasting fault (a third rank could tell which)",
                               owner, other);
    return OT_OK;
  }
  OT_TRY(compute(c, 2 * again->shift, &third));
  const bool owner_right = third.of[judge_rank] == own->of[d->owner];
  const bool other_right = third.of[judge_rank] == again->of[d->other];
  *verdict = owner_right || other_right
                 ? ot_arena_format(c->arena,
                                   "%s computes it wrongly each time: a lasting "
                                   "fault (rank %d agrees with rank %d)",
                                   owner_right ? other : owner, judge_rank,
                                   owner_right ? d->owner : d->other)
                 : ot_arena_format(c->arena, "three ranks (%d, %d, %d) disagree", d->owner,
                                   d->other, judge_rank);
  return OT_OK;
}

static ot_status describe(const check *c, const difference *d, const opinion *own,
                          const opinion *again, ot_loop_findings *findings) {
  const char *verdict = NULL;
  int part = 0;
  OT_TRY(first_part(c, own, again, (const int[]){d->owner, d->other}, &part));
  OT_TRY(judge(c, d, own, again, &verdict));
  const char *const name = ot_unit_name(ot_trainer_runtime(c->trainer), OT_UNIT_GRADIENT, part);
  findings->count = d->count;
  findings->worst = ot_arena_format(c->arena, "the gradient of %s differs: %s", name, verdict);
  findings->text = ot_arena_format(
      c->arena,
      "compute: finding\nfinding 1: compute_differs  %s\n  try: take the rank's machine out "
      "and resume from the last checkpoint\n",
      findings->worst);
  return OT_OK;
}

ot_status ot_compute_check(void *audit, ot_trainer *trainer, ot_arena *arena,
                           ot_loop_findings *findings) {
  ot_compute_audit *const state = audit;
  ot_world *const world = ot_trainer_world(trainer);
  check c = {.trainer = trainer,
             .world = world,
             .arena = arena,
             .ranks = ot_world_size(world),
             .parts = ot_runtime_schedule(ot_trainer_runtime(trainer))->num_parts};
  opinion own, again;
  c.shift = find_shift(&c);
  OT_TRY(compute(&c, 0, &own));
  OT_TRY(compute(&c, c.shift, &again));
  *findings = (ot_loop_findings){.audit = "compute"};
  if (c.shift == 0 && !state->noted) {
    state->noted = true;
    findings->note =
        "the audit of compute: no other rank computes with the same weights, so each repeats its "
        "own gradients; that finds transient faults only";
  }
  const difference found = find_difference(&c, &own, &again);
  return found.count > 0 ? describe(&c, &found, &own, &again, findings) : OT_OK;
}
