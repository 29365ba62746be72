// SPDX-License-Identifier: Apache-2.0
// `orthant sample`: continues prompts with a trained model.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_writer.h"
#include "base/text.h"
#include "cli/model_engine.h"
#include "cli/ranks.h"
#include "cli/verbs.h"
#include "files/json_file.h"
#include "runtime/inference.h"
#include "serve/chat_template.h"

enum { MOST_SLOTS = 8, MOST_CHUNK = 256 };

struct sampling;

// One continuation of a prompt.
typedef struct sample_text {
  struct sampling *all;
  const char *prompt;
  ot_token_list made;
  ot_text_stream text;
  int64_t shown;  // bytes of the text
} sample_text;

typedef struct sample_prompt {
  const char *text;
  ot_token_list tokens;
} sample_prompt;

typedef struct sampling {
  const ot_options *options;
  ot_arena *arena;
  ot_opened_model model;
  ot_inference_shape shape;
  ot_inference *engine;
  int64_t num_prompts, capacity;
  sample_prompt *prompts;  // [num_prompts]
  int64_t num_texts;
  sample_text *texts;  // [num_texts], n of each prompt
  int num_stops;
  ot_stop_text stops[OT_MOST_STOPS];
  const ot_chat_template *chat;  // or null: prompts are continued as they are
  bool stream;                   // print tokens as they are generated
  bool failed;
} sampling;

// ---- prompts ----

// The prompt as the message of a user.
static ot_status encode_message(sampling *s, sample_prompt *prompt) {
  const ot_chat_message message = {.role = "user", .content = prompt->text};
  ot_buffer text = {0};
  const char *const start =
      ot_chat_template_start(s->chat, s->model.tokenizer, &s->model.special, s->arena);
  ot_status status = ot_chat_template_render(s->chat, start, &message, 1, &text);
  if (status == OT_OK) {
    status =
        ot_encoder_encode(s->model.encoder, (const char *)text.data, text.length, &prompt->tokens);
  }
  ot_buffer_release(&text);
  return status;
}

static ot_status add_prompt(sampling *s, const char *text, int64_t length) {
  s->prompts =
      ot_arena_grow(s->arena, s->prompts, s->num_prompts, &s->capacity, sizeof *s->prompts);
  sample_prompt *const to = &s->prompts[s->num_prompts++];
  *to = (sample_prompt){.text = ot_arena_text(s->arena, text, length)};
  OT_TRY(s->chat ? encode_message(s, to)
                 : ot_encoder_encode(s->model.encoder, text, length, &to->tokens));
  // An empty prompt starts a text.
  const int32_t prefix = s->model.special.prefix;
  if (to->tokens.count == 0 && prefix >= 0) return ot_token_list_append(&to->tokens, &prefix, 1);
  OT_CHECK(to->tokens.count > 0, OT_USAGE, "the prompt is empty (--prompt)");
  return OT_OK;
}

static ot_status add_line(sampling *s, const char *name, const char *line, int64_t length) {
  json_t *object = NULL;
  OT_TRY(ot_json_parse(name, line, length, &object));
  const json_t *const prompt = json_object_get(object, "prompt");
  ot_status status = json_is_string(prompt) ? add_prompt(s, json_string_value(prompt),
                                                         (int64_t)json_string_length(prompt))
                                            : ot_fail(OT_USAGE, "needs \"prompt\", a text");
  if (status != OT_OK) status = ot_fail(status, "%s: %s", name, ot_fail_message());
  json_decref(object);
  return status;
}

static ot_status read_prompts(sampling *s, const char *path) {
  FILE *const file = fopen(path, "r");
  OT_CHECK(file, OT_ENVIRONMENT, "cannot open %s: %s", path, strerror(errno));
  char *line = NULL;
  size_t capacity = 0;
  ssize_t length;
  ot_status status = OT_OK;
  for (int64_t i = 1; status == OT_OK && (length = getline(&line, &capacity, file)) >= 0; i++) {
    const char *const name = ot_arena_format(s->arena, "%s:%lld", path, (long long)i);
    status = add_line(s, name, line, length);
  }
  if (status == OT_OK && ferror(file)) status = ot_fail(OT_ENVIRONMENT, "cannot read %s", path);
  free(line);
  fclose(file);
  return status;
}

static ot_status find_prompts(sampling *s) {
  const char *const path = ot_options_text(s->options, "prompts");
  const char *const text = ot_options_text(s->options, "prompt");
  OT_CHECK(!path || !ot_options_given(s->options, "prompt"), OT_USAGE,
           "--prompt and --prompts: give one of them");
  OT_TRY(path ? read_prompts(s, path) : add_prompt(s, text, ot_text_length(text)));
  OT_CHECK(s->num_prompts > 0, OT_USAGE, "%s holds no prompt", path);
  return OT_OK;
}

// ---- the engine ----

static ot_status find_shape(sampling *s) {
  const int64_t max_tokens = ot_options_integer(s->options, "max-tokens");
  const ot_model *const model = &s->model.files.model;
  int64_t longest = 1;
  for (int64_t i = 0; i < s->num_prompts; i++) {
    if (s->prompts[i].tokens.count > longest) longest = s->prompts[i].tokens.count;
  }
  const int64_t positions = longest + max_tokens;
  OT_CHECK(!model->learned_positions || positions <= model->max_positions, OT_USAGE,
           "prompt and --max-tokens make %lld tokens, the model has positions for %lld",
           (long long)positions, (long long)model->max_positions);
  const int64_t slots = s->num_texts < MOST_SLOTS ? s->num_texts : MOST_SLOTS;
  const int64_t rows = longest < MOST_CHUNK ? longest : MOST_CHUNK;
  s->shape = (ot_inference_shape){
      .slots = slots, .chunk = rows > slots ? rows : slots, .positions = positions};
  return OT_OK;
}

static bool append_token(void *context, const ot_token_event *event) {
  sample_text *const t = context;
  sampling *const s = t->all;
  if (event->ends) return false;
  if (ot_token_list_append(&t->made, &event->token, 1) != OT_OK ||
      ot_text_stream_append(&t->text, event->token) != OT_OK) {
    s->failed = true;
    return false;
  }
  if (s->stream) {
    fwrite(t->text.text.data + t->shown, 1, (size_t)(t->text.passed - t->shown), stdout);
    t->shown = t->text.passed;
    if (fflush(stdout) != 0) return false;
  }
  return !t->text.stopped;
}

static void finish_text(void *context, ot_finish how) {
  sample_text *const t = context;
  ot_text_stream_finish(&t->text);
  if (how == OT_FINISH_NUMERIC) t->all->failed = true;
}

// The seed of prompt number `index`: that of the options for the first. An odd factor keeps all of
// a file apart.
static uint64_t seed_of(const sampling *s, int64_t index) {
  return (uint64_t)ot_options_integer(s->options, "seed") ^ (uint64_t)index * 0x9e3779b97f4a7c15u;
}

static ot_status add_text(sampling *s, int64_t index, int64_t choice) {
  const sample_prompt *const prompt = &s->prompts[index];
  sample_text *const t = &s->texts[s->num_texts++];
  const ot_options *const o = s->options;
  const char *const end = s->chat ? ot_chat_template_end(s->chat) : NULL;
  const int32_t turn = end ? ot_tokenizer_find(s->model.tokenizer, end) : -1;
  *t = (sample_text){.all = s,
                     .prompt = prompt->text,
                     .text = {.tokenizer = s->model.tokenizer,
                              .stops = s->stops,
                              .num_stops = s->num_stops,
                              .begins = prompt->text[0] == '\0'}};
  ot_sequence_request request = {.prompt = prompt->tokens.ids,
                                 .num_prompt = prompt->tokens.count,
                                 .max_tokens = ot_options_integer(o, "max-tokens"),
                                 .draw = {.temperature = ot_options_real(o, "temperature"),
                                          .top_k = ot_options_integer(o, "top-k"),
                                          .top_p = ot_options_real(o, "top-p"),
                                          .min_p = ot_options_real(o, "min-p"),
                                          .seed = seed_of(s, index),
                                          .choice = (uint64_t)choice},
                                 .token = append_token,
                                 .finished = finish_text,
                                 .context = t};
  ot_sequence_add_ends(&request, s->model.special.ends, s->model.special.num_ends);
  ot_sequence_add_ends(&request, &turn, 1);
  return ot_inference_add(s->engine, &request, NULL);
}

// ---- output ----

static void write_text(ot_json_writer *w, const sample_text *t) {
  ot_json_object(w, NULL);
  ot_json_text(w, "prompt", t->prompt);
  ot_json_text_bytes(w, "text", (const char *)t->text.text.data, t->text.text.length);
  ot_json_array(w, "tokens");
  for (int64_t i = 0; i < t->made.count; i++) ot_json_integer(w, NULL, t->made.ids[i]);
  ot_json_end(w);
  ot_json_end(w);
}

// One text is a document of its own, several are a list in one, or lines.
static void print_texts(sampling *s) {
  const bool document = ot_options_json(s->options), lines = !document;
  if (lines) {
    for (int64_t i = 0; i < s->num_texts; i++) {
      ot_json_writer line = ot_json_begin(s->arena, 0);
      write_text(&line, &s->texts[i]);
      puts(line.text);
    }
    return;
  }
  ot_json_writer w = ot_json_begin(s->arena, 2);
  if (s->num_texts > 1) {
    ot_json_object(&w, NULL);
    ot_json_array(&w, "samples");
  }
  for (int64_t i = 0; i < s->num_texts; i++) write_text(&w, &s->texts[i]);
  if (s->num_texts > 1) {
    ot_json_end(&w);
    ot_json_end(&w);
  }
  puts(w.text);
}

static ot_status generate(sampling *s) {
  const int64_t n = ot_options_integer(s->options, "n"), texts = s->num_texts;
  s->texts = ot_arena_array(s->arena, texts, sizeof *s->texts);
  s->num_texts = 0;
  for (int64_t i = 0; i < texts; i++) OT_TRY(add_text(s, i / n, i % n));
  if (s->stream) fputs(s->prompts[0].text, stdout);
  OT_TRY(ot_inference_run(s->engine));
  OT_TRY(ot_inference_dismiss(s->engine));
  OT_CHECK(!s->failed, OT_NUMERIC, "the logits are not numbers");
  if (!s->stream) {
    print_texts(s);
    return OT_OK;
  }
  const sample_text *const t = &s->texts[0];
  fwrite(t->text.text.data + t->shown, 1, (size_t)(t->text.text.length - t->shown), stdout);
  putchar('\n');
  return OT_OK;
}

static ot_status check_options(const ot_options *o) {
  const double top_p = ot_options_real(o, "top-p"), min_p = ot_options_real(o, "min-p");
  const double temperature = ot_options_real(o, "temperature");
  OT_CHECK(temperature >= 0, OT_USAGE, "--temperature is %g, must be at least 0", temperature);
  OT_CHECK(top_p > 0 && top_p <= 1, OT_USAGE, "--top-p is %g, allowed: above 0 to 1", top_p);
  OT_CHECK(min_p >= 0 && min_p < 1, OT_USAGE, "--min-p is %g, allowed: 0 to below 1", min_p);
  return OT_OK;
}

static ot_status read_stops(sampling *s) {
  const int count = ot_options_count(s->options, "stop");
  OT_CHECK(count <= OT_MOST_STOPS, OT_USAGE, "--stop was given %d times, at most %d are possible",
           count, OT_MOST_STOPS);
  for (; s->num_stops < count; s->num_stops++) {
    const char *const text = ot_options_values(s->options, "stop")[s->num_stops];
    OT_CHECK(text[0] != '\0', OT_USAGE, "--stop is an empty text");
    s->stops[s->num_stops] = (ot_stop_text){text, ot_text_length(text)};
  }
  return OT_OK;
}

static ot_status prepare(void *context, int ranks) {
  sampling *const s = context;
  (void)ranks;
  OT_TRY(check_options(s->options));
  OT_TRY(ot_model_options_open(s->options, s->arena, &s->model));
  OT_CHECK(s->model.tokenizer, OT_USAGE, "%s holds no tokenizer.json; name one with --tokenizer",
           s->model.files.path);
  const char *const chat = ot_options_text(s->options, "chat-template");
  s->chat = chat ? ot_chat_template_find(chat) : NULL;
  OT_CHECK(!chat || s->chat, OT_USAGE, "no chat template is called %s (known: %s)", chat,
           ot_chat_template_names);
  return read_stops(s);
}

// Called on rank 0.
static ot_status find_texts(sampling *s) {
  OT_TRY(find_prompts(s));
  s->num_texts = s->num_prompts * ot_options_integer(s->options, "n");
  s->stream =
      s->num_texts == 1 && !ot_options_json(s->options) && !ot_options_text(s->options, "prompts");
  return find_shape(s);
}

static ot_status sample(sampling *s, ot_runtime *runtime) {
  OT_TRY(ot_inference_create(runtime, ot_tokenizer_vocab_size(s->model.tokenizer), &s->engine));
  return generate(s);
}

static ot_status sample_rank(ot_comm *comm, void *context) {
  sampling *const s = context;
  const bool leads = ot_comm_rank(comm) == 0;
  ot_model_engine engine;
  ot_model_engine_request request = {.options = s->options, .comm = comm, .model = &s->model};
  if (leads) request.status = find_texts(s);
  if (leads) request.shape = s->shape;
  ot_status status = ot_model_engine_create(&request, &engine);
  if (status == OT_OK) {
    status = leads ? sample(s, engine.runtime) : ot_inference_follow(engine.runtime);
  }
  if (leads) ot_inference_destroy(&s->engine);
  ot_model_engine_destroy(&engine);
  return status;
}

static ot_status run(const ot_options *options) {
  sampling s = {.options = options, .arena = ot_options_arena(options)};
  const ot_ranks_verb verb = {.prepare = prepare, .run = sample_rank, .context = &s};
  const ot_status status = ot_ranks_run(options, &verb);
  ot_opened_model_release(&s.model);
  for (int64_t i = 0; i < s.num_prompts; i++) ot_token_list_release(&s.prompts[i].tokens);
  for (int64_t i = 0; s.texts && i < s.num_texts; i++) {
    ot_token_list_release(&s.texts[i].made);
    ot_text_stream_release(&s.texts[i].text);
  }
  return status;
}

static const ot_option rows[] = {
    {.shared = &ot_option_ranks},
    {.shared = &ot_option_pp},
    {"prompt", OT_OPTION_TEXT, "TEXT", "",
     .help = "text to continue; empty: the start of a document"},
    {"prompts", OT_OPTION_PATH, "FILE.jsonl", .help = "prompts instead: lines {\"prompt\": TEXT}"},
    {"n", OT_OPTION_INTEGER, "N", "1", 1, 1 << 20, .help = "texts for each prompt"},
    {"max-tokens", OT_OPTION_INTEGER, "N", "256", 1, 1 << 24, .help = "most tokens generated"},
    {"temperature", OT_OPTION_REAL, "T", "0.8", .help = "0: greedy"},
    {"top-k", OT_OPTION_INTEGER, "K", "0", 0, 1 << 24,
     .help = "draw from the K most probable tokens; 0: all"},
    {"top-p", OT_OPTION_REAL, "P", "1",
     .help = "draw from the fewest tokens that have probability P together"},
    {"min-p", OT_OPTION_REAL, "P", "0",
     .help = "draw from tokens with P times the probability of the most probable one"},
    {"stop", OT_OPTION_TEXT, "TEXT", .repeatable = true,
     .help = "ends a text, and is not part of it"},
    {"chat-template", OT_OPTION_TEXT, "NAME",
     .help = "prompts are messages of a user: chatml, llama3 or gemma"},
    {"seed", OT_OPTION_INTEGER, "S", "1",
     .help =
         "sampling seed; the same seed gives the same text, and each prompt has draws of its own"},
    {.shared = &ot_option_tokenizer},
    {.shared = &ot_option_model_set},
    {.shared = &ot_option_threads},
    {.shared = &ot_option_device},
};

const ot_verb ot_verb_sample = {
    .name = "sample",
    .summary = "continue prompts with a trained model",
    .arguments = "CHECKPOINT",
    .min_arguments = 1,
    .max_arguments = 1,
    .details =
        "CHECKPOINT is a checkpoint directory, a run directory (its newest) or an HF\n"
        "directory. Ids outside the tokenizer's vocabulary are never drawn, even if the model's\n"
        "vocabulary is larger. A text ends at any end-of-text token that the directory names\n"
        "(docs/conventions.md). Several texts are printed as lines of JSON, in order.\n"
        "Draws follow from the seed, the number of the prompt (the first: as with --prompt) and\n"
        "that of the text among its --n; so a text does not depend on the others.",
    .examples =
        "  orthant sample runs/demo/run --prompt \"#include <\" --max-tokens 200\n"
        "  orthant sample model_dir --prompt \"Once\" --temperature 0 --json\n"
        "  orthant sample model_dir --prompts questions.jsonl --n 4 --top-p 0.9 --stop \".\"",
    .options = rows,
    .absent = "cp",
    .instead = ot_option_instead_of_cp,
    .num_options = OT_COUNT(rows),
    .json = true,
    .run = run,
};
