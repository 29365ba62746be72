// SPDX-License-Identifier: Apache-2.0
// RL with generation and training at the same time (PipelineRL, Piche et al. 2025): generators take
// new weights between two decode steps, while their sequences live on. This is the flow of
// sequences and weights on a simulated clock: who decodes, trains or waits, and which version of
// the weights makes which token. What the steps do is up to the caller: rl_forecast.h plays lengths
// only, a run decodes and trains a model with the same flow. Pure.
//
//   generators   [take new weights] [start sequences in free slots] [decode step] ...
//   queue        finished groups: all samples of a prompt
//   trainer      [take a batch of groups] [train: version + 1] [publish] ...
//
// A decode step takes decode_s + row_s * rows (a row: a token that the step computes, of a prompt
// or generated), training train_token_s for each generated token and worker. Events at one time:
// trainer first, then generators in order; so a flow depends on its description and on what the
// steps return, not on threads or load.
#pragma once

#include "simulate/rl_queue.h"

typedef enum ot_rl_progress {
  OT_RL_NO_TOKEN,  // its prompt is not yet computed
  OT_RL_TOKEN,
  OT_RL_LAST_TOKEN,  // and it ends
} ot_rl_progress;

// The result of a decode step of a generator.
typedef struct ot_rl_decoded {
  ot_rl_progress *progress;  // [running]
  int64_t rows;
} ot_rl_decoded;

// The actions of steps. A sequence that is cancelled, trained on or dropped is gone after the call.
typedef struct ot_rl_actions {
  // The sequence takes its slot; sets prompt_tokens.
  ot_status (*start)(void *context, ot_rl_sequence *sequence);
  // One step of `running` [count], by slot.
  ot_status (*decode)(void *context, ot_rl_sequence *const *running, int count,
                      ot_rl_decoded *decoded);
  // Its slot becomes free before it has ended.
  ot_status (*cancel)(void *context, ot_rl_sequence *sequence);
  // Trains on whole groups [count]; members of a group are neighbours. `version` is that of the
  // weights before it.
  ot_status (*train)(void *context, ot_rl_sequence *const *batch, int count, int64_t version);
  // A generator takes the weights of `version`.
  ot_status (*take)(void *context, int generator, int64_t version);
  // It will not be used again: too old, or without another sample of its prompt.
  void (*drop)(void *context, ot_rl_sequence *sequence);
  void *context;
} ot_rl_actions;

typedef struct ot_rl_flow ot_rl_flow;

// A generator that fails: its sequences are lost, the others go on.
typedef struct ot_rl_failure {
  int generator;
  double at_s;
} ot_rl_failure;

typedef struct ot_rl_flow_request {
  const ot_rl_fleet *fleet;
  const ot_rl_actions *actions;
  int64_t max_tokens;             // of a sequence, generated
  int64_t warmup;                 // updates before the record begins
  const ot_rl_failure *failures;  // [num_failures]
  int num_failures;
} ot_rl_flow_request;

// Keeps what `request` points to; memory in `arena`, where sequences that are gone are used again.
ot_status ot_rl_flow_create(const ot_rl_flow_request *request, ot_arena *arena, ot_rl_flow **out);

// Runs on until an update is complete. OT_USAGE if none will be: all generators have failed.
ot_status ot_rl_flow_advance(ot_rl_flow *flow);

// A flow at rest: nothing is decoded, trained on or published, and generators take the weights anew
// before they go on. With what waits (ot_rl_flow_queue) it is all that a flow is.
typedef struct ot_rl_flow_point {
  double time_s, record_from_s;
  int64_t version, started;
  ot_rl_group *open;  // of which some members have not begun, or null
} ot_rl_flow_point;

// Brings the flow to a rest: running sequences go on to their ends, none begins, none is trained
// on.
ot_status ot_rl_flow_rest(ot_rl_flow *flow, ot_rl_flow_point *point);
// The point of a new flow whose queue has the groups of another one at rest.
void ot_rl_flow_set(ot_rl_flow *flow, const ot_rl_flow_point *point);
ot_rl_queue *ot_rl_flow_queue(ot_rl_flow *flow);

double ot_rl_flow_time_s(const ot_rl_flow *flow);
int64_t ot_rl_flow_version(const ot_rl_flow *flow);
const ot_rl_record *ot_rl_flow_record(const ot_rl_flow *flow);
