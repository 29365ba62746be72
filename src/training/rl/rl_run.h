// SPDX-License-Identifier: Apache-2.0
// A run that learns from rewards (`rl:`): generators that decode a model and a trainer that updates
// it. On the simulated clock, which advances by rl.costs, the first trainer rank does the work of
// all generators, and every bit of the run depends on configuration and seed only. On the real
// clock generators are processes, and a tape of what happened gives the same bits again.
#pragma once

#include "advise/rl_split.h"
#include "base/tree.h"
#include "rl/fleet_costs.h"
#include "rl/updater.h"

typedef enum ot_rl_event_kind {
  OT_RL_EVENT_NOTE,
  OT_RL_EVENT_BATCH,  // an update was made from these responses
  OT_RL_EVENT_UPDATE,
  OT_RL_EVENT_VALIDATION,
} ot_rl_event_kind;

// The lag and the speed so far, from the record of the flow.
typedef struct ot_rl_event {
  ot_rl_event_kind kind;
  const char *text;              // note
  int64_t version, updates;      // completed, and of the run
  double time_s;                 // simulated
  ot_rl_answer *const *answers;  // batch: [num_answers], judged, with their versions
  int64_t num_answers;
  const ot_rl_update *update;  // update
  double lag, lag_max;         // update: of the tokens of this batch
  double reward;               // validation: mean
} ot_rl_event;

typedef void (*ot_rl_sink)(void *context, const ot_rl_event *event);

// Faults for tests of the audit; each may be null.
typedef struct ot_rl_faults {
  // A generator has taken the trainer's weights.
  void (*taken)(void *context, ot_runtime *generator);
  // A batch was judged, before advantages.
  void (*judged)(void *context, ot_rl_answer *const *answers, int64_t count);
  void *context;
} ot_rl_faults;

typedef struct ot_rl_request {
  const ot_run *run;
  ot_world *world;          // of the trainer's ranks, null: one. All call ot_rl_run
  const ot_node *settings;  // resolved; null: nothing is written, validated or saved
  bool compare_weights;     // of a generator that takes some with the trainer's
  ot_rl_faults faults;
  const ot_rl_failure *failures;  // [num_failures] of generators
  int num_failures;
  ot_rl_sink sink;
  void *context;       // of sink
  const char *replay;  // the tape of a run on the real clock, which is played again; null: none
  // On the real clock: starts generator `index` of `count`, which runs ot_rl_service_run, and gives
  // the streams to and from it.
  ot_status (*connect)(void *context, int index, int count, int *in, int *out);
  void *connect_context;
} ot_rl_request;

// How it ended.
typedef struct ot_rl_summary {
  bool real;  // seconds are those of a real clock
  ot_rl_fleet fleet;
  ot_rl_forecast predicted;  // by a play of lengths of the first responses
  ot_rl_forecast measured;
  ot_rl_record record;
  int64_t predicted_from;            // responses; 0: too few for a prediction
  double first_reward, last_reward;  // of validations; NaN: none
  int64_t wrong_weights;             // parameters that differed (compare_weights)
  const char *checkpoint;            // in the arena of the run
} ot_rl_summary;

// The fleet that `run` describes. generators 0: to be chosen by ot_rl_split_build.
ot_rl_fleet ot_rl_fleet_of(const ot_run *run);

// The conditions that a split is chosen for, besides `rl:` of the run.
typedef struct ot_rl_question {
  int64_t prompt_tokens;           // of a prompt, on average
  double dollars_per_worker_hour;  // 0: unknown
  const ot_cluster *cluster;       // whose devices are the workers: its prices instead of rl.costs,
                                   // and slots up to its memory. Null: as the run says
} ot_rl_question;

// The split of the fleet, from the lengths of responses that the run expects. `prices`: those of
// the cluster, if there is one.
ot_status ot_rl_choose_split(const ot_run *run, const ot_rl_question *question, ot_arena *arena,
                             ot_rl_split *split, ot_rl_prices *prices);

// OT_USAGE for settings that such a run does not support.
ot_status ot_rl_check(const ot_run *run);

// Runs all updates. `arena` and `summary`, whose texts are in it, are those of the leader.
// Collective over the world. Blocks.
ot_status ot_rl_run(const ot_rl_request *request, ot_arena *arena, ot_rl_summary *summary);
