// SPDX-License-Identifier: Apache-2.0
// What the user means by CHECKPOINT, opened for use: a checkpoint directory, a run directory (its
// newest) or an HF directory, with its model, its tokenizer and, on demand, an instance that holds
// its weights.
#pragma once

#include "train/checkpoint.h"
#include "train/instance.h"

typedef struct ot_model_files {
  const char *path;  // of the checkpoint or HF directory
  ot_model model;
  const char *tokenizer;  // path of its tokenizer.json, or null
} ot_model_files;

// Finds and reads config.json. Everything lives in `arena`.
ot_status ot_model_files_open(const char *path, ot_arena *arena, ot_model_files *files);

// Creates an instance as `request` says, of the files' model (request->model is not read), and
// loads the weights; every tensor of the files is accounted for.
ot_status ot_model_files_instance(const ot_model_files *files, const ot_instance_request *request,
                                  ot_instance **instance);

// Loads the weights at `path` into `instance` and resets its optimizer state.
ot_status ot_instance_load_weights(ot_instance *instance, const char *path);
