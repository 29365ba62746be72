// SPDX-License-Identifier: Apache-2.0
// What the user means by CHECKPOINT, opened for use: a checkpoint directory, a run directory (its
// newest) or an HF directory, with its model, its tokenizer and, on demand, an instance that holds
// its weights.
#pragma once

#include "checkpoint/checkpoint.h"
#include "checkpoint/weights.h"
#include "files/config_file.h"
#include "runtime/instance.h"

typedef struct ot_model_files {
  const char *path;  // of the checkpoint or HF directory
  ot_model model;
  ot_config_notes notes;  // about its config.json
  const char *tokenizer;  // path of its tokenizer.json, or null
  const char *note;       // names newer checkpoints that are damaged; null: none are
} ot_model_files;

// Finds the directory, verifies the `hashes` of a checkpoint (ot_checkpoint_find) and reads
// config.json, with the settings of the model in `request`. Everything lives in `arena`.
ot_status ot_model_files_open(const char *path, ot_checkpoint_hashes hashes,
                              const ot_config_request *request, ot_arena *arena,
                              ot_model_files *files);

// The files that `run` starts from, with its settings of the model; `path` is null when its initial
// weights are random.
ot_status ot_model_files_open_init(const ot_run *run, ot_checkpoint_hashes hashes, ot_arena *arena,
                                   ot_model_files *files);

// Creates an instance as `request` says, of the files' model (request->model is not read), and
// loads the weights; every tensor of the files is accounted for.
ot_status ot_model_files_instance(const ot_model_files *files, const ot_instance_request *request,
                                  ot_instance **instance);

// Loads the weights of `files` into `instance`, whatever model it is of, and resets its optimizer
// state.
ot_status ot_instance_load_weights(ot_instance *instance, const ot_model_files *files);

// The weights, moments and master copies of a model in memory, as weights.h reads and writes them:
// `copy` of all parameters of `instance`, which must outlive it; lives in `arena`. Many ranks: all
// write, and read where rank 0 leads (ot_instance_lead_read).
ot_weight_access ot_weight_access_of(ot_arena *arena, ot_instance *instance,
                                     ot_parameter_copy copy);
