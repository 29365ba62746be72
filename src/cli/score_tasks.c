// SPDX-License-Identifier: Apache-2.0
// All tasks run on one engine.
#include "cli/score_tasks.h"

#include <stdio.h>

#include "base/json_writer.h"
#include "cli/model_engine.h"
#include "evaluate/evaluation.h"

typedef struct task_scoring {
  const ot_options *options;
  ot_opened_model *model;
  ot_arena *arena;
  int count;
  ot_text_task *tasks;  // [count]
  ot_runtime *runtime;
  ot_inference *engine;
  ot_evaluation *evaluation;
} task_scoring;

static ot_status read_tasks(task_scoring *s) {
  s->count = ot_options_num_arguments(s->options) - 1;
  s->tasks = ot_arena_array(s->arena, s->count, sizeof *s->tasks);
  OT_CHECK(s->model->tokenizer, OT_USAGE, "%s holds no tokenizer.json; name one with --tokenizer",
           s->model->files.path);
  for (int i = 0; i < s->count; i++) {
    const ot_text_task_source source = {.name = "",
                                        .path = ot_options_argument(s->options, i + 1),
                                        .model = &s->model->files.model,
                                        .tokenizer = s->model->tokenizer};
    OT_TRY(ot_text_task_read(&source, s->arena, &s->tasks[i]));
  }
  return OT_OK;
}

static void write_task(ot_json_writer *w, const ot_text_task *task, const double *results) {
  ot_text_task_figure figures[OT_TEXT_TASK_FIGURES];
  const int count = ot_text_task_figures(task, results, figures);
  ot_json_object(w, NULL);
  ot_json_text(w, "task", task->name);
  for (int i = 0; i < count; i++) ot_json_real(w, figures[i].name, figures[i].value);
  ot_json_end(w);
}

// Lines, or one document.
static void print_figures(task_scoring *s) {
  const bool document = ot_options_json(s->options);
  const double *results = ot_evaluation_results(s->evaluation);
  if (document) puts("{\"tasks\": [");
  for (int i = 0; i < s->count; i++) {
    ot_json_writer w = ot_json_begin(s->arena, 0);
    write_task(&w, &s->tasks[i], results);
    printf("%s%s\n", document && i > 0 ? "," : "", w.text);
    results += s->tasks[i].num_sequences;
  }
  if (document) puts("]}");
}

static ot_status run(task_scoring *s) {
  bool done = false;
  OT_TRY(read_tasks(s));
  const ot_inference_shape shape = ot_evaluation_shape(s->tasks, s->count);
  const int64_t vocab = ot_tokenizer_vocab_size(s->model->tokenizer);
  OT_TRY(ot_model_engine_create(s->options, &shape, s->model, &s->runtime));
  OT_TRY(ot_inference_create(s->runtime, vocab, &s->engine));
  const ot_evaluation_request request = {.tasks = s->tasks,
                                         .num_tasks = s->count,
                                         .tokenizer = s->model->tokenizer,
                                         .engine = s->engine,
                                         .shares = 1};
  OT_TRY(ot_evaluation_create(&request, &s->evaluation));
  while (!done) OT_TRY(ot_evaluation_step(s->evaluation, &done));
  print_figures(s);
  return OT_OK;
}

ot_status ot_score_tasks(const ot_options *options, ot_opened_model *model) {
  task_scoring s = {.options = options, .model = model, .arena = ot_options_arena(options)};
  const ot_status status = run(&s);
  ot_evaluation_destroy(&s.evaluation);
  ot_inference_destroy(&s.engine);
  ot_runtime_destroy(&s.runtime);
  return status;
}
