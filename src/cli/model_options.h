// SPDX-License-Identifier: Apache-2.0
// The words CHECKPOINT and --tokenizer, which every verb on a trained model takes.
#pragma once

#include "cli/options.h"
#include "runtime/model_files.h"
#include "tokenizer/encoder.h"
#include "tokenizer/tokenizer.h"

// Rows of verbs on a model: --tokenizer, --set and --threads.
extern const ot_option ot_option_tokenizer, ot_option_model_set, ot_option_threads;

typedef struct ot_opened_model {
  ot_model_files files;
  ot_tokenizer *tokenizer;  // null when the checkpoint has none and none is named
  ot_encoder *encoder;      // as the tokenizer
} ot_opened_model;

// Opens the model named by argument 0 and its tokenizer, and checks that they fit. `model` is
// zeroed before; release it in every case.
ot_status ot_model_options_open(const ot_options *options, ot_arena *arena, ot_opened_model *model);
void ot_opened_model_release(ot_opened_model *model);
