// SPDX-License-Identifier: Apache-2.0
// `orthant score`: log-probabilities of the texts of a JSONL file, one output line per input line.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_writer.h"
#include "cli/run_options.h"
#include "cli/verbs.h"
#include "files/json_file.h"
#include "runtime/inference.h"

// One line of input: its tokens and the index of the first one to score, or an error.
typedef struct item {
  ot_token_list tokens;
  int64_t first;
  const char *error;  // null: it can be scored
} item;

typedef struct scoring {
  const ot_options *options;
  ot_arena *arena;
  const char *path;       // of the JSONL file
  ot_opened_model model;  // without a tokenizer only {"tokens"} works
  ot_runtime *runtime;
  item *items;
  int64_t num_items, items_capacity;
  double *logprobs;  // [longest]
  bool *greedy;      // [longest]
} scoring;

// ---- input ----

static ot_status append_text(scoring *s, int64_t line, const json_t *text, item *to) {
  OT_CHECK(json_is_string(text), OT_USAGE, "%s:%ld: a text is not a string", s->path, line);
  OT_CHECK(s->model.encoder, OT_USAGE,
           "%s:%ld: text needs a tokenizer, and %s has none; use --tokenizer", s->path, line,
           s->model.files.path);
  return ot_encoder_encode(s->model.encoder, json_string_value(text),
                           (int64_t)json_string_length(text), &to->tokens);
}

static ot_status append_ids(scoring *s, int64_t line, const json_t *ids, item *to) {
  OT_CHECK(json_is_array(ids), OT_USAGE, "%s:%ld: tokens is not a list", s->path, line);
  for (size_t i = 0; i < json_array_size(ids); i++) {
    const json_t *const id = json_array_get(ids, i);
    const json_int_t value = json_is_integer(id) ? json_integer_value(id) : -1;
    OT_CHECK(value >= 0 && value < s->model.files.model.vocab_size, OT_USAGE,
             "%s:%ld: tokens[%d] is not an id from 0 to %ld", s->path, line, (int)i,
             s->model.files.model.vocab_size - 1);
    const int32_t token = (int32_t)value;
    OT_TRY(ot_token_list_append(&to->tokens, &token, 1));
  }
  return OT_OK;
}

static ot_status read_object(scoring *s, int64_t line, const json_t *object, item *to) {
  OT_CHECK(json_is_object(object), OT_USAGE, "%s:%ld: not a JSON object", s->path, line);
  const json_t *const text = json_object_get(object, "text");
  const json_t *const context = json_object_get(object, "context");
  const json_t *const continuation = json_object_get(object, "continuation");
  const json_t *const tokens = json_object_get(object, "tokens");
  to->first = 1;
  if (text) {
    OT_TRY(append_text(s, line, text, to));
  } else if (context && continuation) {
    OT_TRY(append_text(s, line, context, to));
    to->first = to->tokens.count > 0 ? to->tokens.count : 1;
    OT_TRY(append_text(s, line, continuation, to));
  } else if (tokens) {
    OT_TRY(append_ids(s, line, tokens, to));
  } else {
    return ot_fail(OT_USAGE,
                   "%s:%ld: needs \"text\", \"context\" and \"continuation\", or "
                   "\"tokens\"",
                   s->path, line);
  }
  const ot_model *const model = &s->model.files.model;
  OT_CHECK(to->tokens.count > 0, OT_USAGE, "%s:%ld: no tokens to score", s->path, line);
  OT_CHECK(to->tokens.count <= model->max_positions, OT_USAGE,
           "%s:%ld: %ld tokens, the model has positions for %ld", s->path, line, to->tokens.count,
           model->max_positions);
  return OT_OK;
}

static ot_status read_item(scoring *s, int64_t line, const char *text, int64_t length, item *to) {
  json_t *object = NULL;
  const char *const name = ot_arena_format(s->arena, "%s:%ld", s->path, line);
  OT_CHECK(strspn(text, " \t\r\n") < (size_t)length, OT_USAGE, "%s: the line is empty", name);
  OT_TRY(ot_json_parse(name, text, length, &object));
  const ot_status status = read_object(s, line, object, to);
  json_decref(object);
  return status;
}

// A faulty line gives an error in its place; the others are scored.
static void read_line(scoring *s, int64_t line, const char *text, int64_t length) {
  s->items = ot_arena_grow(s->arena, s->items, s->num_items, &s->items_capacity, sizeof *s->items);
  item *const to = &s->items[s->num_items++];
  *to = (item){0};
  if (read_item(s, line, text, length, to) == OT_OK) return;
  ot_token_list_release(&to->tokens);
  to->error = ot_arena_format(s->arena, "%s", ot_fail_message());
}

static ot_status read_file(scoring *s) {
  FILE *const file = fopen(s->path, "r");
  OT_CHECK(file, OT_ENVIRONMENT, "cannot open %s: %s", s->path, strerror(errno));
  char *text = NULL;
  size_t capacity = 0;
  ssize_t length;
  for (int64_t line = 1; (length = getline(&text, &capacity, file)) >= 0; line++) {
    read_line(s, line, text, length);
  }
  const bool failed = ferror(file) != 0;
  const int error = errno;
  free(text);
  fclose(file);
  OT_CHECK(!failed, OT_ENVIRONMENT, "cannot read %s: %s", s->path, strerror(error));
  return OT_OK;
}

// ---- output ----

static void write_scores(const scoring *s, const item *it, ot_json_writer *w) {
  double sum = 0;
  bool greedy = true;
  ot_json_array(w, "tokens");
  for (int64_t i = it->first; i < it->tokens.count; i++) {
    ot_json_integer(w, NULL, it->tokens.ids[i]);
  }
  ot_json_end(w);
  ot_json_array(w, "logprobs");
  for (int64_t i = it->first; i < it->tokens.count; i++) {
    ot_json_real(w, NULL, s->logprobs[i]);
    sum += s->logprobs[i];
    greedy = greedy && s->greedy[i];
  }
  ot_json_end(w);
  ot_json_real(w, "sum", sum);
  ot_json_boolean(w, "greedy", greedy);
}

static void print_item(const scoring *s, const item *it) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_json_writer w = ot_json_begin(&arena, 0);
  ot_json_object(&w, NULL);
  if (it->error) {
    ot_json_text(&w, "error", it->error);
  } else {
    write_scores(s, it, &w);
  }
  ot_json_end(&w);
  puts(w.text);
  ot_heap_release(&heap);
}

static ot_status score_item(const scoring *s, const item *it) {
  const ot_score_request one = {.tokens = it->tokens.ids, .count = it->tokens.count};
  if (!it->error) OT_TRY(ot_score(s->runtime, &one, s->logprobs, s->greedy));
  print_item(s, it);
  return OT_OK;
}

static ot_status check_items(const scoring *s) {
  int64_t bad = 0;
  const char *first = NULL;
  for (int64_t i = 0; i < s->num_items; i++) {
    if (!s->items[i].error) continue;
    if (bad++ == 0) first = s->items[i].error;
  }
  OT_CHECK(bad == 0, OT_USAGE, "%lld of %lld lines could not be scored; the first: %s",
           (long long)bad, (long long)s->num_items, first);
  return OT_OK;
}

static ot_status score_items(scoring *s) {
  int64_t longest = 1;
  for (int64_t i = 0; i < s->num_items; i++) {
    if (s->items[i].tokens.count > longest) longest = s->items[i].tokens.count;
  }
  const ot_runtime_request request = {
      .modes = 1u << OT_MODE_SCORE,
      .micro_batch_size = 1,
      .sequence_length = longest,
      .compute = OT_F32,
      .storage = OT_F32,
      .backend = ot_model_options_backend(s->options),
      .may_fall_back = ot_options_choice(s->options, "device") == OT_DEVICE_AUTO,
      .threads = (int)ot_options_integer(s->options, "threads"),
  };
  OT_TRY(ot_model_files_runtime(&s->model.files, &request, &s->runtime));
  ot_model_options_note(&s->model.files, s->runtime);
  s->logprobs = ot_arena_array(s->arena, longest, sizeof *s->logprobs);
  s->greedy = ot_arena_array(s->arena, longest, sizeof *s->greedy);
  // One JSON document, or one per line; both are written incrementally.
  const bool json = ot_options_json(s->options);
  if (json) puts("{\"scores\": [");
  for (int64_t i = 0; i < s->num_items && !ferror(stdout); i++) {
    if (json && i > 0) putchar(',');
    OT_TRY(score_item(s, &s->items[i]));
  }
  if (json) puts("]}");
  return check_items(s);
}

static ot_status score(scoring *s) {
  OT_TRY(ot_model_options_open(s->options, s->arena, &s->model));
  OT_TRY(read_file(s));
  return score_items(s);
}

static ot_status run(const ot_options *options) {
  scoring s = {.options = options,
               .arena = ot_options_arena(options),
               .path = ot_options_argument(options, 1)};
  const ot_status status = score(&s);
  for (int64_t i = 0; i < s.num_items; i++) ot_token_list_release(&s.items[i].tokens);
  ot_runtime_destroy(&s.runtime);
  ot_opened_model_release(&s.model);
  return status;
}

static const ot_option rows[] = {
    {.shared = &ot_option_tokenizer},
    {.shared = &ot_option_model_set},
    {.shared = &ot_option_threads},
    {.shared = &ot_option_device},
};

const ot_verb ot_verb_score = {
    .name = "score",
    .summary = "log-probabilities of given texts",
    .arguments = "CHECKPOINT FILE.jsonl",
    .min_arguments = 2,
    .max_arguments = 2,
    .details =
        "Lines {\"text\"}, {\"context\", \"continuation\"} or {\"tokens\": [..]} in; lines\n"
        "{\"tokens\", \"logprobs\", \"sum\", \"greedy\"} out, in the same order. The first token "
        "of a\n"
        "text has no context and is not scored; of a continuation all tokens are. A line that\n"
        "cannot be scored, such as an empty one, gives {\"error\"} in its place, and exit code 2\n"
        "after the last line. --json: one document, {\"scores\": [...]}.",
    .examples = "  orthant score runs/demo/run questions.jsonl > scores.jsonl",
    .options = rows,
    .num_options = OT_COUNT(rows),
    .json = true,
    .run = run,
};
