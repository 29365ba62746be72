// SPDX-License-Identifier: Apache-2.0
// One training run in memory, on one of its ranks: data, model, optimizer state, position. Steps
// are taken one by one by whoever drives it (train/loop.c, tests, audits). What follows is
// collective over the world but for the questions (position, total_steps, micro_batches, instance,
// timeline, show_batch), and fails on all ranks or on none.
#pragma once

#include "data/feed.h"
#include "data/rows.h"
#include "schedule/timeline.h"
#include "train/health.h"
#include "train/metrics.h"
#include "train/training_state.h"

typedef struct ot_trainer ot_trainer;

typedef struct ot_step_report {
  int64_t step;          // completed steps, this one included
  int64_t tokens;        // trained on so far, this step included
  int64_t step_tokens;   // of this step
  int micro_batches;     // of each rank in this step
  double loss;           // mean nats per unmasked target
  double gradient_norm;  // before clipping
  double learning_rate;
  ot_metrics_experts experts;  // NAN where the model has none
  double noise_scale_tokens;   // averaged over the steps of this process; NAN where it is not known
  double step_seconds;         // data and optimizer included
  double start_s;              // clock of this rank when its order began
} ot_step_report;

// Faults put in from outside, for tests of what audits find: places where a program could have one.
// Any of them may be null.
typedef struct ot_trainer_hooks {
  // As ot_instance_request; `unchecked`: the schedule is run whatever its check says of it.
  void (*amend)(ot_schedule *schedule, ot_arena *arena, void *context);
  bool unchecked;
  // Rows of a micro-batch as they were read, before context parallelism cuts them.
  void (*rows)(const ot_trainer *trainer, int micro_batch, ot_rows *rows, void *context);
  void (*before)(ot_trainer *trainer, void *context);   // batches and scalars of a step are set
  void (*after)(ot_trainer *trainer, void *context);    // a step was run, and is not yet read
  void (*resumed)(ot_trainer *trainer, void *context);  // a checkpoint was read
  void *context;
  int64_t audit_bytes;  // that an audit may take on a rank beside the run; 0: the usual 1 GiB
} ot_trainer_hooks;

// Opens data and tokenizer, builds the schedule, takes the memory, sets initial weights (random, or
// from run->init). Keeps `run`, `settings` and `team` (null: one rank) until destroy.
ot_status ot_trainer_create(const ot_run *run, const ot_node *settings, ot_team *team,
                            ot_trainer **out);
void ot_trainer_destroy(ot_trainer **trainer);

// The same with `hooks` (copied; null: none), which audits give on to the trainers that they make.
ot_status ot_trainer_create_hooked(const ot_run *run, ot_team *team, const ot_trainer_hooks *hooks,
                                   ot_trainer **out);
// What the user should know of the weights of run->init, on the leader; null: nothing.
const char *ot_trainer_note(const ot_trainer *trainer);
const ot_trainer_hooks *ot_trainer_get_hooks(const ot_trainer *trainer);
ot_team *ot_trainer_team(const ot_trainer *trainer);
const ot_feed *ot_trainer_feed(const ot_trainer *trainer);

// OT_USAGE or OT_ENVIRONMENT for what settings can say and training on this back end cannot do:
// types that it lacks among it.
ot_status ot_trainer_check(const ot_run *run);

// The request that the memory of a rank follows from; for a dry run, predictions and `orthant
// schedule`, too, which take types that this back end lacks.
// mesh, rank and comm of `request` say which rank, and are kept; the rest is filled in, lists in
// `arena`.
ot_status ot_trainer_request(const ot_run *run, ot_arena *arena, ot_instance_request *request);

// Takes one step. From now on, a rank that others wait for longer than parallel.watchdog_seconds is
// named and the run ends. OT_NUMERIC, naming the step, when loss or
// gradient norm is not finite.
ot_status ot_trainer_step(ot_trainer *trainer, ot_step_report *report);

// Mean nats per target of validation set `set` (index in run->data.validation), over
// validation_tokens of it.
ot_status ot_trainer_validate(ot_trainer *trainer, int set, double *loss);

// A rank waits for each piece that the writer asks for, so that the watchdog counts from the last
// progress: a slow disk ends no run while pieces follow each other.
ot_status ot_trainer_save(ot_trainer *trainer, const char *path);

// Continues from the checkpoint at `path`, which ot_checkpoint_find or ot_checkpoint_newest found.
ot_status ot_trainer_resume(ot_trainer *trainer, const char *path);

ot_position ot_trainer_position(const ot_trainer *trainer);
// The next step is the one behind `position`; weights and optimizer state stay what they are.
void ot_trainer_set_position(ot_trainer *trainer, const ot_position *position);
int64_t ot_trainer_total_steps(const ot_trainer *trainer);
const ot_run *ot_trainer_run(const ot_trainer *trainer);
// Micro-batches of the last step; 0 before the first one of this process.
int ot_trainer_micro_batches(const ot_trainer *trainer);
ot_instance *ot_trainer_instance(const ot_trainer *trainer);

// Of the last step; arrays live in `arena`.
ot_status ot_trainer_health(const ot_trainer *trainer, ot_arena *arena, ot_health *health);

// Timeline of the last step; null unless tracing was on.
void ot_trainer_set_trace(ot_trainer *trainer, bool on);
const ot_timeline *ot_trainer_timeline(const ot_trainer *trainer);

// Decodes the first row of the next batch as text into `arena`, for --show-batch.
ot_status ot_trainer_show_batch(ot_trainer *trainer, ot_arena *arena, const char **text);
