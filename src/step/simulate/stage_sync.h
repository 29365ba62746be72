// SPDX-License-Identifier: Apache-2.0
// Synchronisation between pipeline stages: messages with two sides, and collectives of groups that
// span stages. Times are when a side is ready, regardless of what the other side does until then.
// Private to simulate/.
#pragma once

#include "simulate/simulate.h"

// One message; its sides are known before the replay.
typedef struct ot_message_match {
  int sides;         // number of sides that have started it, [0, 2]
  double started_s;  // start of the later side
  double price_s;
} ot_message_match;

// State of a stage at a collective that spans stages.
typedef enum ot_arrival_state {
  OT_ARRIVAL_NONE,
  OT_ARRIVAL_WAITS,
  OT_ARRIVAL_GOES
} ot_arrival_state;

typedef struct ot_arrival {
  ot_arrival_state state;
  double ready_s;  // time of the stage while it waits; of all when the collective starts
  const ot_task *task;
} ot_arrival;

typedef struct ot_stage_sync {
  const ot_pipeline_replay *replay;
  const int *orders;  // [num_stages] index of the order that each replays
  ot_message_match *messages;
  int **message_of;  // [num_stages][tasks of the order] message of the task, or -1
  ot_arrival *arrivals[OT_GROUP_KINDS];  // [num_stages]; null for groups within stages
} ot_stage_sync;

// Matches the messages of the orders. OT_BUG for a message without a counterpart, or with one of
// another size. Does nothing with one stage.
ot_status ot_stage_sync_build(const ot_pipeline_replay *replay, const int *orders, ot_arena *arena,
                              ot_stage_sync *meetings);

// Stage `stage` reaches `task` of a group that spans stages, ready at `*ready_s`. True when all
// stages of the group have reached it; `*ready_s` is then the time of the last. Call it again until
// then. OT_BUG if the stages reach different tasks.
ot_status ot_stage_sync_arrive(ot_stage_sync *meetings, int stage, const ot_task *task,
                               double *ready_s, bool *all);

// True if the group of `task` spans stages.
bool ot_stage_sync_spans(const ot_stage_sync *meetings, const ot_task *task);
