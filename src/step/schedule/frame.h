// SPDX-License-Identifier: Apache-2.0
// The start and end of a step: the count of targets before the micro-batches; gradient norm, loss
// and clip factor after them. Only here do all ranks synchronise.
#pragma once

#include "graph/graph.h"
#include "schedule/schedule.h"

// Zeroes the step's accumulators and computes 1 / (unmasked targets of all ranks) from
// OT_SCALAR_TARGETS, which each rank's data loader has set to its own count.
void ot_frame_begin(const ot_graph *graph, const ot_schedule *schedule, ot_arena *arena,
                    ot_segment *segment);

// Zeroes the accumulators of an order without a backward. num_tasks is 0 if there are none.
// Zeroes the hashes of OT_ORDER_CHECKSUM.
void ot_frame_zero_hashes(const ot_graph *graph, const ot_schedule *schedule, ot_arena *arena,
                          ot_segment *segment);

void ot_frame_begin_forward(const ot_graph *graph, ot_arena *arena, ot_segment *segment);

// Reduces squares and loss over all ranks in rank order, and computes norm and clip factor. The
// bits do not depend on the sharding: one rank makes each entry of squares, the others add zero.
void ot_frame_clip(const ot_graph *graph, const ot_schedule *schedule, double clip, ot_arena *arena,
                   ot_segment *segment);
