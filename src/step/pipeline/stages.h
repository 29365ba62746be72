// SPDX-License-Identifier: Apache-2.0
// Blocks of each pipeline stage. The blocks of a model, in order, are partitioned into num_ranks *
// vpp chunks; chunk c is on stage rank_of[c]: c mod pp (looped), or, for zb-v and dualpipe-v, down
// and back up (chunk c and chunk 2pp-1-c share a rank).
#pragma once

#include "describe/run.h"
#include "graph/graph.h"

typedef struct ot_stages {
  int num_ranks;           // pp
  int num_chunks;          // pp * chunks per stage
  const int *first_block;  // [num_chunks + 1] chunk c holds blocks [first_block[c], [c + 1])
  const int *rank_of;      // [num_chunks] stage
} ot_stages;

// Partitions by parallel->layout (stage_layout.h) if given, else by cost: contiguous chunks that
// minimise the most expensive rank (matrix FLOPs of forward, backward and recompute of the programs
// of `graph`, in train mode unless the model is only run; embedding and head included). All ranks
// must use the same partition, so they pass the graph of the unsharded model. zb-v and
// dualpipe-v have two chunks per stage whatever vpp is (ot_pipeline_chunks). OT_USAGE names what
// does not fit and a valid value.
ot_status ot_stages_build(const ot_graph *graph, const ot_run_parallel *parallel, ot_arena *arena,
                          ot_stages *out);

// The two parts of ot_stages_build: matrix FLOPs of a block's forward, recompute and backward; and
// the partition of blocks with given costs [num_blocks].
double ot_stages_block_cost(const ot_graph *graph, int block, const ot_run_parallel *parallel,
                            ot_arena *arena);
ot_status ot_stages_partition(int num_blocks, const double *cost, const ot_run_parallel *parallel,
                              ot_arena *arena, ot_stages *out);

// The stage of each of `chunks` chunks: looped, or for the V-shaped schedules down the stages and
// back up.
const int *ot_stages_assign(const ot_run_parallel *parallel, int chunks, ot_arena *arena);

// The chunk that holds `block`.
int ot_stages_chunk(const ot_stages *stages, int block);

// True if `chunk` is on stage `rank` and sends its output (backward: the gradient of its input) to
// another stage.
bool ot_stages_chunk_sends(const ot_stages *stages, int chunk, int rank, bool backward);

// Ping-pong gradient buffers inside a chunk, used when I and W run together: block b uses buffer
// ot_stages_ping_pong(b). True if a block of stage `rank` that sends a gradient on (`gives`
// [blocks]) uses buffer `hand`.
int ot_stages_ping_pong(int block);
bool ot_stages_uses_ping_pong(const ot_stages *stages, int rank, int hand, const bool *gives);
