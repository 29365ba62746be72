// SPDX-License-Identifier: Apache-2.0
// The parts of a trainer. Private to train/trainer*.c.
#pragma once

#include "distill/distiller.h"
#include "train/noise_scale.h"
#include "train/trainer.h"

struct ot_trainer {
  const ot_run *run;
  const ot_node *settings;
  ot_world *world;  // null: one rank
  ot_trainer_hooks hooks;
  ot_runtime *runtime;
  ot_step_transfer *transfer;
  ot_data_loader *loader;
  ot_distiller *distiller;     // null: no weighted targets
  ot_micro_batch rows;         // one micro-batch, whole sequences
  ot_micro_batch part;         // this rank's shards of them, with cp > 1
  ot_position position, twin;  // equal; counted separately
  int64_t total_steps;
  char *note;              // see ot_trainer_note
  bool damaged;            // the checkpoint of the last resume
  int micro_batches;       // of the last step; 0: no step yet
  int64_t last_samples;    // of the last step
  ot_noise_average noise;  // of the steps of this process
};
