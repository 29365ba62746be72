// SPDX-License-Identifier: Apache-2.0
// Submission of requests: their bodies are read and encoded by the thread that submits them, in one
// of two lanes, and the most memory that they may come to use is reserved before they are queued.
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "host/clock.h"
#include "serve/service_job.h"

enum {
  LONG_BYTES = 1 << 16,     // of a body that uses the second lane
  READER_BYTES = 1 << 18,   // of the piece of an answer that is being read
  SEQUENCE_BYTES = 1 << 9,  // of a sequence in the engine, without its tokens
  ENTRY_BYTES = 192,        // of a log-probability while it is written as JSON
};

static const double MIB = 1 << 20;

// ---- lanes ----

static ot_text_lane *lane_of(ot_service *service, int64_t bytes) {
  return &service->lanes[bytes > LONG_BYTES];
}

ot_encoder *ot_service_enter(ot_service *service, int64_t bytes) {
  ot_text_lane *const lane = lane_of(service, bytes);
  pthread_mutex_lock(&lane->lock);
  return lane->encoder;
}

void ot_service_leave(ot_service *service, int64_t bytes) {
  if (bytes > LONG_BYTES) ot_heap_trim();
  pthread_mutex_unlock(&lane_of(service, bytes)->lock);
}

// ---- memory ----

ot_status ot_service_reserve(ot_service *service, int64_t bytes) {
  const int64_t most = service->options.memory_bytes;
  pthread_mutex_lock(&service->lock);
  const int64_t used = service->reserved;
  const bool fits = bytes <= most - used;
  if (fits) service->reserved += bytes;
  pthread_mutex_unlock(&service->lock);
  OT_CHECK(bytes <= most, OT_USAGE,
           "this request may use %.1f MiB of memory, and the most for all requests is %.0f "
           "(--request-memory); ask for fewer prompts, choices (n), tokens or logprobs",
           (double)bytes / MIB, (double)most / MIB);
  OT_CHECK(fits, OT_ENVIRONMENT,
           "requests hold %.1f MiB of memory and this one needs %.1f more, but the most is %.0f "
           "(--request-memory); try again later",
           (double)used / MIB, (double)bytes / MIB, (double)most / MIB);
  return OT_OK;
}

void ot_service_return(ot_service *service, int64_t bytes) {
  pthread_mutex_lock(&service->lock);
  service->reserved -= bytes;
  pthread_mutex_unlock(&service->lock);
}

// The first event of a choice has all scores of its prompt.
static int64_t event_bytes(const ot_job *job) {
  const ot_completion_request *const r = &job->request;
  int64_t longest = 0;
  if (!r->stream || !r->echo || r->logprobs < 0) return 0;
  for (int i = 0; i < r->num_prompts; i++) {
    const int64_t count = job->prompts[i].ids.count;
    if (count > longest) longest = count;
  }
  return longest * ENTRY_BYTES * (r->logprobs + 4);
}

// The most that `job` may come to use, lists that double included.
static int64_t bytes_of(const ot_service *service, const ot_job *job) {
  const ot_completion_request *const r = &job->request;
  const int64_t tops = r->logprobs > 0 ? r->logprobs : 0;
  const int64_t record =
      2 * (int64_t)sizeof(ot_token_record) + (tops + 1) * (int64_t)sizeof(ot_scored_token);
  int64_t bytes = job->arena.total + READER_BYTES + event_bytes(job);
  if (job->lesson.rows.B > 0) bytes += 2 * ot_lesson_answer_bytes(&service->options.facts);
  for (int i = 0; i < job->num_choices; i++) {
    const ot_job_prompt *const prompt = &job->prompts[job->choices[i].prompt];
    const int64_t tokens =
        r->max_tokens >= 0 ? r->max_tokens : service->options.positions - prompt->ids.count + 1;
    const int64_t token = 2 * service->longest_token + (r->logprobs >= 0 ? record : 0) +
                          (r->stream ? 2 * (int64_t)sizeof(int64_t) : 0);
    bytes += SEQUENCE_BYTES + tokens * token;
    bytes += (int64_t)sizeof(int32_t) * (prompt->ids.count + tokens);
  }
  for (int i = 0; i < r->num_prompts; i++) {
    const ot_job_prompt *const prompt = &job->prompts[i];
    bytes += prompt->ids.capacity * (int64_t)sizeof(int32_t) + prompt->echo.capacity;
    if (r->echo && r->logprobs >= 0) bytes += prompt->ids.count * record;
  }
  return bytes;
}

static ot_status reserve(ot_service *service, ot_job *job, bool *busy) {
  const int64_t bytes = bytes_of(service, job);
  const ot_status status = ot_service_reserve(service, bytes);
  *busy = status == OT_ENVIRONMENT;
  if (status == OT_OK) job->bytes = bytes;
  return status;
}

// ---- reading a request ----

static ot_status encode_chat(ot_service *service, ot_job *job) {
  ot_buffer text = {0};
  ot_prompt_source *const prompt = ot_arena_array(&job->arena, 1, sizeof *prompt);
  const ot_completion_request *const r = &job->request;
  const ot_chat_template *const chat = service->options.chat;
  OT_CHECK(chat, OT_USAGE, "the model has no chat template that is known by name (%s)",
           ot_chat_template_names);
  const char *const start =
      ot_chat_template_start(chat, service->options.tokenizer, &service->special, &job->arena);
  ot_status status = ot_chat_template_render(chat, start, r->messages, r->num_messages, &text);
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

// The ids of a prompt; an empty one starts a text.
static ot_status encode_prompt(ot_encoder *encoder, ot_job *job, int i) {
  const ot_prompt_source *const from = &job->request.prompts[i];
  ot_token_list *const to = &job->prompts[i].ids;
  const ot_service_options *const o = &job->service->options;
  OT_TRY(from->ids ? ot_token_list_append(to, from->ids, from->count)
                   : ot_encoder_encode(encoder, from->text, from->length, to));
  const int32_t prefix = job->service->special.prefix;
  if (to->count == 0 && prefix >= 0) OT_TRY(ot_token_list_append(to, &prefix, 1));
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

static ot_status copy_echo(ot_job *job, ot_job_prompt *prompt) {
  for (int64_t k = 0; k < prompt->ids.count; k++) {
    int64_t length = 0;
    const uint8_t *const bytes =
        ot_tokenizer_bytes(job->service->options.tokenizer, prompt->ids.ids[k], &length);
    OT_TRY(ot_buffer_append(&prompt->echo, bytes, length));
  }
  return OT_OK;
}

static ot_status prepare_lesson(ot_job *job, const ot_request_body *body) {
  const ot_service_options *const o = &job->service->options;
  OT_TRY(ot_service_check_teacher(o));
  OT_TRY(ot_lesson_read(body->text, body->length, &o->facts, &job->arena, &job->lesson));
  job->left = 1;
  return OT_OK;
}

static ot_status prepare_completion(ot_encoder *encoder, ot_job *job, const ot_request_body *body) {
  ot_completion_request *const r = &job->request;
  OT_TRY(ot_completion_request_read(body, &job->arena, r));
  if (job->chat) OT_TRY(encode_chat(job->service, job));
  job->prompts = ot_arena_array(&job->arena, r->num_prompts, sizeof *job->prompts);
  for (int i = 0; i < r->num_prompts; i++) {
    OT_TRY(encode_prompt(encoder, job, i));
    if (r->echo) OT_TRY(copy_echo(job, &job->prompts[i]));
  }
  job->num_choices = job->left = r->num_prompts * (int)r->n;
  job->choices = ot_arena_array(&job->arena, job->num_choices, sizeof *job->choices);
  for (int i = 0; i < job->num_choices; i++) {
    job->choices[i] = (ot_choice){.job = job,
                                  .prompt = i / (int)r->n,
                                  .text = {.tokenizer = job->service->options.tokenizer,
                                           .stops = r->stops,
                                           .num_stops = r->num_stops}};
  }
  return OT_OK;
}

static ot_status prepare(ot_job *job, const ot_request_body *body) {
  ot_encoder *const encoder = ot_service_enter(job->service, body->length);
  const ot_status status =
      body->lesson ? prepare_lesson(job, body) : prepare_completion(encoder, job, body);
  ot_service_leave(job->service, body->length);
  return status;
}

// ---- queuing ----

static ot_status enqueue(ot_service *service, ot_job *job, bool *busy) {
  pthread_mutex_lock(&service->lock);
  const int64_t waiting = service->waiting, most = service->options.most_waiting;
  const bool fits = !service->stops && (waiting == 0 || waiting + job->left <= most);
  if (fits) {
    job->id = ++service->ids;
    service->waiting += job->left;
    if (service->last) service->last->next = job;
    if (!service->first) service->first = job;
    service->last = job;
    pthread_cond_signal(&service->work);
  }
  pthread_mutex_unlock(&service->lock);
  *busy = !fits;
  OT_CHECK(
      fits, OT_ENVIRONMENT,
      "too many requests wait: %lld sequences, and the most is %lld (--queue); try again later",
      (long long)waiting, (long long)most);
  return OT_OK;
}

static ot_job *create_job(ot_service *service, const ot_request_body *body,
                          const ot_job_owner *owner) {
  ot_job *const job = calloc(1, sizeof *job);
  if (!job) return NULL;
  job->service = service;
  job->arena = ot_heap_arena_create(&job->heap);
  job->chat = body->chat;
  job->owner = *owner;
  job->code = 200;
  job->begin_s = ot_clock_s();
  job->created_s = ot_clock_unix_s();
  pthread_cond_init(&job->news, NULL);
  pthread_mutex_lock(&service->lock);
  service->held++;
  pthread_mutex_unlock(&service->lock);
  return job;
}

ot_status ot_service_submit(ot_service *service, const ot_request_body *body,
                            const ot_job_owner *owner, bool *busy, ot_job **out) {
  *busy = false;
  *out = NULL;
  ot_job *const job = create_job(service, body, owner);
  OT_CHECK(job, OT_ENVIRONMENT, "out of memory");
  ot_status status = prepare(job, body);
  if (status == OT_OK) status = reserve(service, job, busy);
  if (status == OT_OK) status = enqueue(service, job, busy);
  if (status == OT_OK) {
    *out = job;
  } else {
    ot_job_free(job);
  }
  pthread_mutex_lock(&service->lock);
  service->counts.submitted += status == OT_OK || *busy;
  service->counts.refused += *busy;
  pthread_mutex_unlock(&service->lock);
  return status;
}
