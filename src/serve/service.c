// SPDX-License-Identifier: Apache-2.0
// The engine's thread takes jobs from an inbox, drops those whose owners have gone, and iterates.
// It holds the lock for moments only, never while the engine runs.
#include "serve/service.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/text.h"
#include "host/clock.h"
#include "serve/service_job.h"

enum {
  MOST_UNREAD = 1 << 20,  // bytes of a stream that its owner has not taken
  CLIENT_LEFT = 499,      // a status that no client receives
};

static const double CHECK_S = 0.1;  // between looks for owners that have gone

struct ot_service {
  ot_service_options options;
  ot_inference *engine;
  ot_encoder *encoder;  // under `submitting`
  pthread_mutex_t submitting;
  pthread_t thread;
  bool runs;  // the thread
  double checked_s;
  ot_job *jobs;  // running, of the engine's thread
  // Guarded by the lock:
  pthread_mutex_t lock;
  pthread_cond_t work;
  ot_job *first, *last;  // inbox
  bool stops, looks;     // looks: an owner has released its job
  int64_t waiting, ids;  // sequences that have not ended; numbers given to jobs
  ot_service_counts counts;
};

ot_status ot_service_check_teacher(const ot_service_options *options) {
  OT_CHECK(options->teacher, OT_USAGE,
           "this server has no teacher: start it with --teach RUN.yaml");
  return OT_OK;
}

const ot_service_options *ot_service_options_of(const ot_service *service) {
  return &service->options;
}

// ---- jobs ----

static void free_job(ot_job *job) {
  for (int i = 0; i < job->num_choices; i++) {
    ot_text_stream_release(&job->choices[i].text);
    ot_buffer_release(&job->choices[i].echo);
  }
  for (int i = 0; job->prompts && i < job->request.num_prompts; i++) {
    ot_token_list_release(&job->prompts[i]);
  }
  ot_buffer_release(&job->answer);
  ot_heap_release(&job->heap);
  free(job);
}

// Under the lock.
static void wake(ot_job *job) {
  if (!job->waits || job->released) return;
  job->waits = false;
  job->owner.wake(job->owner.context);
}

// Adds an event to a stream, or the whole answer.
static void put(ot_job *job, const char *before, const char *text, const char *after) {
  ot_service *const service = job->service;
  pthread_mutex_lock(&service->lock);
  ot_status status = ot_buffer_append_text(&job->answer, before);
  if (status == OT_OK) status = ot_buffer_append_text(&job->answer, text);
  if (status == OT_OK) status = ot_buffer_append_text(&job->answer, after);
  if (status != OT_OK) job->code = 500;
  wake(job);
  pthread_mutex_unlock(&service->lock);
}

static void put_event(ot_choice *choice) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const char *const event = ot_answer_event(choice, &choice->job->service->options, &arena);
  if (event) put(choice->job, "data: ", event, "\n\n");
  ot_heap_release(&heap);
}

static void fail_job(ot_job *job, int code, const char *message) {
  if (job->error) return;
  job->code = code;
  job->error = ot_arena_format(&job->arena, "%s", message);
}

// All choices have ended.
static void complete(ot_job *job) {
  ot_service *const service = job->service;
  const bool streams = job->request.stream;
  const char *const error = job->error ? ot_answer_error(&job->arena, job->code, job->error) : NULL;
  if (streams) {
    if (error) put(job, "data: ", error, "\n\n");
    if (!error && job->request.include_usage) {
      put(job, "data: ", ot_answer_usage(job, &service->options, &job->arena), "\n\n");
    }
    put(job, "data: ", "[DONE]", "\n\n");
  } else {
    const char *const text = error ? error : job->taught;
    put(job, "", text ? text : ot_answer_whole(job, &service->options), "");
  }
  pthread_mutex_lock(&service->lock);
  const bool left = job->released || job->code == CLIENT_LEFT;
  service->counts.finished += !job->error && !left;
  service->counts.failed += job->error && !left;
  service->counts.cancelled += left;
  job->done = true;
  wake(job);
  const bool released = job->released;
  pthread_mutex_unlock(&service->lock);
  if (released) free_job(job);
}

// ---- tokens ----

static void add_record(ot_choice *choice, const ot_token_event *event, int64_t offset) {
  ot_job *const job = choice->job;
  ot_candidate *const top = ot_arena_array(&job->arena, event->num_top + 1, sizeof *top);
  for (int i = 0; i < event->num_top; i++) top[i] = event->top[i];
  choice->records = ot_arena_grow(&job->arena, choice->records, choice->num_records,
                                  &choice->capacity, sizeof *choice->records);
  choice->records[choice->num_records++] = (ot_token_record){.token = event->token,
                                                             .text_offset = offset,
                                                             .logprob = event->score.logprob,
                                                             .num_top = event->num_top,
                                                             .top = top};
}

static void note_first_token(const ot_job *job) {
  pthread_mutex_lock(&job->service->lock);
  job->service->counts.first_tokens++;
  job->service->counts.first_token_s += ot_clock_s() - job->begin_s;
  pthread_mutex_unlock(&job->service->lock);
}

static bool take_prompt_token(ot_choice *choice, const ot_token_event *event) {
  int64_t length = 0;
  ot_tokenizer_bytes(choice->job->service->options.tokenizer, event->token, &length);
  add_record(choice, event, choice->prompt_offset);
  choice->prompt_offset += length;
  return true;
}

static bool take_token(void *context, const ot_token_event *event) {
  ot_choice *const choice = context;
  ot_job *const job = choice->job;
  if (!event->generated) return take_prompt_token(choice, event);
  if (choice->num_tokens++ == 0) note_first_token(job);
  const int64_t offset = choice->echo.length + choice->text.text.length;
  if (job->request.logprobs >= 0) add_record(choice, event, offset);
  if (event->ends) return false;
  if (ot_text_stream_append(&choice->text, event->token) != OT_OK) {
    fail_job(job, 500, ot_fail_message());
    return false;
  }
  if (job->request.stream) put_event(choice);
  return !choice->text.stopped;
}

static void take_end(void *context, ot_finish finish) {
  ot_choice *const choice = context;
  ot_job *const job = choice->job;
  ot_text_stream_finish(&choice->text);
  choice->sequence = NULL;
  choice->ended = true;
  choice->finish = finish;
  if (finish == OT_FINISH_NUMERIC) fail_job(job, 500, "the logits are not numbers");
  if (job->request.stream && !job->error) put_event(choice);
  pthread_mutex_lock(&job->service->lock);
  job->service->waiting--;
  pthread_mutex_unlock(&job->service->lock);
  job->left--;
}

// ---- the engine's thread ----

static void start_choice(ot_service *service, ot_choice *choice) {
  ot_job *const job = choice->job;
  const ot_completion_request *const r = &job->request;
  const ot_token_list *const prompt = &job->prompts[choice->prompt];
  const int64_t room = service->options.positions - prompt->count + 1;
  ot_sequence_request request = {.prompt = prompt->ids,
                                 .num_prompt = prompt->count,
                                 .max_tokens = r->max_tokens >= 0 ? r->max_tokens : room,
                                 .draw = r->draw,
                                 .scores = r->echo && r->logprobs >= 0,
                                 .top = r->logprobs > 0 ? r->logprobs : 0,
                                 .token = take_token,
                                 .finished = take_end,
                                 .context = choice};
  request.draw.choice = (uint64_t)((choice - job->choices) % r->n);
  const int32_t eos = ot_tokenizer_eos(service->options.tokenizer);
  if (eos >= 0) request.ends[request.num_ends++] = eos;
  if (job->chat) {
    const char *const end = ot_chat_template_end(service->options.chat);
    const int32_t turn = ot_tokenizer_find(service->options.tokenizer, end);
    if (turn >= 0) request.ends[request.num_ends++] = turn;
  }
  if (ot_inference_add(service->engine, &request, &choice->sequence) == OT_OK) return;
  fail_job(job, 400, ot_fail_message());
  take_end(choice, OT_FINISH_CANCELLED);
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
  const bool full = job->answer.length - job->sent > MOST_UNREAD && job->request.stream;
  const bool gone = !released && job->waits && job->owner.is_gone(job->owner.context);
  pthread_mutex_unlock(&service->lock);
  if (full) fail_job(job, 500, "the stream was not read");
  if (gone) fail_job(job, CLIENT_LEFT, "the client has gone");
  const bool late = ot_clock_s() - job->begin_s > service->options.timeout_s;
  if (late) fail_job(job, 504, "the request took too long");
  return released || full || gone || late;
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
static ot_job *take_inbox(ot_service *service, bool *stops, bool *looks) {
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
    start_jobs(service, take_inbox(service, &stops, &looks));
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
  OT_TRY(ot_encoder_create(tokenizer, &service->encoder));
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
  pthread_mutex_init(&service->submitting, NULL);
  pthread_cond_init(&service->work, NULL);
  const ot_status status = start(service);
  if (status != OT_OK) ot_service_destroy(out);
  return status;
}

void ot_service_stop(ot_service *service) {
  if (!service || !service->runs) return;
  pthread_mutex_lock(&service->lock);
  service->stops = true;
  pthread_cond_signal(&service->work);
  pthread_mutex_unlock(&service->lock);
  pthread_join(service->thread, NULL);
  announce_thread(service, false);
  service->runs = false;
}

void ot_service_destroy(ot_service **service) {
  if (!service || !*service) return;
  ot_service *const s = *service;
  ot_service_stop(s);
  ot_inference_destroy(&s->engine);
  ot_encoder_destroy(&s->encoder);
  pthread_mutex_destroy(&s->lock);
  pthread_mutex_destroy(&s->submitting);
  pthread_cond_destroy(&s->work);
  free(s);
  *service = NULL;
}

// ---- submitting ----

static ot_status encode_chat(ot_service *service, ot_job *job) {
  ot_buffer text = {0};
  ot_prompt_source *const prompt = ot_arena_array(&job->arena, 1, sizeof *prompt);
  const ot_completion_request *const r = &job->request;
  ot_status status =
      service->options.chat
          ? ot_chat_template_render(service->options.chat, r->messages, r->num_messages, &text)
          : ot_fail(OT_USAGE, "the model has no chat template that is known by name (%s)",
                    ot_chat_template_names);
  if (status == OT_OK) {
    *prompt =
        (ot_prompt_source){.text = ot_arena_text(&job->arena, (const char *)text.data, text.length),
                           .length = text.length};
    job->request.prompts = prompt;
    job->request.num_prompts = 1;
  }
  ot_buffer_release(&text);
  return status;
}

// The ids of a prompt; an empty one starts a document.
static ot_status encode_prompt(ot_service *service, ot_job *job, int i) {
  const ot_prompt_source *const from = &job->request.prompts[i];
  ot_token_list *const to = &job->prompts[i];
  const ot_service_options *const o = &service->options;
  OT_TRY(from->ids ? ot_token_list_append(to, from->ids, from->count)
                   : ot_encoder_encode(service->encoder, from->text, from->length, to));
  const int32_t eos = ot_tokenizer_eos(o->tokenizer);
  if (to->count == 0 && eos >= 0) OT_TRY(ot_token_list_append(to, &eos, 1));
  OT_CHECK(to->count > 0, OT_USAGE, "the prompt is empty");
  const int64_t made = job->request.max_tokens > 0 ? job->request.max_tokens - 1 : 0;
  OT_CHECK(to->count + made <= o->positions, OT_USAGE,
           "a prompt of %lld tokens and %lld to generate, but the model has room for %lld",
           (long long)to->count, (long long)(made + 1), (long long)o->positions);
  const int64_t vocab = ot_runtime_any_graph(o->runtime)->request.model->vocab_size;
  for (int64_t k = 0; k < to->count; k++) {
    OT_CHECK(to->ids[k] < vocab, OT_USAGE, "token %d of the prompt is not below %lld", to->ids[k],
             (long long)vocab);
  }
  return OT_OK;
}

static ot_status make_choice(ot_service *service, ot_job *job, int i) {
  ot_choice *const choice = &job->choices[i];
  *choice = (ot_choice){.job = job,
                        .prompt = i / (int)job->request.n,
                        .text = {.tokenizer = service->options.tokenizer,
                                 .stops = job->request.stops,
                                 .num_stops = job->request.num_stops}};
  job->num_choices = i + 1;
  if (!job->request.echo) return OT_OK;
  const ot_token_list *const prompt = &job->prompts[choice->prompt];
  for (int64_t k = 0; k < prompt->count; k++) {
    int64_t length = 0;
    const uint8_t *const bytes =
        ot_tokenizer_bytes(service->options.tokenizer, prompt->ids[k], &length);
    OT_TRY(ot_buffer_append(&choice->echo, bytes, length));
  }
  return OT_OK;
}

static ot_status prepare_lesson(ot_service *service, ot_job *job, const ot_request_body *body) {
  const ot_service_options *const o = &service->options;
  OT_TRY(ot_service_check_teacher(o));
  OT_TRY(ot_lesson_read(body->text, body->length, &o->facts, &job->arena, &job->lesson));
  job->left = 1;
  return OT_OK;
}

static ot_status prepare(ot_service *service, ot_job *job, const ot_request_body *body) {
  ot_completion_request *const r = &job->request;
  if (body->lesson) return prepare_lesson(service, job, body);
  OT_TRY(ot_completion_request_read(body, &job->arena, r));
  if (job->chat) OT_TRY(encode_chat(service, job));
  job->prompts = ot_arena_array(&job->arena, r->num_prompts, sizeof *job->prompts);
  for (int i = 0; i < r->num_prompts; i++) OT_TRY(encode_prompt(service, job, i));
  const int count = r->num_prompts * (int)r->n;
  job->choices = ot_arena_array(&job->arena, count, sizeof *job->choices);
  for (int i = 0; i < count; i++) OT_TRY(make_choice(service, job, i));
  job->left = count;
  return OT_OK;
}

// False: too many wait.
static bool enqueue(ot_service *service, ot_job *job) {
  pthread_mutex_lock(&service->lock);
  const int64_t waiting = service->waiting;
  const bool fits =
      !service->stops && (waiting == 0 || waiting + job->left <= service->options.most_waiting);
  service->counts.submitted++;
  service->counts.refused += !fits;
  if (fits) {
    job->id = ++service->ids;
    service->waiting += job->left;
    if (service->last) service->last->next = job;
    if (!service->first) service->first = job;
    service->last = job;
    pthread_cond_signal(&service->work);
  }
  pthread_mutex_unlock(&service->lock);
  return fits;
}

ot_status ot_service_submit(ot_service *service, const ot_request_body *body,
                            const ot_job_owner *owner, bool *busy, ot_job **out) {
  *busy = false;
  *out = NULL;
  ot_job *const job = calloc(1, sizeof *job);
  OT_CHECK(job, OT_ENVIRONMENT, "out of memory");
  job->service = service;
  job->arena = ot_heap_arena_create(&job->heap);
  job->chat = body->chat;
  job->owner = *owner;
  job->code = 200;
  job->begin_s = ot_clock_s();
  job->created_s = ot_clock_unix_s();
  pthread_mutex_lock(&service->submitting);
  const ot_status status = prepare(service, job, body);
  pthread_mutex_unlock(&service->submitting);
  if (status == OT_OK) *busy = !enqueue(service, job);
  if (status != OT_OK || *busy) {
    free_job(job);
    return status;
  }
  *out = job;
  return OT_OK;
}

bool ot_job_streams(const ot_job *job) { return job->request.stream; }

int64_t ot_job_read(ot_job *job, char *to, int64_t most, bool *done) {
  pthread_mutex_lock(&job->service->lock);
  const int64_t left = job->answer.length - job->sent, n = left < most ? left : most;
  if (n > 0) memcpy(to, job->answer.data + job->sent, (size_t)n);
  job->sent += n;
  *done = job->done && left == n;
  if (n == 0 && !*done) job->waits = true;
  pthread_mutex_unlock(&job->service->lock);
  return n;
}

bool ot_job_answer(ot_job *job, const char **body, int64_t *length, int *code) {
  pthread_mutex_lock(&job->service->lock);
  const bool done = job->done;
  if (!done) job->waits = true;
  *body = (const char *)job->answer.data;
  *length = job->answer.length;
  *code = job->code;
  pthread_mutex_unlock(&job->service->lock);
  return done;
}

void ot_job_release(ot_job **job) {
  if (!job || !*job) return;
  ot_job *const j = *job;
  ot_service *const service = j->service;
  pthread_mutex_lock(&service->lock);
  const bool done = j->done;
  j->released = true;
  service->looks = true;
  pthread_mutex_unlock(&service->lock);
  if (done) free_job(j);
  *job = NULL;
}

ot_service_counts ot_service_count(ot_service *service) {
  pthread_mutex_lock(&service->lock);
  const ot_service_counts counts = service->counts;
  pthread_mutex_unlock(&service->lock);
  return counts;
}
