// SPDX-License-Identifier: Apache-2.0
// What a run and its dry run look at alike before the first step: room on the disk, and settings
// that are allowed and rarely meant. What cannot be is refused where settings are read
// (describe/run.h), data opened (feed.h) and memory taken (instance.h). Private to the loop.
#pragma once

#include "data/feed.h"
#include "train/loop.h"

// Notes for the user: sizes of the model that were not given, a warm-up that the run does not reach
// the end of, a step that takes more tokens than there are. `feed` is the run's, of one rank.
void ot_loop_note_doubts(const ot_loop_request *request, const ot_feed *feed, ot_arena *arena);

// Free bytes where the output goes, and those of one checkpoint. OT_ENVIRONMENT when it does not
// fit. For one rank to call.
typedef struct ot_loop_room {
  int64_t free_bytes, checkpoint_bytes;
} ot_loop_room;
ot_status ot_loop_check_disk(const ot_loop_request *request, ot_arena *arena, ot_loop_room *room);
