// SPDX-License-Identifier: Apache-2.0
// Where stages of a pipeline wait for each other: messages, which have two sides, and collectives
// of groups that reach over stages. Times are those at which a side is ready; what the other side
// does until then is its own business. Private to simulate/.
#pragma once

#include "simulate/simulate.h"

// One message; its sides are known before anything is replayed.
typedef struct ot_message_meeting {
  int sides;         // that have started it, [0, 2]
  double started_s;  // by the later of them
  double price_s;
} ot_message_meeting;

// A stage at a collective that stages carry out together.
typedef enum ot_arrival_state {
  OT_ARRIVAL_NONE,
  OT_ARRIVAL_WAITS,
  OT_ARRIVAL_GOES
} ot_arrival_state;

typedef struct ot_arrival {
  ot_arrival_state state;
  double ready_s;  // of the stage while it waits; of all when it goes
  const ot_task *task;
} ot_arrival;

typedef struct ot_meetings {
  const ot_pipeline_replay *replay;
  const int *orders;  // [num_stages] which order each replays
  ot_message_meeting *messages;
  int **message_of;  // [num_stages][tasks of the order, in its order] message of the task, or -1
  ot_arrival *arrivals[OT_GROUP_KINDS];  // [num_stages]; null for groups within stages
} ot_meetings;

// Pairs the messages of the orders. OT_BUG for a message without another side, or with one of
// another size. With one stage there is nobody to meet.
ot_status ot_meetings_build(const ot_pipeline_replay *replay, const int *orders, ot_arena *arena,
                            ot_meetings *meetings);

// Stage `stage` comes to `task`, of a group that reaches over stages, ready at `*ready_s`. True
// when all stages of the group have come; `*ready_s` is then when the last was. Call it again until
// it is. OT_BUG when they do not come to the same.
ot_status ot_meetings_arrive(ot_meetings *meetings, int stage, const ot_task *task, double *ready_s,
                             bool *all);

// True when stages carry out `task` together.
bool ot_meetings_joins(const ot_meetings *meetings, const ot_task *task);
