// SPDX-License-Identifier: Apache-2.0
// One training run in memory: data, model, optimizer state, position. Steps are taken one by one by
// whoever drives it (train/loop.c, tests, audits).
#pragma once

#include "train/training_state.h"

typedef struct ot_trainer ot_trainer;

typedef struct ot_step_report {
  int64_t step;          // completed steps, this one included
  int64_t tokens;        // trained on so far, this step included
  int64_t step_tokens;   // of this step
  double loss;           // mean nats per unmasked target
  double gradient_norm;  // before clipping
  double learning_rate;
  double step_seconds;  // data and optimizer included
  double model_flops;   // of the step (recompute not counted)
} ot_step_report;

// One value of one tensor, layer or head for the health metrics.
typedef struct ot_health_value {
  const char *name;  // HF tensor name, or name of the block
  double value;
} ot_health_value;

// Per-layer health of the last step.
typedef struct ot_health {
  int num_tensors;
  ot_health_value *gradient_norm;  // [num_tensors] norm of each part's gradient
  ot_health_value *update_ratio;   // [num_tensors] |update| / |weight|
  int num_blocks;
  ot_health_value *max_activation;  // [num_blocks] largest |x| that left the block
  ot_health_value *max_logit;       // [num_blocks] largest scaled attention logit, 0 outside layers
} ot_health;

// Opens data and tokenizer, builds the schedule, takes the memory, sets initial weights (random, or
// from run->init). Keeps `run` and `settings` until destroy.
ot_status ot_trainer_create(const ot_run *run, const ot_node *settings, ot_trainer **out);
void ot_trainer_destroy(ot_trainer **trainer);

// The requests that a run's memory follows from; for a dry run and `orthant schedule`.
// `micro_batches` [*num, at most capacity] receives the accumulation counts of the batch ramp.
ot_status ot_trainer_request(const ot_run *run, int *micro_batches, int capacity,
                             ot_instance_request *request);

// Takes one step. OT_NUMERIC, naming the step, when loss or gradient norm is not finite.
ot_status ot_trainer_step(ot_trainer *trainer, ot_step_report *report);

// Mean nats per target of validation set `set` (index in run->data.validation), over
// validation_tokens of it.
ot_status ot_trainer_validate(ot_trainer *trainer, int set, double *loss);

ot_status ot_trainer_save(ot_trainer *trainer, const char *path);

// Continues from the checkpoint at `path`.
ot_status ot_trainer_resume(ot_trainer *trainer, const char *path);

ot_position ot_trainer_position(const ot_trainer *trainer);
int64_t ot_trainer_total_steps(const ot_trainer *trainer);
const ot_instance *ot_trainer_instance(const ot_trainer *trainer);

// Arrays live in `arena`.
void ot_trainer_health(const ot_trainer *trainer, ot_arena *arena, ot_health *health);

// Timeline of the last step; null unless tracing was on.
void ot_trainer_set_trace(ot_trainer *trainer, bool on);
const ot_timeline *ot_trainer_timeline(const ot_trainer *trainer);

// Decodes the first row of the next batch as text into `arena`, for --show-batch.
ot_status ot_trainer_show_batch(ot_trainer *trainer, ot_arena *arena, const char **text);
