// SPDX-License-Identifier: Apache-2.0
// How ranks are split into axes. ranks = pp x dp_replicate x dp_shard x cp x tp, tp fastest.
// Experts see the ranks of a stage otherwise: etp x ep x edp = tp x cp x dp, etp fastest. So that
// both views fit, the ranks of a stage are factored into *atoms*, fastest first: every axis of
// either view is a product of consecutive atoms, and a placement is kept per atom.
//
//   tp 2, cp 2, dp 2, ep 4:   dense    |--tp--|--cp--|--dp--|
//                             atoms    |  2   |  2   |  2   |
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
  OT_AXIS_PP,  // stages; no atom
  OT_AXIS_COUNT,
} ot_axis;

// One factor of the ranks of a stage.
typedef struct ot_atom {
  int size;        // > 1
  int stride;      // distance between neighbouring ranks along it
  ot_axis dense;   // axis of the dense view that it is part of
  ot_axis expert;  // axis of the expert view
} ot_atom;

typedef struct ot_mesh {
  int ranks;                   // of all stages
  int vpp;                     // chunks of a stage; no axis
  int degree[OT_AXIS_COUNT];   // >= 1
  int num_atoms;               // [0, OT_MAX_ATOMS]
  ot_atom atom[OT_MAX_ATOMS];  // fastest first; their sizes multiply to the ranks of a stage
} ot_mesh;

// Splits `ranks` as `parallel` says: dp is what they leave, checked against parallel->dp when
// given; zero 0 replicates over all of it. OT_RANKS when the number of ranks does not fit, OT_USAGE
// when the degrees have no common factors, naming the nearest that fit.
ot_status ot_mesh_build(const ot_run_parallel *parallel, int ranks, ot_mesh *out);

// Checks a mesh whose degrees were set by hand (all but edp) and fills in edp, ranks and the atoms.
ot_status ot_mesh_check(ot_mesh *mesh);

// Position of `rank` along `axis`, from 0.
int ot_mesh_coordinate(const ot_mesh *mesh, int rank, ot_axis axis);

// The rank at dense coordinates [tp, cp, dp_shard, dp_replicate] of stage `pp`.
int ot_mesh_rank(const ot_mesh *mesh, const int coordinates[4], int pp);

// The ranks that differ from `rank` along `axis` only, `rank` included, by their coordinate.
//   out  [mesh->degree[axis]]
void ot_mesh_group(const ot_mesh *mesh, int rank, ot_axis axis, int *out);

// The same along `count` consecutive atoms from `first` (dp is two axes, a reduction may be any
// run).
//   out  [product of their sizes]
void ot_mesh_atom_group(const ot_mesh *mesh, int rank, int first, int count, int *out);

// The atoms of `axis`: they are consecutive. Count 0 when its degree is 1.
void ot_mesh_atoms(const ot_mesh *mesh, ot_axis axis, int *first, int *count);

const char *ot_axis_name(ot_axis axis);

// "ranks 8: pp 1 dp_replicate 1 dp_shard 2 cp 2 tp 2, etp 1 ep 4 edp 2, atoms 2 2 2", into `out`
// [capacity]. Returns its length.
int64_t ot_mesh_print(const ot_mesh *mesh, char *out, int64_t capacity);

uint64_t ot_mesh_hash(const ot_mesh *mesh);
