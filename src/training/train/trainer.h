// SPDX-License-Identifier: Apache-2.0
// A training run in memory, on one of its ranks: data, model, optimizer state, position. The caller
// (train/train.c, tests, audits) drives the steps. All functions are collective over the world
// except queries (position, total_steps, micro_batches, runtime, timeline, show_batch), and fail
// on all ranks or on none.
#pragma once

#include "data/data_loader.h"
#include "data/micro_batch.h"
#include "record/metrics.h"
#include "runtime/health.h"
#include "runtime/step_transfer.h"
#include "schedule/timeline.h"
#include "state/training_state.h"

typedef struct ot_trainer ot_trainer;

typedef struct ot_step_report {
  int64_t step;          // completed steps, this one included
  int64_t tokens;        // trained on so far, this step included
  int64_t step_tokens;   // of this step
  int micro_batches;     // per rank in this step
  double loss;           // mean nats per unmasked target
  double data_loss;      // with a teacher: of the data's targets, which `loss` is not; else NAN
  double teacher_kl;     // KL of teacher and model, nats a token, either way round; NAN if unknown
  double gradient_norm;  // before clipping
  double learning_rate;
  ot_metrics_experts experts;  // NAN if the model has none
  double noise_scale_tokens;   // average over the steps of this process; NAN if unknown
  double step_seconds;         // including data and optimizer
  double start_s;              // this rank's clock at the start of the step
  double compute_s;            // CPU time of this rank's thread besides waits for others
} ot_step_report;

// Fault injection for tests of the audits. Each hook may be null.
typedef struct ot_trainer_hooks {
  // See ot_runtime_request; `unchecked`: runs the schedule even if its check fails.
  void (*amend)(ot_schedule *schedule, ot_arena *arena, void *context);
  bool unchecked;
  // Tokens of a micro-batch as read, before context parallelism shards them.
  void (*rows)(const ot_trainer *trainer, int micro_batch, ot_micro_batch *rows, void *context);
  void (*before)(ot_trainer *trainer, void *context);   // batches and scalars of a step are set
  void (*after)(ot_trainer *trainer, void *context);    // a step has run, results are unread
  void (*resumed)(ot_trainer *trainer, void *context);  // a checkpoint was read
  void *context;
  int64_t audit_bytes;  // memory an audit may use per rank in addition to the run; 0: 1 GiB
} ot_trainer_hooks;

// Opens data and tokenizer, builds the schedule, allocates the memory, sets initial weights
// (random, or from run->init). Keeps `run`, `settings` and `world` (null: one rank) until destroy.
ot_status ot_trainer_create(const ot_run *run, const ot_node *settings, ot_world *world,
                            ot_trainer **out);
void ot_trainer_destroy(ot_trainer **trainer);

// The same with `hooks` (copied; null: none), which audits pass on to the trainers that they
// create.
ot_status ot_trainer_create_hooked(const ot_run *run, ot_world *world,
                                   const ot_trainer_hooks *hooks, ot_trainer **out);

// Sets the hooks of steps: all but `amend`. Kept by value.
void ot_trainer_set_hooks(ot_trainer *trainer, const ot_trainer_hooks *hooks);

// A note for the user, on the leader: about the weights of run->init or, once resumed, about the
// checkpoint. Null: none.
const char *ot_trainer_note(const ot_trainer *trainer);
const ot_trainer_hooks *ot_trainer_get_hooks(const ot_trainer *trainer);
ot_world *ot_trainer_world(const ot_trainer *trainer);
const ot_data_loader *ot_trainer_data_loader(const ot_trainer *trainer);

// OT_USAGE or OT_ENVIRONMENT for settings that training on this back end does not support, such as
// dtypes.
ot_status ot_trainer_check(const ot_run *run);

// Runs one step. From then on, a rank that others wait for longer than parallel.watchdog_seconds is
// named and the run ends. OT_NUMERIC, naming the step, if loss or gradient norm is not finite.
// OT_STOPPED on all ranks, with weights, optimizer state and position as before, if a rank left the
// step (ot_executor_set_leave).
ot_status ot_trainer_step(ot_trainer *trainer, ot_step_report *report);

// Hashes the gradients of the first micro-batches of the next step, computed on the samples of rank
// `data_index` of data parallelism: ranks that differ in their position there only, and experts'
// ranks alike, get the same hashes for the same samples. For runs with ot_run_checks_compute. Takes
// no step; see ot_runtime_hash_gradients.
ot_status ot_trainer_hash_gradients(ot_trainer *trainer, int data_index, int64_t *hashes);

// Mean nats per target of validation set `set` (index in run->data.validation), over
// validation_tokens of it.
ot_status ot_trainer_validate(ot_trainer *trainer, int set, double *loss);

// Saves the state as the checkpoint at the leader's `path`. A slow disk does not end the run: ranks
// that wait meet more often than the watchdog looks.
ot_status ot_trainer_save(ot_trainer *trainer, const char *path);

// Continues from the checkpoint at `path`, which ot_checkpoint_find or ot_checkpoint_newest found.
ot_status ot_trainer_resume(ot_trainer *trainer, const char *path);

// Whether the last resume failed because the checkpoint is damaged: another may be loaded.
bool ot_trainer_found_damage(const ot_trainer *trainer);

// The request for a save of the state as the checkpoint at `path`, for state_save.h. Valid until
// the next step; its pointers, until destroy.
ot_state_request ot_trainer_state(const ot_trainer *trainer, const char *path);

ot_position ot_trainer_position(const ot_trainer *trainer);
// The next step is the one after `position`; weights and optimizer state do not change.
void ot_trainer_set_position(ot_trainer *trainer, const ot_position *position);
// OT_FINDINGS if the position changed in memory, other than by the steps that were taken. Local.
ot_status ot_trainer_check_position(const ot_trainer *trainer);
int64_t ot_trainer_total_steps(const ot_trainer *trainer);
const ot_run *ot_trainer_run(const ot_trainer *trainer);
// Micro-batches of the last step; 0 before the first step of this process.
int ot_trainer_micro_batches(const ot_trainer *trainer);
ot_runtime *ot_trainer_runtime(const ot_trainer *trainer);

// The health of the last step; arrays are in `arena`.
ot_status ot_trainer_health(const ot_trainer *trainer, ot_arena *arena, ot_health *health);

// Timeline of the last step; null unless tracing was on.
void ot_trainer_set_trace(ot_trainer *trainer, bool on);
// See ot_executor_set_events.
ot_status ot_trainer_set_events(ot_trainer *trainer, bool on);
const ot_timeline *ot_trainer_timeline(const ot_trainer *trainer);

// Decodes the first sequence of the next batch as text into `arena`, for --show-batch.
ot_status ot_trainer_show_batch(ot_trainer *trainer, ot_arena *arena, const char **text);
