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

static ot_status score(task_scoring *s, ot_runtime *runtime) {
  bool done = false;
  const int64_t vocab = ot_tokenizer_vocab_size(s->model->tokenizer);
  OT_TRY(ot_inference_create(runtime, vocab, &s->engine));
  const ot_evaluation_request request = {.tasks = s->tasks,
                                         .num_tasks = s->count,
                                         .tokenizer = s->model->tokenizer,
                                         .engine = s->engine,
                                         .shares = 1};
  OT_TRY(ot_evaluation_create(&request, &s->evaluation));
  while (!done) OT_TRY(ot_evaluation_step(s->evaluation, &done));
  print_figures(s);
  return ot_inference_dismiss(s->engine);
}

ot_status ot_score_tasks_prepare(void *context, int ranks) {
  const ot_score_tasks *const c = context;
  (void)ranks;
  return ot_model_options_open(c->options, ot_options_arena(c->options), c->model);
}

ot_status ot_score_tasks_run(ot_comm *comm, void *context) {
  const ot_score_tasks *const c = context;
  const bool leads = ot_comm_rank(comm) == 0;
  task_scoring s = {.options = c->options, .model = c->model};
  ot_model_engine engine;
  ot_model_engine_request request = {.options = c->options, .comm = comm, .model = c->model};
  if (leads) {
    s.arena = ot_options_arena(c->options);
    request.status = read_tasks(&s);
    request.shape = ot_evaluation_shape(s.tasks, request.status == OT_OK ? s.count : 0);
  }
  ot_status status = ot_model_engine_create(&request, &engine);
  if (status == OT_OK) {
    status = leads ? score(&s, engine.runtime) : ot_inference_follow(engine.runtime);
  }
  ot_evaluation_destroy(&s.evaluation);
  ot_inference_destroy(&s.engine);
  ot_model_engine_destroy(&engine);
  return status;
}
