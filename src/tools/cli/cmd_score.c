// SPDX-License-Identifier: Apache-2.0
// `orthant score`: log-probabilities of the texts of a JSONL file, one output line per input line.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_writer.h"
#include "cli/model_engine.h"
#include "cli/ranks.h"
#include "cli/score_lines.h"
#include "cli/score_tasks.h"
#include "cli/verbs.h"
#include "runtime/inference.h"

enum { SLOTS = 8, CHUNK = 256, CACHE_PAGES = 256 };

// A line while it is scored and until it is printed.
typedef struct line_scores {
  double *logprobs;  // [tokens]
  bool *greedy;      // [tokens]
  bool done;
} line_scores;

typedef struct scoring {
  const ot_options *options;
  ot_arena *arena;
  const char *path;       // of the JSONL file
  ot_opened_model model;  // without a tokenizer only {"tokens"} works
  ot_inference *engine;
  ot_score_lines lines;
  line_scores *scores;  // [lines.count]
  int64_t printed;      // lines so far
} scoring;

// ---- output ----

static void write_scores(const scoring *s, const ot_score_line *it, ot_json_writer *w) {
  const line_scores *const scores = &s->scores[it - s->lines.line];
  double sum = 0;
  bool greedy = true;
  ot_json_array(w, "tokens");
  for (int64_t i = it->first; i < it->tokens.count; i++) {
    ot_json_integer(w, NULL, it->tokens.ids[i]);
  }
  ot_json_end(w);
  ot_json_array(w, "logprobs");
  for (int64_t i = it->first; i < it->tokens.count; i++) {
    ot_json_real(w, NULL, scores->logprobs[i]);
    sum += scores->logprobs[i];
    greedy = greedy && scores->greedy[i];
  }
  ot_json_end(w);
  ot_json_real(w, "sum", sum);
  ot_json_boolean(w, "greedy", greedy);
  ot_json_array(w, "context_tokens");
  for (int64_t i = 0; i < it->first; i++) ot_json_integer(w, NULL, it->tokens.ids[i]);
  ot_json_end(w);
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

// Prints the lines that are done up to the first that is not.
static void print_done(scoring *s) {
  for (; s->printed < s->lines.count && s->scores[s->printed].done; s->printed++) {
    if (ot_options_json(s->options) && s->printed > 0) putchar(',');
    print_item(s, &s->lines.line[s->printed]);
    free(s->scores[s->printed].logprobs);
    free(s->scores[s->printed].greedy);
    s->scores[s->printed].logprobs = NULL;
    s->scores[s->printed].greedy = NULL;
  }
}

// ---- scoring ----

static bool keep_score(void *context, const ot_token_event *event) {
  line_scores *const to = context;
  to->logprobs[event->index] = event->score.logprob;
  to->greedy[event->index] = event->score.greedy == event->token;
  return true;
}

static void finish_line(void *context, ot_finish how) {
  (void)how;
  ((line_scores *)context)->done = true;
}

static ot_status add_line(scoring *s, int64_t i) {
  const ot_score_line *const line = &s->lines.line[i];
  line_scores *const to = &s->scores[i];
  if (line->error) {
    to->done = true;
    return OT_OK;
  }
  to->logprobs = malloc((size_t)line->tokens.count * sizeof *to->logprobs);
  to->greedy = malloc((size_t)line->tokens.count * sizeof *to->greedy);
  OT_CHECK(to->logprobs && to->greedy, OT_ENVIRONMENT, "out of memory");
  return ot_inference_add(s->engine,
                          &(ot_sequence_request){.prompt = line->tokens.ids,
                                                 .num_prompt = line->tokens.count,
                                                 .scores = true,
                                                 .token = keep_score,
                                                 .finished = finish_line,
                                                 .context = to},
                          NULL);
}

// Twice as many lines as run at once are in the engine, so results wait for few others.
static ot_status score_lines(scoring *s) {
  int64_t added = 0;
  while (s->printed < s->lines.count && !ferror(stdout)) {
    while (added < s->lines.count && added < s->printed + 2 * SLOTS) OT_TRY(add_line(s, added++));
    OT_TRY(ot_inference_step(s->engine));
    print_done(s);
  }
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

static ot_inference_shape shape_of(const scoring *s) {
  int64_t longest = 1;
  for (int64_t i = 0; i < s->lines.count; i++) {
    if (s->lines.line[i].tokens.count > longest) longest = s->lines.line[i].tokens.count;
  }
  const int64_t pages = (longest + OT_PAGE_SLOTS - 1) / OT_PAGE_SLOTS;
  const int64_t slots = s->lines.count < SLOTS ? s->lines.count : SLOTS;
  return (ot_inference_shape){.slots = slots > 0 ? slots : 1,
                              .chunk = CHUNK,
                              .positions = longest,
                              .pages = pages > CACHE_PAGES ? pages : CACHE_PAGES};
}

static ot_status score_items(scoring *s, ot_runtime *runtime) {
  OT_TRY(ot_inference_create(runtime, s->model.files.model.vocab_size, &s->engine));
  s->scores = ot_arena_array(s->arena, s->lines.count + 1, sizeof *s->scores);
  // One JSON document, or one per line; both are written incrementally.
  const bool json = ot_options_json(s->options);
  if (json) puts("{\"scores\": [");
  OT_TRY(score_lines(s));
  if (json) puts("]}");
  return ot_inference_dismiss(s->engine);
}

static ot_status read_lines(scoring *s) {
  const ot_score_source source = {.path = s->path,
                                  .model_path = s->model.files.path,
                                  .model = &s->model.files.model,
                                  .encoder = s->model.encoder};
  OT_CHECK(ot_options_num_arguments(s->options) == 2, OT_USAGE,
           "one file at a time, except with --tasks");
  return ot_score_lines_read(&source, s->arena, &s->lines);
}

static ot_status prepare(void *context, int ranks) {
  scoring *const s = context;
  (void)ranks;
  return ot_model_options_open(s->options, s->arena, &s->model);
}

static ot_status score_rank(ot_comm *comm, void *context) {
  scoring *const s = context;
  const bool leads = ot_comm_rank(comm) == 0;
  ot_model_engine engine;
  ot_model_engine_request request = {.options = s->options, .comm = comm, .model = &s->model};
  if (leads) request.status = read_lines(s);
  if (leads) request.shape = shape_of(s);
  ot_status status = ot_model_engine_create(&request, &engine);
  if (status == OT_OK) {
    status = leads ? score_items(s, engine.runtime) : ot_inference_follow(engine.runtime);
  }
  // All ranks have done their work; a faulty line is not the failure of a rank.
  if (status == OT_OK) status = ot_comm_agree(comm, leads ? check_items(s) : OT_OK);
  if (leads) ot_inference_destroy(&s->engine);
  ot_model_engine_destroy(&engine);
  return status;
}

static ot_status run(const ot_options *options) {
  scoring s = {.options = options,
               .arena = ot_options_arena(options),
               .path = ot_options_argument(options, 1)};
  ot_score_tasks tasks = {.options = options, .model = &s.model};
  const bool figures = ot_options_flag(options, "tasks");
  const ot_ranks_verb verb = {.prepare = prepare, .run = score_rank, .context = &s};
  const ot_ranks_verb other = {
      .prepare = ot_score_tasks_prepare, .run = ot_score_tasks_run, .context = &tasks};
  const ot_status status = ot_ranks_run(options, figures ? &other : &verb);
  for (int64_t i = 0; s.scores && i < s.lines.count; i++) {
    free(s.scores[i].logprobs);
    free(s.scores[i].greedy);
  }
  ot_score_lines_release(&s.lines);
  ot_opened_model_release(&s.model);
  return status;
}

static const ot_option rows[] = {
    {.shared = &ot_option_ranks},
    {.shared = &ot_option_pp},
    {"tasks", OT_OPTION_FLAG, .help = "files are tasks as in `evaluate:` of a run: print figures"},
    {.shared = &ot_option_tokenizer},
    {.shared = &ot_option_model_set},
    {.shared = &ot_option_threads},
    {.shared = &ot_option_device},
};

const ot_verb ot_verb_score = {
    .name = "score",
    .summary = "log-probabilities of given texts",
    .arguments = "CHECKPOINT FILE.jsonl...",
    .min_arguments = 2,
    .max_arguments = -1,
    .details =
        "Lines {\"text\"}, {\"context\", \"continuation\"} or {\"tokens\": [..]} in; lines\n"
        "{\"tokens\", \"logprobs\", \"sum\", \"greedy\", \"context_tokens\"} out, in the same "
        "order.\n"
        "context_tokens are those before the scored ones. The first token of a\n"
        "text has no context and is not scored; of a continuation all tokens are. A line that\n"
        "cannot be scored, such as an empty one, gives {\"error\"} in its place, and exit code 2\n"
        "after the last line. --json: one document, {\"scores\": [...]}.\n"
        "--tasks: lines {\"context\", \"choices\", \"answer\"}, {\"text\"} or {\"prompt\", "
        "\"answer\"} in,\n"
        "one kind a file; one line of figures for each file out. \"delimiter\": TEXT stands\n"
        "between context and choice and is no part of its length (docs/serve.md).",
    .examples =
        "  orthant score runs/demo/run questions.jsonl > scores.jsonl\n"
        "  orthant score runs/demo/run --tasks choices.jsonl texts.jsonl",
    .options = rows,
    .absent = "cp",
    .instead = ot_option_instead_of_cp,
    .num_options = OT_COUNT(rows),
    .json = true,
    .run = run,
};
