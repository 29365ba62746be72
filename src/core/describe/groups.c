// SPDX-License-Identifier: Apache-2.0
// Most groups are one axis of the mesh.
#include "describe/groups.h"

#include <assert.h>
#include <stdbool.h>

static const ot_axis axes[] = {
    [OT_GROUP_WORLD] = OT_AXIS_COUNT,      [OT_GROUP_TENSOR] = OT_AXIS_TP,
    [OT_GROUP_CONTEXT] = OT_AXIS_CP,       [OT_GROUP_STAGES] = OT_AXIS_PP,
    [OT_GROUP_GATHER] = OT_AXIS_DP_SHARD,  [OT_GROUP_SHARD] = OT_AXIS_DP_SHARD,
    [OT_GROUP_CONTEXT_SUM] = OT_AXIS_CP,   [OT_GROUP_REPLICATE] = OT_AXIS_DP_REPLICATE,
    [OT_GROUP_TENSOR_SUM] = OT_AXIS_TP,    [OT_GROUP_KV_SUM] = OT_AXIS_TP,
    [OT_GROUP_TIED] = OT_AXIS_PP,          [OT_GROUP_TOKENS] = OT_AXIS_DP_SHARD,
    [OT_GROUP_EXPERT] = OT_AXIS_EP,        [OT_GROUP_EXPERT_GATHER] = OT_AXIS_EDP,
    [OT_GROUP_EXPERT_SHARD] = OT_AXIS_EDP, [OT_GROUP_EXPERT_REPLICATE] = OT_AXIS_EDP,
    [OT_GROUP_EXPERT_SUM] = OT_AXIS_EP,    [OT_GROUP_SEQUENCE] = OT_AXIS_EP,
    [OT_GROUP_JOB] = OT_AXIS_COUNT,
};
static_assert(OT_COUNT(axes) == OT_GROUP_KINDS, "one each");

ot_axis ot_group_axis(ot_group_kind kind) { return axes[kind]; }

static int run_of_ranks(int first, int stride, int size, int *out) {
  for (int i = 0; i < size; i++) out[i] = first + i * stride;
  return size;
}

// With n times more ranks of tp than kv heads, tp ranks i*n .. i*n + n-1 hold copies of one head.
static int kv_ranks(const ot_mesh *mesh, int64_t num_kv_heads, int rank, int *out) {
  const int tp = mesh->degree[OT_AXIS_TP];
  const int copies = tp > num_kv_heads ? tp / (int)num_kv_heads : 1;
  return run_of_ranks(rank - rank % tp % copies, 1, copies, out);
}

// All ranks of the stage that share the rank's position in tp.
static int token_ranks(const ot_mesh *mesh, int rank, int *out) {
  const int tp = mesh->degree[OT_AXIS_TP];
  const int stage = mesh->ranks / mesh->degree[OT_AXIS_PP];
  return run_of_ranks(rank / stage * stage + rank % tp, tp, stage / tp, out);
}

static int expert_degree(const ot_mesh *mesh) {
  return mesh->degree[OT_AXIS_ETP] * mesh->degree[OT_AXIS_EP];
}

// All ranks of tp and cp, for blocks in the expert view.
static int sequence_ranks(const ot_mesh *mesh, int rank, int *out) {
  const int n = mesh->degree[OT_AXIS_TP] * mesh->degree[OT_AXIS_CP];
  if (expert_degree(mesh) == 1) return run_of_ranks(rank, 1, 1, out);
  return run_of_ranks(rank - rank % n, 1, n, out);
}

static int tied_ranks(const ot_mesh *mesh, int rank, int *out) {
  const int pp = mesh->degree[OT_AXIS_PP];
  const int stage = ot_mesh_coordinate(mesh, rank, OT_AXIS_PP);
  const int stride = mesh->ranks / pp;
  if (pp == 1 || (stage != 0 && stage != pp - 1)) return run_of_ranks(rank, 1, 1, out);
  return run_of_ranks(rank % stride, stride * (pp - 1), 2, out);
}

// Ranks of a stage with copies of the same experts have stride etp x ep. A shard domain, the first
// ranks of a stage when dp_shard > 1, splits them in two: those inside and those across domains.
static int expert_ranks(const ot_mesh *mesh, bool inside, int rank, int *out) {
  const int *const d = mesh->degree;
  const int apart = expert_degree(mesh);
  const int stage = mesh->ranks / d[OT_AXIS_PP];
  const int first = rank / stage * stage;
  const int domain =
      d[OT_AXIS_DP_SHARD] > 1 ? d[OT_AXIS_TP] * d[OT_AXIS_CP] * d[OT_AXIS_DP_SHARD] : stage;
  const int wide = apart > domain ? apart : domain;
  const int place = rank - first;
  if (apart == 1) return run_of_ranks(rank, 1, 1, out);
  if (inside)
    return run_of_ranks(first + place / wide * wide + place % apart, apart, wide / apart, out);
  return run_of_ranks(first + place % wide, wide, stage / wide, out);
}

static int axis_ranks(const ot_mesh *mesh, ot_axis axis, int rank, int *out) {
  ot_mesh_group(mesh, rank, axis, out);
  return mesh->degree[axis];
}

int ot_group_ranks(const ot_mesh *mesh, ot_group_kind kind, int64_t num_kv_heads, int rank,
                   int *out) {
  const bool sharded = mesh->degree[OT_AXIS_DP_SHARD] > 1;
  switch (kind) {
    case OT_GROUP_WORLD:
      return run_of_ranks(0, 1, mesh->ranks, out);
    case OT_GROUP_TENSOR:
    case OT_GROUP_CONTEXT:
    case OT_GROUP_STAGES:
    case OT_GROUP_GATHER:
    case OT_GROUP_CONTEXT_SUM:
    case OT_GROUP_TENSOR_SUM:
      return axis_ranks(mesh, axes[kind], rank, out);
    case OT_GROUP_SHARD:
      return axis_ranks(mesh, sharded ? OT_AXIS_DP_SHARD : OT_AXIS_DP_REPLICATE, rank, out);
    case OT_GROUP_REPLICATE:
      if (!sharded) return run_of_ranks(rank, 1, 1, out);
      return axis_ranks(mesh, OT_AXIS_DP_REPLICATE, rank, out);
    case OT_GROUP_KV_SUM:
      return kv_ranks(mesh, num_kv_heads, rank, out);
    case OT_GROUP_TIED:
      return tied_ranks(mesh, rank, out);
    case OT_GROUP_EXPERT:
    case OT_GROUP_EXPERT_SUM:  // the fastest ranks of a stage
      return run_of_ranks(rank - rank % expert_degree(mesh), 1, expert_degree(mesh), out);
    case OT_GROUP_SEQUENCE:
      return sequence_ranks(mesh, rank, out);
    case OT_GROUP_TOKENS:
      return token_ranks(mesh, rank, out);
    case OT_GROUP_EXPERT_GATHER:
    case OT_GROUP_EXPERT_SHARD:
      return expert_ranks(mesh, true, rank, out);
    case OT_GROUP_EXPERT_REPLICATE:
      return expert_ranks(mesh, false, rank, out);
    case OT_GROUP_JOB:  // the world is not divided
      return run_of_ranks(rank, 1, 1, out);
    case OT_GROUP_KINDS:
      break;
  }
  OT_UNREACHABLE();
}

int ot_group_index(const int *ranks, int size, int rank) {
  for (int i = 0; i < size; i++) {
    if (ranks[i] == rank) return i;
  }
  OT_UNREACHABLE();
}
