// SPDX-License-Identifier: Apache-2.0
// `orthant sample`: continues a prompt with a trained model.
#include <stdio.h>

#include "base/json_writer.h"
#include "base/text.h"
#include "cli/run_options.h"
#include "cli/verbs.h"
#include "runtime/inference.h"

typedef struct sampling {
  const ot_options *options;
  ot_arena *arena;
  ot_opened_model model;
  ot_runtime *runtime;
  ot_token_list prompt;
  ot_token_list made;
  ot_buffer text;
  bool stream;  // print tokens as they are generated
} sampling;

static ot_status encode_prompt(sampling *s) {
  const char *const text = ot_options_text(s->options, "prompt");
  OT_TRY(ot_encoder_encode(s->model.encoder, text, ot_text_length(text), &s->prompt));
  // An empty prompt starts a document: after the end-of-document token.
  const int32_t eos = ot_tokenizer_eos(s->model.tokenizer);
  if (s->prompt.count == 0 && eos >= 0) return ot_token_list_append(&s->prompt, &eos, 1);
  OT_CHECK(s->prompt.count > 0, OT_USAGE, "the prompt is empty (--prompt)");
  return OT_OK;
}

static ot_status create_instance(sampling *s) {
  const int64_t max_tokens = ot_options_integer(s->options, "max-tokens");
  const int64_t positions = s->prompt.count + max_tokens;
  const ot_model *const model = &s->model.files.model;
  OT_CHECK(!model->learned_positions || positions <= model->max_positions, OT_USAGE,
           "prompt and --max-tokens make %lld tokens, the model has positions for %lld",
           (long long)positions, (long long)model->max_positions);
  const ot_runtime_request request = {
      .modes = 1u << OT_MODE_PREFILL | 1u << OT_MODE_DECODE,
      .micro_batch_size = 1,
      .sequence_length = s->prompt.count > 1 ? s->prompt.count - 1 : 1,
      .cache_positions = positions,
      .compute = OT_F32,
      .storage = OT_F32,
      .backend = ot_model_options_backend(s->options),
      .may_fall_back = ot_options_choice(s->options, "device") == OT_DEVICE_AUTO,
      .threads = (int)ot_options_integer(s->options, "threads"),
  };
  OT_TRY(ot_model_files_runtime(&s->model.files, &request, &s->runtime));
  ot_model_options_note(&s->model.files, s->runtime);
  return OT_OK;
}

// Decodes `count` generated tokens from index `first` on into `text`, as the continuation of the
// prompt, or as the beginning of a text if there is none.
static ot_status decode(sampling *s, int64_t first, int64_t count) {
  const bool begins = first == 0 && ot_options_text(s->options, "prompt")[0] == '\0';
  const int32_t *const ids = s->made.ids + first;
  s->text.length = 0;
  return begins ? ot_tokenizer_decode(s->model.tokenizer, ids, count, &s->text)
                : ot_tokenizer_decode_more(s->model.tokenizer, ids, count, &s->text);
}

static bool append_token(void *context, int32_t token) {
  sampling *const s = context;
  if (ot_token_list_append(&s->made, &token, 1) != OT_OK) return false;
  if (!s->stream) return true;
  // An id that the tokenizer lacks has no text.
  (void)decode(s, s->made.count - 1, 1);
  if (s->text.length > 0) fwrite(s->text.data, 1, (size_t)s->text.length, stdout);
  return fflush(stdout) == 0;
}

static ot_status print_json(sampling *s) {
  OT_TRY(decode(s, 0, s->made.count));
  ot_json_writer w = ot_json_begin(s->arena, 2);
  ot_json_object(&w, NULL);
  ot_json_text(&w, "prompt", ot_options_text(s->options, "prompt"));
  ot_json_text_bytes(&w, "text", (const char *)s->text.data, s->text.length);
  ot_json_array(&w, "tokens");
  for (int64_t i = 0; i < s->made.count; i++) ot_json_integer(&w, NULL, s->made.ids[i]);
  ot_json_end(&w);
  ot_json_end(&w);
  puts(w.text);
  return OT_OK;
}

static ot_status sample(sampling *s) {
  OT_TRY(ot_model_options_open(s->options, s->arena, &s->model));
  OT_CHECK(s->model.tokenizer, OT_USAGE, "%s holds no tokenizer.json; name one with --tokenizer",
           s->model.files.path);
  OT_TRY(encode_prompt(s));
  OT_TRY(create_instance(s));
  s->stream = !ot_options_json(s->options);
  if (s->stream) fputs(ot_options_text(s->options, "prompt"), stdout);
  const ot_generate_request request = {
      .prompt = s->prompt.ids,
      .num_prompt = s->prompt.count,
      .max_tokens = ot_options_integer(s->options, "max-tokens"),
      .temperature = ot_options_real(s->options, "temperature"),
      .seed = (uint64_t)ot_options_integer(s->options, "seed"),
      .stop = ot_tokenizer_eos(s->model.tokenizer),
      .vocab_size = ot_tokenizer_vocab_size(s->model.tokenizer),
  };
  OT_TRY(ot_generate(s->runtime, &request, append_token, s));
  if (!s->stream) return print_json(s);
  putchar('\n');
  return OT_OK;
}

static ot_status run(const ot_options *options) {
  sampling s = {.options = options, .arena = ot_options_arena(options)};
  const ot_status status = sample(&s);
  ot_runtime_destroy(&s.runtime);
  ot_opened_model_release(&s.model);
  ot_token_list_release(&s.prompt);
  ot_token_list_release(&s.made);
  ot_buffer_release(&s.text);
  return status;
}

static const ot_option rows[] = {
    {"prompt", OT_OPTION_TEXT, "TEXT", "",
     .help = "text to continue; empty: the start of a document"},
    {"max-tokens", OT_OPTION_INTEGER, "N", "256", 1, 1 << 24, .help = "most tokens generated"},
    {"temperature", OT_OPTION_REAL, "T", "0.8", .help = "0: greedy"},
    {"seed", OT_OPTION_INTEGER, "S", "1",
     .help = "sampling seed; the same seed gives the same text"},
    {.shared = &ot_option_tokenizer},
    {.shared = &ot_option_model_set},
    {.shared = &ot_option_threads},
    {.shared = &ot_option_device},
};

const ot_verb ot_verb_sample = {
    .name = "sample",
    .summary = "continue a prompt with a trained model",
    .arguments = "CHECKPOINT",
    .min_arguments = 1,
    .max_arguments = 1,
    .details =
        "CHECKPOINT is a checkpoint directory, a run directory (its newest) or an HF\n"
        "directory. Ids outside the tokenizer's vocabulary are never drawn, even if the model's\n"
        "vocabulary is larger.",
    .examples =
        "  orthant sample runs/demo/run --prompt \"#include <\" --max-tokens 200\n"
        "  orthant sample model_dir --prompt \"Once\" --temperature 0 --json",
    .options = rows,
    .num_options = OT_COUNT(rows),
    .json = true,
    .run = run,
};
