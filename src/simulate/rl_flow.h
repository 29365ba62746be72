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

#include "base/arena.h"
#include "base/status.h"
#include "describe/rl.h"

typedef struct ot_rl_fleet {
  ot_rl_updates updates;
  int workers;     // in all, >= 1; in flight >= 2
  int generators;  // of these; the others train. Synchronous: ignored
  int slots;       // sequences that a generator decodes at once, >= 1
  int group;       // samples of a prompt, >= 1
  int batch;       // sequences of an update, whole groups
  int queue;       // generators start no sequence while that many wait, >= batch
  int max_lag;     // versions; a sequence with an older token is dropped. 0: no bound
  bool recompute;  // with new weights, K and V of running sequences are computed again
  ot_rl_costs cost;
} ot_rl_fleet;

// OT_USAGE names a value out of range.
ot_status ot_rl_fleet_check(const ot_rl_fleet *fleet);

// Workers that generate and that train.
int ot_rl_fleet_generators(const ot_rl_fleet *fleet);
int ot_rl_fleet_trainers(const ot_rl_fleet *fleet);

// A sequence from its start until it was trained on.
typedef struct ot_rl_sequence {
  int64_t id;     // in order of starts: group * fleet.group + member
  int64_t group;  // prompts in order of starts
  int generator, slot;
  int64_t prompt_tokens, tokens;  // of the prompt, and generated so far
  int32_t *versions;              // [tokens] of the weights that made each generated token
  double end_s;                   // when it ended
  bool cancelled;                 // ended early; is not trained on
  void *data;                     // the caller's
} ot_rl_sequence;

typedef enum ot_rl_progress {
  OT_RL_NO_TOKEN,  // its prompt is not yet computed
  OT_RL_TOKEN,
  OT_RL_LAST_TOKEN,  // and it ends
} ot_rl_progress;

// What a decode step of a generator did.
typedef struct ot_rl_decoded {
  ot_rl_progress *progress;  // [running]
  int64_t rows;
} ot_rl_decoded;

// What steps do. A sequence that is cancelled, trained on or dropped is gone after the call.
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

enum { OT_RL_LAGS = 1024 };  // lags of that and more are counted together

// What happened from a given update on.
typedef struct ot_rl_record {
  int64_t updates, sequences, tokens;  // trained on
  int64_t made_tokens;                 // generated
  int64_t cancelled, dropped;          // sequences
  double time_s;                       // until the last update
  double lags[OT_RL_LAGS];             // tokens trained on, by lag
  double lag_sum, first_lag_sum;       // of tokens, and of first tokens
  int64_t lag_max;
  double slots_s;       // time integral of sequences that decode
  double generators_s;  // busy time of all generators
  double trainer_s, publish_s;
  double left_sum;  // over updates: sequences in the queue after a batch was taken
  // From the end of a sequence to that of its group: sums over tokens and over sequences.
  double wait_s, first_wait_s;
} ot_rl_record;

double ot_rl_record_lag(const ot_rl_record *record);  // mean over tokens
// The smallest lag that `share` of the tokens do not exceed.
int64_t ot_rl_record_lag_quantile(const ot_rl_record *record, double share);

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

double ot_rl_flow_time_s(const ot_rl_flow *flow);
int64_t ot_rl_flow_version(const ot_rl_flow *flow);
const ot_rl_record *ot_rl_flow_record(const ot_rl_flow *flow);
