// SPDX-License-Identifier: Apache-2.0
// The request for one rank: the graphs of its modes, cut by its place in the mesh, and their
// schedule. For runtimes, dry runs and predictions alike. Pure.
#pragma once

#include "schedule/build.h"

typedef struct ot_rank_request {
  unsigned modes;  // bits 1 << ot_mode
  // The common part of the modes. Its mode, split, and what follows from schedule.run are set by
  // ot_rank_build; micro-batches are those of modes without a cache.
  ot_graph_request graph;
  ot_schedule_request schedule;  // ot_rank_build sets graphs, whole and stages
} ot_rank_request;

// `graphs` [OT_MODES] receives those of the modes. The schedule is not checked.
ot_status ot_rank_build(const ot_rank_request *request, ot_arena *arena, ot_graph *graphs,
                        ot_schedule *schedule);

// The graph of the unsharded model.
ot_status ot_rank_build_whole(const ot_rank_request *request, ot_mode mode, ot_arena *arena,
                              ot_graph *graph);

// Whether ranks have parts of parameters. `mesh` null: one rank.
bool ot_mesh_splits_parameters(const ot_mesh *mesh);

// The sequences of one micro-batch of all replicas.
int64_t ot_run_round_sequences(const ot_run *run, const ot_mesh *mesh);

// The request for `rank` in training of `run`, without a schedule from a file (order_csv). Threads
// are those of the run. Lists are in `arena`. OT_USAGE if the run does not fit the mesh.
//   mesh  null: one rank
ot_status ot_rank_request_train(const ot_run *run, const ot_mesh *mesh, int rank, ot_arena *arena,
                                ot_rank_request *out);

// The rank that stands for a stage in predictions: the last of tp, which has the most rows of a
// vocabulary that tp does not divide.
int ot_rank_of_stage(const ot_mesh *mesh, int stage);
