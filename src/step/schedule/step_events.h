// SPDX-License-Identifier: Apache-2.0
// Events of a step of one rank, in order. The receives of flow->first_posts start first. Then, for
// each action: gathers, messages, the work of each block, reductions. At the end: norms, clipping,
// updates. The order builder turns events into entries with addresses; estimates replay them.
#pragma once

#include "schedule/step_outline.h"

typedef enum ot_event_kind {
  OT_EVENT_RECEIVE,      // starts the receive of `message`
  OT_EVENT_GATHER,       // starts the gather of use `use`
  OT_EVENT_RECOMPUTE,    // recomputes the block before its backward
  OT_EVENT_WORK,         // forward, backward or weight gradients of the block, after `message` has
                         // arrived and the send of `sent` is complete
  OT_EVENT_COPY_STACK,   // appends the stack to the output of the block at the edge of a chunk
  OT_EVENT_SEND,         // starts the send of `message`
  OT_EVENT_REDUCE_TIED,  // reduces the head's gradients of the tied block
  OT_EVENT_REDUCE,       // reduces the block's gradients
  OT_EVENT_GATHER_GRADIENT,  // all-gathers the block's reduced gradients, in the last micro-batch
} ot_event_kind;

typedef struct ot_step_event {
  ot_event_kind kind;
  int block;
  int item;               // of the outline, -1 without one
  int use;                // of the outline's gathers
  int32_t message, sent;  // of the flow; -1: none
} ot_step_event;

typedef struct ot_event_request {
  const ot_outline_request *blocks;
  const ot_pipeline_flow *flow;
  const ot_step_outline *outline;  // null where no bucket is gathered or reduced in between
  int tied_owner;  // block whose gradients are complete when the other use's are added, or -1
} ot_event_request;

// Position of a rank in its step.
typedef struct ot_event_cursor {
  int action;   // next of its list
  int gathers;  // begun so far
} ot_event_cursor;

// Events of the next action into `events` [ot_step_most_events]; returns their number.
int ot_step_events(const ot_event_request *request, ot_event_cursor *cursor, ot_step_event *events);

// Largest number of events of an action.
int ot_step_most_events(const ot_event_request *request);

typedef enum ot_end_kind {
  OT_END_TIE,              // the two uses of the tied block's gradient are added
  OT_END_GATHER_GRADIENT,  // their sum is gathered (ZeRO 0)
  OT_END_NORM,             // squares of the block's gradient, once its reduction is complete
  OT_END_CLIP,             // the norm over all ranks; block -1
  OT_END_UPDATE,           // the optimizer on the block
  OT_END_GATHER,           // of its new weights, unless they are gathered before each use
} ot_end_kind;

typedef struct ot_end_event {
  ot_end_kind kind;
  int block;
} ot_end_event;

// Events after the last action into `events` [ot_step_most_end_events]; returns their number. The
// stage of a head that is tied to an embedding on another stage holds a copy of that block, which
// has events, too.
int ot_step_end_events(const ot_event_request *request, ot_end_event *events);

// Most events after the last action.
int ot_step_most_end_events(const ot_event_request *request);
