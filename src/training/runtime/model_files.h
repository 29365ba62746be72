// SPDX-License-Identifier: Apache-2.0
// Opens what the user names as CHECKPOINT: a checkpoint directory, a run directory (its newest) or
// an HF directory, with its model, its tokenizer and, on demand, a model runtime with its weights.
#pragma once

#include "checkpoint/checkpoint_list.h"
#include "checkpoint/weights.h"
#include "files/config_file.h"
#include "runtime/model_runtime.h"

typedef struct ot_model_files {
  const char *path;  // of the checkpoint or HF directory
  ot_model model;
  ot_config_notes notes;  // about its config.json
  const char *tokenizer;  // path of its tokenizer.json, or null
  const char *note;       // names newer damaged checkpoints; null: none
  // How they were found, to find others if these turn out to be damaged.
  ot_arena *arena;
  const char *given;
  ot_checkpoint_hashes hashes;
  ot_config_request request;
  ot_checkpoint_damage_list damages;
  int64_t step;  // of the checkpoint
} ot_model_files;

// Finds the directory, verifies the `hashes` of a checkpoint (ot_checkpoint_find) and reads
// config.json, with the model settings of `request`. All memory is in `arena`, which is kept, as
// are the texts of `request`.
ot_status ot_model_files_open(const char *path, ot_checkpoint_hashes hashes,
                              const ot_config_request *request, ot_arena *arena,
                              ot_model_files *files);

// After these files turned out to be damaged, as the last failure says: those of the newest
// checkpoint before it that are not. Fails if there is none, or if its model is another one.
ot_status ot_model_files_fall_back(ot_model_files *files);

// The files of `run`'s initial weights, with its model settings; `path` is null if these are
// random.
ot_status ot_model_files_open_init(const ot_run *run, ot_checkpoint_hashes hashes, ot_arena *arena,
                                   ot_model_files *files);

// Creates a model runtime according to `request`, for the files' model (request->rank.graph.model
// is ignored), and loads the weights; every tensor of the files is accounted for. Falls back from
// damaged files: files->note and files->path tell.
ot_status ot_model_files_runtime(ot_model_files *files, const ot_runtime_request *request,
                                 ot_runtime **runtime);

// Loads the weights of `files` into `runtime`, for any model, and resets its optimizer state.
// *damaged: it failed because the files are not those that were saved; the weights are undefined.
ot_status ot_runtime_load_weights(ot_runtime *runtime, const ot_model_files *files, bool *damaged);

// Access to the weights, moments or master copies of a model in memory, for reading and writing by
// weights.h: `copy` of all parameters of `runtime`, which must outlive it; allocated in `arena`.
// On several ranks all write, and rank 0 leads reads (ot_runtime_read_leader).
ot_weight_access ot_weight_access_of(ot_arena *arena, ot_runtime *runtime, ot_parameter_copy copy);
