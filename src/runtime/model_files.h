// SPDX-License-Identifier: Apache-2.0
// Opens what the user names as CHECKPOINT: a checkpoint directory, a run directory (its newest) or
// an HF directory, with its model, its tokenizer and, on demand, a model runtime with its weights.
#pragma once

#include "checkpoint/checkpoint.h"
#include "checkpoint/weights.h"
#include "files/config_file.h"
#include "runtime/model_runtime.h"

typedef struct ot_model_files {
  const char *path;  // of the checkpoint or HF directory
  ot_model model;
  ot_config_notes notes;  // about its config.json
  const char *tokenizer;  // path of its tokenizer.json, or null
  const char *note;       // names newer damaged checkpoints; null: none
} ot_model_files;

// Finds the directory, verifies the `hashes` of a checkpoint (ot_checkpoint_find) and reads
// config.json, with the model settings of `request`. All memory is in `arena`.
ot_status ot_model_files_open(const char *path, ot_checkpoint_hashes hashes,
                              const ot_config_request *request, ot_arena *arena,
                              ot_model_files *files);

// The files of `run`'s initial weights, with its model settings; `path` is null if these are
// random.
ot_status ot_model_files_open_init(const ot_run *run, ot_checkpoint_hashes hashes, ot_arena *arena,
                                   ot_model_files *files);

// Creates a model runtime according to `request`, for the files' model (request->model is ignored),
// and loads the weights; every tensor of the files is accounted for.
ot_status ot_model_files_runtime(const ot_model_files *files, const ot_runtime_request *request,
                                 ot_runtime **runtime);

// Loads the weights of `files` into `runtime`, for any model, and resets its optimizer state.
ot_status ot_runtime_load_weights(ot_runtime *runtime, const ot_model_files *files);

// Access to the weights, moments or master copies of a model in memory, for reading and writing by
// weights.h: `copy` of all parameters of `runtime`, which must outlive it; allocated in `arena`.
// On several ranks all write, and rank 0 leads reads (ot_runtime_read_leader).
ot_weight_access ot_weight_access_of(ot_arena *arena, ot_runtime *runtime, ot_parameter_copy copy);
