// SPDX-License-Identifier: Apache-2.0
// The state of a run that learns from rewards, on the rank that leads, and what its clocks have in
// common. A clock decides when generators make tokens and take weights, and when a batch is trained
// on: local_fleet.c, real_clock.c, replay_clock.c. Private to rl/.
#pragma once

#include "record/metrics.h"
#include "record/run_directory.h"
#include "rl/generator.h"
#include "rl/rl_run.h"

// A forecast is from the lengths of the first responses by number; on the real clock, whose costs
// are known later, from those of the latest that ended.
enum { OT_RL_FORECAST_FROM = 256, OT_RL_FORECAST_LATEST = 2048 };

typedef struct ot_rl_state ot_rl_state;

// The state of a clock in a checkpoint, besides weights and optimizer.
typedef struct ot_rl_point {
  ot_rl_flow_point flow;
  ot_rl_queue *queue;
  int num_next;   // generators of the real clock
  int64_t *next;  // [num_next] groups that each begins next, of its own
} ot_rl_point;

typedef struct ot_rl_clock {
  ot_status (*create)(ot_rl_state *state);
  // Runs until an update is complete, and sets version, time_s and record.
  ot_status (*advance)(ot_rl_state *state);
  // Brings the clock to a point that a checkpoint can hold; `queue` null: there is none.
  ot_status (*rest)(ot_rl_state *state, ot_rl_point *point);
  // The queue of a new clock, and its point once the queue is filled.
  ot_rl_queue *(*queue)(ot_rl_state *state);
  void (*set)(ot_rl_state *state, const ot_rl_point *point);
  void (*destroy)(ot_rl_state *state);
} ot_rl_clock;

extern const ot_rl_clock ot_rl_simulated_clock, ot_rl_real_clock, ot_rl_replay_clock;

struct ot_rl_state {
  const ot_rl_request *request;
  const ot_run *run;
  ot_arena *arena;
  ot_rl_fleet fleet;
  ot_tokenizer *tokenizer;
  ot_encoder *encoder;
  ot_rl_prompts prompts, validation;
  ot_special_tokens special;  // what ends responses
  ot_rl_updater *updater;
  ot_rl_generator *validator;  // null without validation
  ot_rl_answer *spare;
  ot_rl_answer **batch;  // [fleet.batch]
  ot_run_directory *directory;
  ot_metrics *metrics;
  int32_t lengths[OT_RL_FORECAST_LATEST];  // 0: not yet known
  int64_t num_lengths;                     // of the latest
  ot_rl_update update;                     // the last one
  double batch_lag, batch_lag_max;
  ot_rl_summary *summary;
  const ot_rl_clock *clock;
  void *clock_state;                     // of the clock
  struct ot_rl_local_fleet *fleet_here;  // generators in this process (local_fleet.c)
  int64_t version;                       // updates so far
  int64_t saved;                         // of them, in the newest checkpoint
  int failed_saves;                      // in a row
  double time_s;
  const ot_rl_record *record;
};

void ot_rl_tell(const ot_rl_state *state, ot_rl_event event);

// Responses with room for max_tokens.
ot_rl_answer *ot_rl_answer_take(ot_rl_state *state);
void ot_rl_answer_leave(ot_rl_state *state, ot_rl_answer *answer);

// Judges the responses of a batch and trains on them.
ot_status ot_rl_state_train(ot_rl_state *state, ot_rl_sequence *const *batch, int count,
                            int64_t version);

// The request for generators of this run.
ot_rl_generator_request ot_rl_state_generator(const ot_rl_state *state);

// ---- local_fleet.c: generators in this process, for the clocks on which they take turns ----

// Creates the generators of the fleet, with the trainer's weights.
ot_status ot_rl_local_create(ot_rl_state *state);
void ot_rl_local_destroy(ot_rl_state *state);
// The actions of generators and trainer in this process.
const ot_rl_actions *ot_rl_local_actions(const ot_rl_state *state);

// ---- rl_report.c: files, and the forecast ----

ot_status ot_rl_report_open(ot_rl_state *state);
ot_status ot_rl_report_update(ot_rl_state *state);
ot_status ot_rl_report_predict(ot_rl_state *state);
// Saves if it is time, or `now`. A save that fails for want of files or space is a note; it ends
// the run if it is the last one, or OT_FAILED_SAVES_MAX have failed in a row.
ot_status ot_rl_report_save(ot_rl_state *state, bool now);

// ---- rl_point.c: the state of a clock as JSON ----

const char *ot_rl_point_print(const ot_rl_state *state, const ot_rl_point *point);
// Fills the queue of `state` and sets its clock. OT_ENVIRONMENT if `text` is no such state; `path`
// for messages.
ot_status ot_rl_point_read(ot_rl_state *state, const char *path, const char *text);

int64_t ot_rl_state_mean_prompt(const ot_rl_state *state);
