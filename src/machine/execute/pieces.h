// SPDX-License-Identifier: Apache-2.0
// The parts of entries that a GPU runs as one CUDA graph. A piece is the longest run of kernels of
// a segment between which nothing waits for another lane. The host queues each kernel in
// microseconds, which shows where kernels are short; it queues a graph as fast as one kernel.
//
// Entries with the same segment and bases run the same work on the same memory, so they share
// graphs: a step of many micro-batches has as many as one micro-batch, where slots are reused. A
// piece runs kernel by kernel the first time, when products choose algorithms, and is captured the
// second time.
#pragma once

#include "device/device.h"
#include "schedule/schedule.h"

typedef struct ot_piece {
  bool has_run, refused;  // refused: it cannot be captured
  ot_captured *captured;
} ot_piece;

typedef struct ot_pieces {
  const ot_schedule *schedule;
  int **length;      // [num_segments][num_tasks] of the piece that begins there; 0: none does
  int **variant;     // [num_orders][num_entries] entries that share graphs have the same number
  ot_piece **piece;  // [num_variants][num_tasks of its segment]
  int *tasks;        // [num_variants] of its segment
  int num_variants;
} ot_pieces;

// Keeps `schedule`; tables live in `arena`.
void ot_pieces_create(const ot_schedule *schedule, ot_arena *arena, ot_pieces *pieces);
void ot_pieces_destroy(ot_pieces *pieces);

// The piece that begins at `task` and its number of tasks; null: none does, or there are no tables.
ot_piece *ot_pieces_at(const ot_pieces *pieces, int order, int entry, int task, int *length);

// Pieces that are graphs, and those that could not be captured.
void ot_pieces_count(const ot_pieces *pieces, int *captured, int *refused);

// Captures anew what runs next, because kernels will do otherwise.
void ot_pieces_forget(ot_pieces *pieces);
