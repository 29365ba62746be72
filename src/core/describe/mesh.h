// SPDX-License-Identifier: Apache-2.0
// The mesh: ranks = pp x dp_replicate x dp_shard x cp x tp, tp fastest. Experts see the ranks of a
// stage as etp x ep x edp = tp x cp x dp, etp fastest. So that both views fit, the ranks of a stage
// are factored into *atoms*, fastest first: every axis of either view is a product of consecutive
// atoms, and a placement is kept per atom.
//
//   tp 2, cp 2, dp 2, ep 4:   dense    |--tp--|--cp--|--dp--|
//                             factors  |  2   |  2   |  2   |
//                             experts  |-----ep------|-edp--|
#pragma once

#include <stdint.h>

#include "base/choices.h"
#include "base/status.h"
#include "describe/run.h"

typedef enum ot_axis {
  // dense view, fastest first
  OT_AXIS_TP,
  OT_AXIS_CP,
  OT_AXIS_DP_SHARD,
  OT_AXIS_DP_REPLICATE,
  // expert view, fastest first
  OT_AXIS_ETP,
  OT_AXIS_EP,
  OT_AXIS_EDP,
  OT_AXIS_PP,  // stages
  OT_AXIS_COUNT,
} ot_axis;

typedef struct ot_mesh {
  int ranks;                  // of all stages
  int vpp;                    // chunks of a stage; no axis
  int degree[OT_AXIS_COUNT];  // >= 1
} ot_mesh;

// Divides `ranks` according to `parallel`: dp is the remaining factor, checked against parallel->dp
// when given; ZeRO 0 replicates over all of it. OT_RANKS when the number of ranks does not fit,
// OT_USAGE when the degrees have no common factors, with the nearest that fit.
ot_status ot_mesh_build(const ot_run_parallel *parallel, int ranks, ot_mesh *out);

// Checks a mesh whose degrees were set by hand (all but edp) and fills in edp and ranks.
ot_status ot_mesh_check(ot_mesh *mesh);

// Position of `rank` along `axis`, from 0.
int ot_mesh_coordinate(const ot_mesh *mesh, int rank, ot_axis axis);

// The rank at dense coordinates [tp, cp, dp_shard, dp_replicate] of stage `pp`.
int ot_mesh_rank(const ot_mesh *mesh, const int coordinates[4], int pp);

// The ranks that differ from `rank` along `axis` only, `rank` included, by their coordinate.
//   out  [mesh->degree[axis]]
void ot_mesh_group(const ot_mesh *mesh, int rank, ot_axis axis, int *out);

const char *ot_axis_name(ot_axis axis);

uint64_t ot_mesh_hash(const ot_mesh *mesh);
