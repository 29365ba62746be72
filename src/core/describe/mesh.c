// SPDX-License-Identifier: Apache-2.0
// Atoms are the factors between consecutive boundaries of both views, where boundaries are the
// products of the fastest axes. Both views fit when all boundaries, sorted, divide one another.
#include "describe/mesh.h"

#include <assert.h>
#include <stdbool.h>

#include "base/text.h"
#include "describe/pipeline_rules.h"

enum { DENSE_AXES = 4, EXPERT_AXES = 3, MAX_RANKS = 1 << 24 };

static const char *const names[] = {
    [OT_AXIS_TP] = "tp",
    [OT_AXIS_CP] = "cp",
    [OT_AXIS_DP_SHARD] = "dp_shard",
    [OT_AXIS_DP_REPLICATE] = "dp_replicate",
    [OT_AXIS_ETP] = "etp",
    [OT_AXIS_EP] = "ep",
    [OT_AXIS_EDP] = "edp",
    [OT_AXIS_PP] = "pp",
};
static_assert(OT_COUNT(names) == OT_AXIS_COUNT, "one name for each axis");

const char *ot_axis_name(ot_axis axis) { return names[axis]; }

static bool is_expert(ot_axis axis) {
  return axis == OT_AXIS_ETP || axis == OT_AXIS_EP || axis == OT_AXIS_EDP;
}

// Ranks of a stage.
static int64_t stage_ranks(const ot_mesh *mesh) {
  int64_t n = 1;
  for (int i = 0; i < DENSE_AXES; i++) n *= mesh->degree[i];
  return n;
}

// Distance between neighbouring ranks along `axis`.
static int stride_of(const ot_mesh *mesh, ot_axis axis) {
  if (axis == OT_AXIS_PP) return (int)stage_ranks(mesh);
  int stride = 1;
  for (int i = is_expert(axis) ? OT_AXIS_ETP : OT_AXIS_TP; i < (int)axis; i++) {
    stride *= mesh->degree[i];
  }
  return stride;
}

// ---- Views ----

// The smallest boundary of either view above `from`.
static int next_cut(const ot_mesh *mesh, int from) {
  int next = 0;
  for (int axis = 0; axis < DENSE_AXES + EXPERT_AXES; axis++) {
    const int cut = stride_of(mesh, (ot_axis)axis) * mesh->degree[axis];
    if (cut > from && (next == 0 || cut < next)) next = cut;
  }
  return next;
}

// True when the cut points of both views divide one another.
static bool views_fit(const ot_mesh *mesh) {
  const int64_t n = stage_ranks(mesh);
  for (int stride = 1, cut; stride < n; stride = cut) {
    cut = next_cut(mesh, stride);
    if (cut == 0 || cut % stride != 0) return false;
  }
  return true;
}

// True when the mesh fits with `degree` for `axis`.
static bool fits_with(const ot_mesh *mesh, ot_axis axis, int degree) {
  ot_mesh trial = *mesh;
  trial.degree[axis] = degree;
  const int64_t n = stage_ranks(&trial);
  const int64_t experts = (int64_t)trial.degree[OT_AXIS_ETP] * trial.degree[OT_AXIS_EP];
  if (n % experts != 0) return false;
  trial.degree[OT_AXIS_EDP] = (int)(n / experts);
  return views_fit(&trial);
}

// Adds "try ep=2 or ep=4": the nearest degrees of `axis` below and above that fit.
static ot_status suggest(const ot_mesh *mesh, ot_axis axis) {
  const int n = (int)stage_ranks(mesh);
  const int wanted = mesh->degree[axis];
  int below = wanted - 1;
  while (below > 0 && !fits_with(mesh, axis, below)) below--;
  int above = wanted + 1;
  while (above <= n && !fits_with(mesh, axis, above)) above++;
  if (below > 0 && above <= n) {
    return ot_fail_hint(OT_USAGE, "try %s=%d or %s=%d", names[axis], below, names[axis], above);
  }
  if (below > 0) return ot_fail_hint(OT_USAGE, "try %s=%d", names[axis], below);
  if (above <= n) return ot_fail_hint(OT_USAGE, "try %s=%d", names[axis], above);
  return OT_USAGE;
}

static ot_status refuse(const ot_mesh *mesh) {
  const int *const d = mesh->degree;
  ot_fail(OT_USAGE,
          "mesh: etp=%d x ep=%d of the experts and tp=%d x cp=%d x dp=%d have no common "
          "factorisation",
          d[OT_AXIS_ETP], d[OT_AXIS_EP], d[OT_AXIS_TP], d[OT_AXIS_CP],
          d[OT_AXIS_DP_SHARD] * d[OT_AXIS_DP_REPLICATE]);
  // Suggests whichever single degree fixes it; ep first, because it is usually chosen last.
  for (int i = 1; i <= (int)stage_ranks(mesh); i++) {
    if (fits_with(mesh, OT_AXIS_EP, i)) return suggest(mesh, OT_AXIS_EP);
  }
  return suggest(mesh, OT_AXIS_ETP);
}

ot_status ot_mesh_check(ot_mesh *mesh) {
  int64_t ranks = 1;
  for (int i = 0; i < OT_AXIS_COUNT; i++) {
    if (i == OT_AXIS_EDP) continue;
    OT_CHECK(mesh->degree[i] >= 1, OT_USAGE, "mesh: %s=%d; allowed: at least 1", names[i],
             mesh->degree[i]);
    if (!is_expert((ot_axis)i)) ranks *= mesh->degree[i];
    OT_CHECK(ranks <= MAX_RANKS, OT_USAGE, "mesh: more than %d ranks", MAX_RANKS);
  }
  const int64_t n = stage_ranks(mesh);
  const int64_t experts = (int64_t)mesh->degree[OT_AXIS_ETP] * mesh->degree[OT_AXIS_EP];
  if (n % experts != 0) return refuse(mesh);
  mesh->degree[OT_AXIS_EDP] = (int)(n / experts);
  if (!views_fit(mesh)) return refuse(mesh);
  mesh->ranks = (int)ranks;
  return OT_OK;
}

// How to start `ranks` of them; `more`: another number that fits, or 0.
static ot_status suggest_ranks(int64_t ranks, int64_t more) {
  const long long n = (long long)ranks;
  if (more == 0) return ot_fail_hint(OT_RANKS, "--ranks %lld, or mpirun -n %lld", n, n);
  return ot_fail_hint(OT_RANKS, "--ranks %lld or %lld, or mpirun -n with as many", n,
                      (long long)more);
}

ot_status ot_mesh_build(const ot_run_parallel *parallel, int ranks, ot_mesh *out) {
  const int64_t rest = (int64_t)parallel->pp * parallel->cp * parallel->tp;
  if (ranks % rest != 0 || ranks < rest) {
    const int64_t below = ranks / rest * rest;
    ot_fail(OT_RANKS, "mesh: %d rank%s not a multiple of pp=%d x cp=%d x tp=%d", ranks,
            ranks == 1 ? " is" : "s are", parallel->pp, parallel->cp, parallel->tp);
    if (parallel->dp > 0) return suggest_ranks(rest * parallel->dp, 0);
    return suggest_ranks(below > 0 ? below : below + rest, below > 0 ? below + rest : 0);
  }
  const int dp = (int)(ranks / rest);
  if (parallel->dp != 0 && parallel->dp != dp) {
    const int64_t needed = rest * parallel->dp;
    ot_fail(OT_RANKS, "mesh: pp=%d x dp=%d x cp=%d x tp=%d is %lld rank%s, but there %s %d",
            parallel->pp, parallel->dp, parallel->cp, parallel->tp, (long long)needed,
            ot_text_plural(needed, "s"), ranks == 1 ? "is" : "are", ranks);
    return suggest_ranks(needed, 0);
  }
  const int replicate = parallel->zero == 0 ? dp : parallel->dp_replicate;
  OT_CHECK(dp % replicate == 0, OT_RANKS, "mesh: dp_replicate=%d does not divide dp=%d of %d ranks",
           replicate, dp, ranks);
  *out = (ot_mesh){.vpp = ot_pipeline_chunks(parallel->pipeline, parallel->pp, parallel->vpp)};
  out->degree[OT_AXIS_TP] = parallel->tp;
  out->degree[OT_AXIS_CP] = parallel->cp;
  out->degree[OT_AXIS_DP_SHARD] = dp / replicate;
  out->degree[OT_AXIS_DP_REPLICATE] = replicate;
  out->degree[OT_AXIS_ETP] = parallel->etp;
  out->degree[OT_AXIS_EP] = parallel->ep;
  out->degree[OT_AXIS_PP] = parallel->pp;
  return ot_mesh_check(out);
}

// ---- Ranks and coordinates ----

int ot_mesh_coordinate(const ot_mesh *mesh, int rank, ot_axis axis) {
  return rank / stride_of(mesh, axis) % mesh->degree[axis];
}

int ot_mesh_rank(const ot_mesh *mesh, const int coordinates[4], int pp) {
  int rank = pp * stride_of(mesh, OT_AXIS_PP);
  for (int i = 0; i < DENSE_AXES; i++) rank += coordinates[i] * stride_of(mesh, (ot_axis)i);
  return rank;
}

void ot_mesh_group(const ot_mesh *mesh, int rank, ot_axis axis, int *out) {
  const int stride = stride_of(mesh, axis);
  const int first = rank - ot_mesh_coordinate(mesh, rank, axis) * stride;
  for (int i = 0; i < mesh->degree[axis]; i++) out[i] = first + i * stride;
}

uint64_t ot_mesh_hash(const ot_mesh *mesh) {
  uint64_t hash = ot_hash_bytes(OT_HASH_START, &mesh->vpp, sizeof mesh->vpp);
  return ot_hash_bytes(hash, mesh->degree, sizeof mesh->degree);
}
