// SPDX-License-Identifier: Apache-2.0
// A few more sequences than run at once are in the engine.
#include "evaluate/evaluation.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 8, CHUNK = 256, CACHE_PAGES = 256 };

// A sequence and its state while it runs.
typedef struct running {
  ot_evaluation *evaluation;
  const ot_text_task *task;
  const ot_text_task_sequence *sequence;
  double *result;
  ot_text_stream text;
} running;

struct ot_evaluation {
  ot_evaluation_request request;
  int64_t count;        // sequences of all tasks
  double *results;      // [count]
  running *all;         // [count]
  int64_t next, added;  // the next one to add, and those that are in the engine
  ot_status status;     // of callbacks
};

ot_inference_shape ot_evaluation_shape(const ot_text_task *tasks, int num_tasks) {
  int64_t count = 0, longest = 1;
  for (int i = 0; i < num_tasks; i++) {
    count += tasks[i].num_sequences;
    if (tasks[i].positions > longest) longest = tasks[i].positions;
  }
  const int64_t pages = (longest + OT_PAGE_SLOTS - 1) / OT_PAGE_SLOTS;
  return (ot_inference_shape){.slots = count < SLOTS ? count : SLOTS,
                              .chunk = CHUNK,
                              .positions = longest,
                              .pages = pages > CACHE_PAGES ? pages : CACHE_PAGES};
}

static ot_status create(ot_evaluation *e) {
  const ot_evaluation_request *const r = &e->request;
  for (int i = 0; i < r->num_tasks; i++) e->count += r->tasks[i].num_sequences;
  e->results = calloc((size_t)e->count + 1, sizeof *e->results);
  e->all = calloc((size_t)e->count + 1, sizeof *e->all);
  OT_CHECK(e->results && e->all, OT_ENVIRONMENT, "out of memory (results of tasks)");
  int64_t at = 0;
  for (int i = 0; i < r->num_tasks; i++) {
    for (int64_t k = 0; k < r->tasks[i].num_sequences; k++, at++) {
      const ot_text_task_sequence *const s = &r->tasks[i].sequences[k];
      e->all[at] = (running){
          .evaluation = e,
          .task = &r->tasks[i],
          .sequence = s,
          .result = &e->results[at],
          .text = {.tokenizer = r->tokenizer, .stops = s->stops, .num_stops = s->num_stops}};
    }
  }
  e->next = r->engine ? r->share : e->count;
  return OT_OK;
}

ot_status ot_evaluation_create(const ot_evaluation_request *request, ot_evaluation **out) {
  ot_evaluation *const e = calloc(1, sizeof *e);
  *out = e;
  OT_CHECK(e, OT_ENVIRONMENT, "out of memory (tasks)");
  e->request = *request;
  const ot_status status = create(e);
  if (status != OT_OK) ot_evaluation_destroy(out);
  return status;
}

void ot_evaluation_destroy(ot_evaluation **evaluation) {
  if (!evaluation || !*evaluation) return;
  ot_evaluation *const e = *evaluation;
  for (int64_t i = 0; e->all && i < e->count; i++) ot_text_stream_release(&e->all[i].text);
  free(e->all);
  free(e->results);
  free(e);
  *evaluation = NULL;
}

int64_t ot_evaluation_count(const ot_evaluation *evaluation) { return evaluation->count; }
double *ot_evaluation_results(ot_evaluation *evaluation) { return evaluation->results; }

// ---- sequences ----

static bool keep_token(void *context, const ot_token_event *event) {
  running *const r = context;
  if (!event->generated) {
    if (event->index >= r->sequence->first) *r->result += event->score.logprob;
    return true;
  }
  if (event->ends) return false;
  const ot_status status = ot_text_stream_append(&r->text, event->token);
  if (status != OT_OK) r->evaluation->status = status;
  return status == OT_OK && !r->text.stopped;
}

static bool is_space(uint8_t c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Whether the text is an answer, spaces around it apart.
static bool is_answer(const running *r) {
  const uint8_t *text = r->text.text.data;
  int64_t length = r->text.text.length;
  for (; length > 0 && is_space(text[length - 1]); length--) {
  }
  for (; length > 0 && is_space(text[0]); length--) text++;
  for (int i = 0; i < r->sequence->num_answers; i++) {
    const ot_stop_text *const answer = &r->sequence->answers[i];
    if (answer->length != length) continue;
    if (length == 0 || memcmp(answer->bytes, text, (size_t)length) == 0) return true;
  }
  return false;
}

static void finish(void *context, ot_finish how) {
  running *const r = context;
  r->evaluation->added--;
  if (r->sequence->max_tokens > 0) {
    ot_text_stream_finish(&r->text);
    *r->result = is_answer(r);
    ot_text_stream_release(&r->text);
  }
  if (how == OT_FINISH_NUMERIC) *r->result = NAN;
}

static ot_status add(ot_evaluation *e, running *r) {
  const ot_text_task_sequence *const s = r->sequence;
  const ot_special_tokens *const special = &r->task->special;
  ot_sequence_request request = {.prompt = s->ids,
                                 .num_prompt = s->count,
                                 .max_tokens = s->max_tokens,
                                 .draw = {.top_p = 1},
                                 .scores = s->max_tokens == 0,
                                 .token = keep_token,
                                 .finished = finish,
                                 .context = r};
  ot_sequence_add_ends(&request, special->ends, special->num_ends);
  e->added++;
  return ot_inference_add(e->request.engine, &request, NULL);
}

ot_status ot_evaluation_step(ot_evaluation *evaluation, bool *done) {
  ot_evaluation *const e = evaluation;
  for (; e->next < e->count && e->added < 2 * SLOTS; e->next += e->request.shares) {
    OT_TRY(add(e, &e->all[e->next]));
  }
  if (e->added > 0) OT_TRY(ot_inference_step(e->request.engine));
  OT_TRY(e->status);
  *done = e->added == 0 && e->next >= e->count;
  return OT_OK;
}
