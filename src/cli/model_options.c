// SPDX-License-Identifier: Apache-2.0
// A trained model from the command line.
#include "cli/model_options.h"

#include <stdio.h>

#include "cli/output.h"

const ot_option ot_option_tokenizer = {
    "tokenizer", OT_OPTION_PATH, "FILE",
    .help = "tokenizer.json or bytes, when the checkpoint has none"};
const ot_option ot_option_model_set = {
    "set", OT_OPTION_SETTING, "model.KEY=VALUE",
    .help = "override a key of its config.json; model.KEY=ignore passes over it"};
const ot_option ot_option_threads = {
    "threads", OT_OPTION_INTEGER, "N", "0", 0, 4096, .help = "threads; 0 = all cores"};

ot_status ot_model_options_open(const ot_options *options, ot_arena *arena,
                                ot_opened_model *model) {
  const ot_config_request request = {.sets = ot_options_values(options, "set"),
                                     .num_sets = ot_options_count(options, "set")};
  OT_TRY(ot_model_files_open(ot_options_argument(options, 0), OT_CHECKPOINT_HASH_WEIGHTS, &request,
                             arena, &model->files));
  ot_output_notes(&model->files.notes);
  if (model->files.note)
    fprintf(stderr, "note: %s\nreading %s\n", model->files.note, model->files.path);
  const char *const named = ot_options_text(options, "tokenizer");
  const char *const path = named ? named : model->files.tokenizer;
  if (!path) return OT_OK;
  OT_TRY(ot_tokenizer_create(path, &model->tokenizer));
  const int64_t vocab = ot_tokenizer_vocab_size(model->tokenizer);
  OT_CHECK(vocab <= model->files.model.vocab_size, OT_USAGE,
           "the tokenizer has %ld entries, the model only %ld (%s)", vocab,
           model->files.model.vocab_size, path);
  return ot_encoder_create(model->tokenizer, &model->encoder);
}

void ot_opened_model_release(ot_opened_model *model) {
  ot_encoder_destroy(&model->encoder);
  ot_tokenizer_destroy(&model->tokenizer);
}
