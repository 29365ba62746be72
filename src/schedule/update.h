// SPDX-License-Identifier: Apache-2.0
// Segments of step-level work on one block: squared gradient norms, clip factor, optimizer. Each
// part of a parameter is updated by its own task, so norms are per tensor as HF names them and Muon
// sees the matrices it must (q, k, v, gate and up apart).
#pragma once

#include "describe/run.h"
#include "schedule/schedule.h"

// Parts of the parameters of `block`, and of all blocks before it: offsets of squares and updates.
int ot_update_parts(const ot_graph *graph, int block);
int ot_update_first_part(const ot_graph *graph, int block);

// Zeroes what a step (or an evaluation) accumulates: losses, and the statistics of all blocks.
void ot_update_begin(const ot_graph *graph, ot_arena *arena, ot_segment *segment);

// Fills the tables. No segment is needed when the graph has none (num_tasks 0).
void ot_update_setup(const ot_graph *graph, ot_arena *arena, ot_segment *segment);

// Adds the accumulators of tied uses in `user` to those of the parameters they are tied to.
void ot_update_tie(const ot_graph *graph, int user, ot_arena *arena, ot_segment *segment);

void ot_update_norm(const ot_graph *graph, int block, ot_arena *arena, ot_segment *segment);

void ot_update_clip(const ot_graph *graph, double clip, ot_arena *arena, ot_segment *segment);

void ot_update_apply(const ot_graph *graph, const ot_run *run, int block, ot_arena *arena,
                     ot_segment *segment);
