// SPDX-License-Identifier: Apache-2.0
// A run or a trained model from the command line.
#include "cli/run_options.h"

#include "base/text.h"
#include "cli/installed.h"
#include "cli/output.h"
#include "describe/run_keys.h"
#include "runtime/model_files.h"

const ot_option ot_option_ranks = {"ranks",
                                   OT_OPTION_INTEGER,
                                   "N",
                                   "1",
                                   1,
                                   1 << 20,
                                   .help = "ranks as threads of this process (without a launcher)"};
const ot_option ot_option_pp = {
    "pp",
    OT_OPTION_INTEGER,
    "P",
    "1",
    1,
    1 << 20,
    .help = "stages of a pipeline that the ranks form; those of a stage share it by tp"};
const char ot_option_instead_of_cp[] =
    "--ranks N shares a prompt by tp; with --pp P its parts are in all stages at once";
const ot_option ot_option_set = {"set", OT_OPTION_SETTING, "KEY=VALUE",
                                 .help = "override a setting; lists as [a, b]"};

ot_status ot_run_options_load(const ot_options *options, ot_arena *arena, ot_config *config) {
  const ot_config_request request = {
      .path = ot_options_argument(options, 0),
      .sets = ot_options_values(options, "set"),
      .num_sets = ot_options_count(options, "set"),
      .presets = ot_installed_presets(arena),
  };
  return ot_config_load(&request, arena, config);
}

static ot_status build_mesh(const ot_run *run, int ranks, ot_mesh *mesh) {
  OT_TRY(ot_mesh_build(&run->parallel, ranks, mesh));
  return ot_run_check_ranks(run, ranks);
}

ot_status ot_run_options_mesh(const ot_config *config, int ranks, ot_arena *arena, ot_mesh *mesh) {
  const ot_status status = build_mesh(&config->run, ranks, mesh);
  return ot_run_place_failure(status, config->settings, arena);
}

static void add_note(ot_config_notes *notes, const char *text) {
  for (int i = 0; i < notes->count; i++) {
    if (ot_text_equal(notes->text[i], text)) return;
  }
  notes->text[notes->count++] = text;
}

ot_status ot_run_options_check_init(ot_config *config, ot_arena *arena) {
  ot_model_files *const files = ot_arena_take(arena, sizeof *files);
  OT_TRY(ot_model_files_open_init(&config->run, OT_CHECKPOINT_HASH_TEXTS, arena, files));
  for (int i = 0; i < files->notes.count; i++) add_note(&config->notes, files->notes.text[i]);
  return OT_OK;
}

const ot_option ot_option_tokenizer = {
    "tokenizer", OT_OPTION_PATH, "FILE",
    .help = "tokenizer.json or bytes, when the checkpoint has none"};
const ot_option ot_option_model_set = {
    "set", OT_OPTION_SETTING, "model.KEY=VALUE",
    .help = "override a key of its config.json; model.KEY=ignore ignores it"};
const ot_option ot_option_threads = {
    "threads", OT_OPTION_INTEGER, "N", "0", 0, 4096, .help = "threads; 0 = all cores"};
// In the order of ot_run_device.
const ot_option ot_option_device = {"device", OT_OPTION_CHOICE, "auto|cpu|cuda", "auto",
                                    .help = "what computes; auto: a GPU if there is one"};

ot_status ot_model_options_open(const ot_options *options, ot_arena *arena,
                                ot_opened_model *model) {
  const ot_config_request request = {.sets = ot_options_values(options, "set"),
                                     .num_sets = ot_options_count(options, "set")};
  OT_TRY(ot_model_files_open(ot_options_argument(options, 0), OT_CHECKPOINT_HASH_HEADERS, &request,
                             arena, &model->files));
  const char *const named = ot_options_text(options, "tokenizer");
  const char *const path = named ? named : model->files.tokenizer;
  if (!path) return OT_OK;
  OT_TRY(ot_tokenizer_create(path, &model->tokenizer));
  const int64_t rows = model->files.model.vocab_size;
  model->special = ot_special_tokens_of(model->tokenizer, &model->files.model);
  model->note = ot_tokenizer_note(model->tokenizer, rows, arena);
  OT_TRY(ot_encoder_create(model->tokenizer, &model->encoder));
  ot_encoder_limit(model->encoder, rows);
  return OT_OK;
}

ot_backend ot_model_options_backend(const ot_options *options) {
  return ot_runtime_choose_device((ot_run_device)ot_options_choice(options, "device"), 1);
}

void ot_opened_model_release(ot_opened_model *model) {
  ot_encoder_destroy(&model->encoder);
  ot_tokenizer_destroy(&model->tokenizer);
}
