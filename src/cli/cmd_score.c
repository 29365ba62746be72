// SPDX-License-Identifier: Apache-2.0
// `orthant score`: log-probabilities of the texts of a JSONL file, one output line per input line.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_writer.h"
#include "cli/run_options.h"
#include "cli/score_lines.h"
#include "cli/verbs.h"
#include "runtime/inference.h"

typedef struct scoring {
  const ot_options *options;
  ot_arena *arena;
  const char *path;       // of the JSONL file
  ot_opened_model model;  // without a tokenizer only {"tokens"} works
  ot_runtime *runtime;
  ot_score_lines lines;
  double *logprobs;  // [longest]
  bool *greedy;      // [longest]
} scoring;

// ---- output ----

static void write_scores(const scoring *s, const ot_score_line *it, ot_json_writer *w) {
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

static void print_item(const scoring *s, const ot_score_line *it) {
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

static ot_status score_item(const scoring *s, const ot_score_line *it) {
  const ot_score_request one = {.tokens = it->tokens.ids, .count = it->tokens.count};
  if (!it->error) OT_TRY(ot_score(s->runtime, &one, s->logprobs, s->greedy));
  print_item(s, it);
  return OT_OK;
}

static ot_status check_items(const scoring *s) {
  int64_t bad = 0;
  const char *first = NULL;
  for (int64_t i = 0; i < s->lines.count; i++) {
    if (!s->lines.line[i].error) continue;
    if (bad++ == 0) first = s->lines.line[i].error;
  }
  OT_CHECK(bad == 0, OT_USAGE, "%lld of %lld lines could not be scored; the first: %s",
           (long long)bad, (long long)s->lines.count, first);
  return OT_OK;
}

static ot_status score_items(scoring *s) {
  int64_t longest = 1;
  for (int64_t i = 0; i < s->lines.count; i++) {
    if (s->lines.line[i].tokens.count > longest) longest = s->lines.line[i].tokens.count;
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
  for (int64_t i = 0; i < s->lines.count && !ferror(stdout); i++) {
    if (json && i > 0) putchar(',');
    OT_TRY(score_item(s, &s->lines.line[i]));
  }
  if (json) puts("]}");
  return check_items(s);
}

static ot_status score(scoring *s) {
  OT_TRY(ot_model_options_open(s->options, s->arena, &s->model));
  const ot_score_source source = {.path = s->path,
                                  .model_path = s->model.files.path,
                                  .model = &s->model.files.model,
                                  .encoder = s->model.encoder};
  OT_TRY(ot_score_lines_read(&source, s->arena, &s->lines));
  return score_items(s);
}

static ot_status run(const ot_options *options) {
  scoring s = {.options = options,
               .arena = ot_options_arena(options),
               .path = ot_options_argument(options, 1)};
  const ot_status status = score(&s);
  ot_score_lines_release(&s.lines);
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
