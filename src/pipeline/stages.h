// SPDX-License-Identifier: Apache-2.0
// Which blocks each stage of a pipeline holds. The blocks of a model, in order, are cut into
// num_ranks * vpp chunks; chunk c stands on stage rank_of[c]: c mod pp (looped), or, for zb-v, down
// and back up (chunk c and chunk 2pp-1-c share a rank).
#pragma once

#include "describe/run.h"
#include "graph/graph.h"

typedef struct ot_stages {
  int num_ranks;           // pp
  int num_chunks;          // pp * chunks a stage
  const int *first_block;  // [num_chunks + 1] chunk c holds blocks [first_block[c], [c + 1])
  const int *rank_of;      // [num_chunks] stage
} ot_stages;

// Cuts by parallel->layout (stage_layout.h) when it is given, else by cost: contiguous chunks whose
// most expensive rank is as cheap as can be (matrix FLOPs of forward, backward and recompute of the
// programs of `graph`, which must be in train mode; embedding and head count). All ranks must cut
// alike, so they give the graph of the whole model, not that of their parts. zb-v has two chunks a
// stage whatever vpp says (ot_pipeline_chunks). OT_USAGE naming what does not fit and what would.
ot_status ot_stages_build(const ot_graph *graph, const ot_run_parallel *parallel, ot_arena *arena,
                          ot_stages *out);

// Its two halves: matrix FLOPs of a block's forward and backward, and of what is made again between
// them; and the cut of blocks of any costs [num_blocks].
double ot_stages_block_cost(const ot_graph *graph, int block, const ot_run_parallel *parallel,
                            ot_arena *arena);
ot_status ot_stages_cut(int num_blocks, const double *cost, const ot_run_parallel *parallel,
                        ot_arena *arena, ot_stages *out);

// The stage of each of `chunks` chunks: looped, or for zb-v down the stages and back up.
const int *ot_stages_place(const ot_run_parallel *parallel, int chunks, ot_arena *arena);

// The chunk that holds `block`.
int ot_stages_chunk(const ot_stages *stages, int block);

// True when `chunk` is on stage `rank` and hands what it makes, backwards the gradient of its
// input, to another stage.
bool ot_stages_chunk_sends(const ot_stages *stages, int chunk, int rank, bool backward);

// Two buffers take turns with the gradients between blocks of a chunk when I and W run at once:
// that of block b lies in ot_stages_hand(b). True when some block of stage `rank` uses `hand`, of
// those that hand something to the next (`gives` [blocks]).
int ot_stages_hand(int block);
bool ot_stages_uses_hand(const ot_stages *stages, int rank, int hand, const bool *gives);
