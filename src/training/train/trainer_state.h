// SPDX-License-Identifier: Apache-2.0
// The parts of a trainer and of its step (train.c). Private to train/.
#pragma once

#include "runtime/noise_scale.h"
#include "runtime/target_source.h"
#include "state/step_record.h"
#include "train/trainer.h"

struct ot_trainer {
  const ot_run *run;
  const ot_node *settings;
  ot_world *world;  // null: one rank
  ot_trainer_hooks hooks;
  ot_runtime *runtime;
  ot_step_transfer *transfer;
  ot_data_loader *loader;
  ot_target_source targets;    // without context: the run learns from its data alone
  ot_micro_batch rows;         // one micro-batch, whole sequences
  ot_micro_batch part;         // this rank's shards of them, with cp > 1
  ot_position position, twin;  // equal; counted separately
  int64_t total_steps;
  char *note;              // see ot_trainer_note
  bool damaged;            // the checkpoint of the last resume
  int micro_batches;       // of the last step; 0: no step yet
  int64_t last_samples;    // of the last step
  ot_noise_average noise;  // of the steps of this process
  ot_step_record *record;  // of the step that is taken; null: it is not recorded
};

// The samples of a step: micro-batch m of rank d of data parallelism begins with sample
// first + (m * dp + d) * micro_batch_size.
typedef struct ot_step_samples {
  int64_t sequences;         // of all ranks
  int micro_batches;         // per rank
  int data_index;            // the rank of data parallelism whose samples this rank reads
  bool shared;               // all ranks read those of that rank; otherwise each its own
  ot_noise_targets targets;  // unmasked ones of this rank, once loaded
} ot_step_samples;

// ---- parts of a step, in step_parts.c ----

ot_step_samples ot_step_next_samples(const ot_trainer *trainer);

// Loads the samples, with their weighted targets, for the next step. Collective over the world.
ot_status ot_step_load(ot_trainer *trainer, ot_step_samples *samples);
// Lets the source of weighted targets begin with the step after that. Collective over the world.
ot_status ot_step_load_next(ot_trainer *trainer, const ot_step_samples *samples);

// Loads a micro-batch of validation set `set`, from sequence `first` on. Collective over the world.
ot_status ot_step_load_validation(ot_trainer *trainer, int set, int64_t first);

// Sets the scalars of the schedule; returns the learning rate. Local.
double ot_step_set_scalars(ot_trainer *trainer, const ot_step_samples *samples);

// Runs the schedule of report->micro_batches, and fills in its times. Collective over the world.
ot_status ot_step_run(ot_trainer *trainer, ot_step_report *report);

// OT_STOPPED on all ranks if one left the step. Collective over the world.
ot_status ot_step_check_left(ot_trainer *trainer);

// The position after the step, also in the report. Local.
void ot_step_advance(ot_trainer *trainer, const ot_step_samples *samples, ot_step_report *report);

// Losses, norms and figures of the step. Collective over the world.
ot_status ot_step_read_results(ot_trainer *trainer, ot_step_report *report);

// OT_NUMERIC on all ranks, naming step and samples, unless loss and gradient norm are finite.
// Collective over the world.
ot_status ot_step_check_finite(ot_trainer *trainer, const ot_step_report *report);
