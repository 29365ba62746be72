// SPDX-License-Identifier: Apache-2.0
// What stands around the micro-batches of a step: the count of targets before them, the norm, the
// loss and the clip factor after them. These are the only places where all ranks meet.
#pragma once

#include "graph/graph.h"
#include "schedule/schedule.h"

// Zeroes what the step accumulates and makes 1 / (unmasked targets of all ranks) from
// OT_SCALAR_TARGETS, which each rank's loader has set to its own.
void ot_frame_begin(const ot_graph *graph, const ot_schedule *schedule, ot_arena *arena,
                    ot_segment *segment);

// Zeroes what an order without a backward accumulates. No segment is needed when that is nothing
// (num_tasks 0).
void ot_frame_begin_forward(const ot_graph *graph, ot_arena *arena, ot_segment *segment);

// Brings squares and loss of all ranks together, in rank order, and makes norm and clip factor.
// Bits do not depend on who held what: each entry of squares is made by one rank, the others have
// zero.
void ot_frame_clip(const ot_graph *graph, const ot_schedule *schedule, double clip, ot_arena *arena,
                   ot_segment *segment);
