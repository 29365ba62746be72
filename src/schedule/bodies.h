// SPDX-License-Identifier: Apache-2.0
// Bodies of repeats (ops/repeat.h) in a segment: where they are, and what every reader of a
// schedule relies on.
#pragma once

#include "schedule/schedule.h"

// The repeat whose body task `task` is part of, or -1.
int ot_segment_repeat_of(const ot_segment *segment, int task);

// Of the body that `task`, a collective, is part of: how many collectives of its group come before
// it; -1 where it is in none. Members of a group run bodies alike when these are alike.
int ot_segment_turn(const ot_segment *segment, int task);

// OT_BUG, naming segment and task, for a body that is empty, reaches beyond the segment, or holds a
// repeat or a message; for a repeat without counts of rounds; for communication or a repeat that
// cannot go on with what an absentable in-place input holds, because its output is elsewhere.
ot_status ot_segment_check_bodies(const ot_segment *segment);
