// SPDX-License-Identifier: Apache-2.0
// RUN.yaml and --set KEY=VALUE, common to all verbs on a run, and CHECKPOINT and --tokenizer,
// common to all verbs on a trained model.
#pragma once

#include "cli/options.h"
#include "describe/mesh.h"
#include "files/config_file.h"
#include "runtime/model_files.h"
#include "tokenizer/encoder.h"
#include "tokenizer/special_tokens.h"
#include "tokenizer/tokenizer.h"

// Rows of verbs on a run: --ranks and --set.
extern const ot_option ot_option_ranks, ot_option_set;

// Loads and checks the run named by argument 0 with its --set. Its notes are not printed. Lives in
// `arena`.
ot_status ot_run_options_load(const ot_options *options, ot_arena *arena, ot_config *config);

// Reads the configuration of the files that the run starts from, so that errors appear before ranks
// start, and adds its notes to those of the run.
ot_status ot_run_options_check_init(ot_config *config, ot_arena *arena);

// The mesh of the run on `ranks` ranks, which its batches fit; failures name a place of the run.
ot_status ot_run_options_mesh(const ot_config *config, int ranks, ot_arena *arena, ot_mesh *mesh);

// Rows of verbs on a model: --tokenizer, --set, --threads, --device, and --pp next to --ranks.
extern const ot_option ot_option_tokenizer, ot_option_model_set, ot_option_threads;
extern const ot_option ot_option_device, ot_option_pp;
extern const char ot_option_instead_of_cp[];

typedef struct ot_opened_model {
  ot_model_files files;
  ot_tokenizer *tokenizer;  // null when the checkpoint has none and none is named
  ot_encoder *encoder;      // as the tokenizer
  ot_special_tokens special;
  const char *note;  // on the tokenizer, or null
} ot_opened_model;

// Opens the model named by argument 0 and its tokenizer, whose encoder refuses texts with tokens
// that the model lacks. The notes are not printed. The caller zeroes `model` before and releases it
// in every case.
ot_status ot_model_options_open(const ot_options *options, ot_arena *arena, ot_opened_model *model);

// The back end of --device.
ot_backend ot_model_options_backend(const ot_options *options);

void ot_opened_model_release(ot_opened_model *model);
