// SPDX-License-Identifier: Apache-2.0
// Loop bodies of repeats (ops/repeat.h) in a segment: their location and the invariants that every
// reader of a schedule relies on.
#pragma once

#include "schedule/schedule.h"

// The repeat whose body contains `task`, or -1.
int ot_segment_repeat_of(const ot_segment *segment, int task);

// Index of collective `task` among the collectives of its group in its body; -1 outside bodies.
// Members of a group run matching bodies if these indices match.
int ot_segment_collective_index(const ot_segment *segment, int task);

// OT_BUG, naming segment and task, for: a body that is empty, exceeds the segment, or contains a
// repeat or a message; a repeat without iteration counts; a collective or repeat whose optional
// in-place input differs from its output.
ot_status ot_segment_check_bodies(const ot_segment *segment);
