// SPDX-License-Identifier: Apache-2.0
// The engine's thread takes jobs from an inbox, drops those whose owners have gone, and iterates.
// It holds the lock for moments only, never while the engine runs.
#include "serve/service.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/text.h"
#include "host/clock.h"
#include "serve/service_job.h"

enum { CLIENT_LEFT = 499 };  // a status that no client receives

static const double CHECK_S = 0.1;    // between looks for owners that have gone
static const double LAST_READ_S = 2;  // for readers of answers when the service ends

ot_status ot_service_check_teacher(const ot_service_options *options) {
  OT_CHECK(options->teacher, OT_USAGE,
           "this server has no teacher: start it with --teach RUN.yaml");
  return OT_OK;
}

const ot_service_options *ot_service_options_of(const ot_service *service) {
  return &service->options;
}

// ---- jobs ----

// Under the lock: the reader has something to read.
static void wake(ot_job *job) {
  if (job->waits) pthread_cond_signal(&job->news);
}

// Under the lock.
static void set_error(ot_job *job, int code, const char *message) {
  if (job->error) return;
  job->code = code;
  job->error = ot_arena_format(&job->arena, "%s", message);
}

static void fail_job(ot_job *job, int code, const char *message) {
  pthread_mutex_lock(&job->service->lock);
  set_error(job, code, message);
  pthread_mutex_unlock(&job->service->lock);
}

// All choices have ended.
static void complete(ot_job *job) {
  ot_service *const service = job->service;
  pthread_mutex_lock(&service->lock);
  const bool left = job->released || job->code == CLIENT_LEFT;
  service->counts.finished += !job->error && !left;
  service->counts.failed += job->error && !left;
  service->counts.cancelled += left;
  job->done = true;
  wake(job);
  const bool released = job->released;
  pthread_mutex_unlock(&service->lock);
  if (released) ot_job_free(job);
}

// ---- tokens ----

// All of these are under the lock.

static void add_record(ot_job *job, ot_record_list *list, const ot_token_event *event,
                       int64_t offset) {
  ot_scored_token *const top = ot_arena_array(&job->arena, event->num_top, sizeof *top);
  for (int i = 0; i < event->num_top; i++) top[i] = event->top[i];
  list->of = ot_arena_grow(&job->arena, list->of, list->count, &list->capacity, sizeof *list->of);
  list->of[list->count++] = (ot_token_record){.token = event->token,
                                              .num_top = event->num_top,
                                              .text_offset = offset,
                                              .logprob = event->score.logprob,
                                              .top = top};
}

// Each choice has an event for each token of its prompt; the first one counts.
static void add_score(ot_choice *choice, const ot_token_event *event) {
  ot_job *const job = choice->job;
  ot_job_prompt *const prompt = &job->prompts[choice->prompt];
  int64_t length = 0;
  if (event->index != prompt->scores.count) return;
  ot_tokenizer_bytes(job->service->options.tokenizer, event->token, &length);
  add_record(job, &prompt->scores, event, prompt->offset);
  prompt->offset += length;
}

static bool add_generated(ot_choice *choice, const ot_token_event *event) {
  ot_job *const job = choice->job;
  ot_service_counts *const counts = &job->service->counts;
  if (choice->num_tokens++ == 0) {
    counts->first_tokens++;
    counts->first_token_s += ot_clock_s() - job->begin_s;
  }
  const int64_t offset = job->prompts[choice->prompt].echo.length + choice->text.text.length;
  if (job->request.logprobs >= 0) add_record(job, &choice->made, event, offset);
  if (event->ends) return false;
  if (ot_text_stream_append(&choice->text, event->token) != OT_OK) {
    set_error(job, 500, ot_fail_message());
    return false;
  }
  if (job->request.stream) {
    choice->events = ot_arena_grow(&job->arena, choice->events, choice->num_events,
                                   &choice->events_capacity, sizeof *choice->events);
    choice->events[choice->num_events++] = choice->text.passed;
    wake(job);
  }
  return !choice->text.stopped;
}

static bool receive_token(void *context, const ot_token_event *event) {
  ot_choice *const choice = context;
  bool more = true;
  pthread_mutex_lock(&choice->job->service->lock);
  if (event->generated) {
    more = add_generated(choice, event);
  } else {
    add_score(choice, event);
  }
  pthread_mutex_unlock(&choice->job->service->lock);
  return more;
}

static void end_job(void *context, ot_finish finish) {
  ot_choice *const choice = context;
  ot_job *const job = choice->job;
  pthread_mutex_lock(&job->service->lock);
  ot_text_stream_finish(&choice->text);
  choice->sequence = NULL;
  choice->ended = true;
  choice->finish = finish;
  if (finish == OT_FINISH_NUMERIC) set_error(job, 500, "the logits are not numbers");
  if (job->request.stream) wake(job);
  job->service->waiting--;
  pthread_mutex_unlock(&job->service->lock);
  job->left--;
}

// ---- the engine's thread ----

static void add_ends(const ot_service *service, const ot_job *job, ot_sequence_request *request) {
  const ot_completion_request *const r = &job->request;
  ot_sequence_add_ends(request, r->stop_ids, r->num_stop_ids);
  if (r->ignore_eos) return;
  ot_sequence_add_ends(request, service->special.ends, service->special.num_ends);
  if (!job->chat) return;
  const char *const end = ot_chat_template_end(service->options.chat);
  const int32_t turn = ot_tokenizer_find(service->options.tokenizer, end);
  ot_sequence_add_ends(request, &turn, 1);
}

static void start_choice(ot_service *service, ot_choice *choice) {
  ot_job *const job = choice->job;
  const ot_completion_request *const r = &job->request;
  const ot_token_list *const prompt = &job->prompts[choice->prompt].ids;
  const int64_t room = service->options.positions - prompt->count + 1;
  ot_sequence_request request = {.prompt = prompt->ids,
                                 .num_prompt = prompt->count,
                                 .max_tokens = r->max_tokens >= 0 ? r->max_tokens : room,
                                 .draw = r->draw,
                                 .scores = r->echo && r->logprobs >= 0,
                                 .top = r->logprobs > 0 ? r->logprobs : 0,
                                 .token = receive_token,
                                 .finished = end_job,
                                 .context = choice};
  request.draw.choice = (uint64_t)((choice - job->choices) % r->n);
  add_ends(service, job, &request);
  if (ot_inference_add(service->engine, &request, &choice->sequence) == OT_OK) return;
  fail_job(job, 400, ot_fail_message());
  end_job(choice, OT_FINISH_CANCELLED);
}

static void cancel_job(ot_service *service, ot_job *job) {
  for (int i = 0; i < job->num_choices; i++) {
    if (job->choices[i].sequence) ot_inference_cancel(service->engine, job->choices[i].sequence);
  }
}

// Whether a job is to be ended early; gives the reason to the sender if there still is one.
static bool is_lost(ot_service *service, ot_job *job) {
  pthread_mutex_lock(&service->lock);
  const bool released = job->released;
  const bool gone = !released && job->waits && job->owner.is_gone(job->owner.context);
  pthread_mutex_unlock(&service->lock);
  if (gone) fail_job(job, CLIENT_LEFT, "the client has gone");
  const bool late = ot_clock_s() - job->begin_s > service->options.timeout_s;
  if (late) fail_job(job, 504, "the request took too long");
  return released || gone || late;
}

// The teacher reads a micro-batch between two iterations.
static void teach(ot_service *service, ot_job *job) {
  ot_teacher_answer answer;
  if (is_lost(service, job)) {
    fail_job(job, CLIENT_LEFT, "the client has gone");
  } else if (ot_teacher_ask(service->options.teacher, &job->lesson.rows, job->lesson.keys,
                            &answer) != OT_OK) {
    fail_job(job, 500, ot_fail_message());
  } else {
    job->taught = ot_lesson_answer_write(&service->options.facts, &answer, &job->arena);
  }
  pthread_mutex_lock(&service->lock);
  service->waiting--;
  pthread_mutex_unlock(&service->lock);
  job->left = 0;
}

static void start_jobs(ot_service *service, ot_job *job) {
  for (ot_job *next; job; job = next) {
    next = job->next;
    if (job->lesson.rows.B > 0) teach(service, job);
    for (int i = 0; i < job->num_choices; i++) start_choice(service, &job->choices[i]);
    job->next = service->jobs;
    service->jobs = job;
  }
}

static void check_jobs(ot_service *service) {
  for (ot_job *job = service->jobs; job; job = job->next) {
    if (is_lost(service, job)) cancel_job(service, job);
  }
}

static void complete_jobs(ot_service *service) {
  for (ot_job **at = &service->jobs; *at;) {
    ot_job *const job = *at;
    if (job->left > 0) {
      at = &job->next;
      continue;
    }
    *at = job->next;
    complete(job);
  }
}

static void fail_all(ot_service *service, const char *message) {
  for (ot_job *job = service->jobs; job; job = job->next) {
    fail_job(job, 503, message);
    cancel_job(service, job);
  }
  complete_jobs(service);
}

// Waits for work; returns the inbox. `stops`: the service ends.
static ot_job *empty_inbox(ot_service *service, bool *stops, bool *looks) {
  pthread_mutex_lock(&service->lock);
  while (!service->first && !service->jobs && !service->stops) {
    pthread_cond_wait(&service->work, &service->lock);
  }
  ot_job *const jobs = service->first;
  service->first = service->last = NULL;
  *stops = service->stops;
  *looks = service->looks;
  service->looks = false;
  service->counts.engine = ot_inference_count(service->engine);
  pthread_mutex_unlock(&service->lock);
  return jobs;
}

static void *work(void *context) {
  ot_service *const service = context;
  bool stops = false, looks = false;
  while (!stops) {
    start_jobs(service, empty_inbox(service, &stops, &looks));
    if (stops) fail_all(service, "the server stops");
    if (looks || ot_clock_s() - service->checked_s > CHECK_S) {
      service->checked_s = ot_clock_s();
      check_jobs(service);
    }
    if (ot_inference_step(service->engine) != OT_OK) fail_all(service, ot_fail_message());
    complete_jobs(service);
  }
  (void)ot_inference_dismiss(service->engine);
  return NULL;
}

// The ranks that follow see the engine's thread as another thread of this rank.
static void announce_thread(const ot_service *service, bool more) {
  ot_comm *const comm = ot_runtime_comm(service->options.runtime);
  if (comm) ot_comm_add_thread(comm, more);
}

// ---- create ----

static ot_status start(ot_service *service) {
  const ot_tokenizer *const tokenizer = service->options.tokenizer;
  const ot_model *const model = ot_runtime_any_graph(service->options.runtime)->request.model;
  service->special = ot_special_tokens_of(tokenizer, model);
  for (int i = 0; i < OT_TEXT_LANES; i++) {
    OT_TRY(ot_encoder_create(tokenizer, &service->lanes[i].encoder));
    ot_encoder_limit(service->lanes[i].encoder, model->vocab_size);
  }
  for (int64_t i = 0; i < ot_tokenizer_vocab_size(tokenizer); i++) {
    int64_t length = 0;
    ot_tokenizer_bytes(tokenizer, i, &length);
    if (length > service->longest_token) service->longest_token = length;
  }
  OT_TRY(ot_inference_create(service->options.runtime, ot_tokenizer_vocab_size(tokenizer),
                             &service->engine));
  service->counts.engine = ot_inference_count(service->engine);
  announce_thread(service, true);
  service->runs = pthread_create(&service->thread, NULL, work, service) == 0;
  if (!service->runs) announce_thread(service, false);
  OT_CHECK(service->runs, OT_ENVIRONMENT, "cannot start a thread");
  return OT_OK;
}

ot_status ot_service_create(const ot_service_options *options, ot_service **out) {
  ot_service *const service = calloc(1, sizeof *service);
  *out = service;
  OT_CHECK(service, OT_ENVIRONMENT, "out of memory");
  service->options = *options;
  pthread_mutex_init(&service->lock, NULL);
  pthread_mutex_init(&service->writing, NULL);
  for (int i = 0; i < OT_TEXT_LANES; i++) pthread_mutex_init(&service->lanes[i].lock, NULL);
  pthread_cond_init(&service->work, NULL);
  const ot_status status = start(service);
  if (status != OT_OK) ot_service_destroy(out);
  return status;
}

// All jobs are done; they are released once their answers have been read.
static void wait_for_readers(ot_service *service) {
  const struct timespec end = ot_clock_timespec(ot_clock_unix_s() + LAST_READ_S);
  pthread_mutex_lock(&service->lock);
  while (service->held > 0 &&
         pthread_cond_timedwait(&service->work, &service->lock, &end) != ETIMEDOUT) {
  }
  pthread_mutex_unlock(&service->lock);
}

void ot_service_stop(ot_service *service) {
  if (!service || !service->runs) return;
  pthread_mutex_lock(&service->lock);
  service->stops = true;
  pthread_cond_signal(&service->work);
  pthread_mutex_unlock(&service->lock);
  pthread_join(service->thread, NULL);
  wait_for_readers(service);
  announce_thread(service, false);
  service->runs = false;
}

void ot_service_destroy(ot_service **service) {
  if (!service || !*service) return;
  ot_service *const s = *service;
  ot_service_stop(s);
  ot_inference_destroy(&s->engine);
  for (int i = 0; i < OT_TEXT_LANES; i++) {
    ot_encoder_destroy(&s->lanes[i].encoder);
    pthread_mutex_destroy(&s->lanes[i].lock);
  }
  pthread_mutex_destroy(&s->writing);
  pthread_mutex_destroy(&s->lock);
  pthread_cond_destroy(&s->work);
  free(s);
  *service = NULL;
}

ot_service_counts ot_service_count(ot_service *service) {
  pthread_mutex_lock(&service->lock);
  const ot_service_counts counts = service->counts;
  pthread_mutex_unlock(&service->lock);
  return counts;
}
