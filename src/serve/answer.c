// SPDX-License-Identifier: Apache-2.0
// Answers in the form of the OpenAI API, with the details that evaluation harnesses rely on: one
// entry for each token, null for the first, the token itself always in the list of the most
// probable ones, with the same number in both, and no two ids under one text.
#include <math.h>
#include <string.h>

#include "base/json_writer.h"
#include "base/text.h"
#include "serve/service_job.h"
#include "tokenizer/unicode.h"

static const double LEAST_LOGPROB = -9999;  // JSON has no infinity

static double shown_logprob(double logprob) {
  return logprob < LEAST_LOGPROB ? LEAST_LOGPROB : logprob;
}

// The text of a token, or "token_id:N" where that is no text.
static const char *text_of(const ot_service_options *o, ot_arena *arena, int32_t token) {
  int64_t length = 0;
  const uint8_t *const bytes = ot_tokenizer_bytes(o->tokenizer, token, &length);
  const bool whole = bytes && length > 0 &&
                     ot_unicode_valid_prefix(bytes, length, NULL) == length &&
                     !memchr(bytes, 0, (size_t)length);
  return whole ? ot_arena_text(arena, (const char *)bytes, length)
               : ot_arena_format(arena, "token_id:%d", token);
}

static const char *const finish_names[] = {[OT_FINISH_LENGTH] = "length",
                                           [OT_FINISH_STOP] = "stop",
                                           [OT_FINISH_CANCELLED] = "cancelled",
                                           [OT_FINISH_NUMERIC] = "error"};

// ---- log-probabilities of completions ----

static void write_top(ot_json_writer *w, const ot_service_options *o, const ot_token_record *r) {
  if (isnan(r->logprob)) {
    ot_json_null(w, NULL);
    return;
  }
  const char *names[OT_MOST_TOP + 1];
  int count = 0;
  ot_json_object(w, NULL);
  names[count] = text_of(o, w->arena, r->token);
  ot_json_real(w, names[count++], shown_logprob(r->logprob));
  for (int i = 0; i < r->num_top; i++) {
    if (r->top[i].id == r->token) continue;
    const char *name = text_of(o, w->arena, r->top[i].id);
    for (int k = 0; k < count; k++) {
      if (!ot_text_equal(name, names[k])) continue;
      name = ot_arena_format(w->arena, "token_id:%d", r->top[i].id);
    }
    names[count++] = name;
    ot_json_real(w, name, shown_logprob(r->top[i].value));
  }
  ot_json_end(w);
}

static void write_logprobs(ot_json_writer *w, const ot_service_options *o, const ot_choice *c,
                           int64_t first) {
  ot_json_object(w, "logprobs");
  ot_json_array(w, "tokens");
  for (int64_t i = first; i < c->num_records; i++) {
    ot_json_text(w, NULL, text_of(o, w->arena, c->records[i].token));
  }
  ot_json_end(w);
  ot_json_array(w, "token_logprobs");
  for (int64_t i = first; i < c->num_records; i++) {
    ot_json_real(w, NULL, shown_logprob(c->records[i].logprob));
  }
  ot_json_end(w);
  ot_json_array(w, "top_logprobs");
  for (int64_t i = first; i < c->num_records; i++) write_top(w, o, &c->records[i]);
  ot_json_end(w);
  ot_json_array(w, "text_offset");
  for (int64_t i = first; i < c->num_records; i++) {
    ot_json_integer(w, NULL, c->records[i].text_offset);
  }
  ot_json_end(w);
  ot_json_end(w);
}

// ---- log-probabilities of chats ----

static void write_chat_token(ot_json_writer *w, const ot_service_options *o, int32_t token,
                             double logprob) {
  int64_t length = 0;
  const uint8_t *const bytes = ot_tokenizer_bytes(o->tokenizer, token, &length);
  ot_json_text(w, "token", text_of(o, w->arena, token));
  ot_json_real(w, "logprob", shown_logprob(logprob));
  ot_json_array(w, "bytes");
  for (int64_t i = 0; i < length; i++) ot_json_integer(w, NULL, bytes[i]);
  ot_json_end(w);
}

static void write_chat_logprobs(ot_json_writer *w, const ot_service_options *o, const ot_choice *c,
                                int64_t first) {
  ot_json_object(w, "logprobs");
  ot_json_array(w, "content");
  for (int64_t i = first; i < c->num_records; i++) {
    const ot_token_record *const r = &c->records[i];
    ot_json_object(w, NULL);
    write_chat_token(w, o, r->token, r->logprob);
    ot_json_array(w, "top_logprobs");
    for (int k = 0; k < r->num_top; k++) {
      ot_json_object(w, NULL);
      write_chat_token(w, o, r->top[k].id, r->top[k].value);
      ot_json_end(w);
    }
    ot_json_end(w);
    ot_json_end(w);
  }
  ot_json_end(w);
  ot_json_end(w);
}

// ---- whole answers ----

static ot_json_writer begin(const ot_job *job, const ot_service_options *o, ot_arena *arena,
                            const char *object) {
  ot_json_writer w = ot_json_begin(arena, 0);
  ot_json_object(&w, NULL);
  ot_json_text(
      &w, "id",
      ot_arena_format(arena, "%s-%lld", job->chat ? "chatcmpl" : "cmpl", (long long)job->id));
  ot_json_text(&w, "object", object);
  ot_json_integer(&w, "created", (int64_t)job->created_s);
  ot_json_text(&w, "model", o->model);
  return w;
}

static void write_usage(ot_json_writer *w, const ot_job *job) {
  int64_t prompt = 0, made = 0;
  for (int i = 0; i < job->request.num_prompts; i++) prompt += job->prompts[i].count;
  for (int i = 0; i < job->num_choices; i++) made += job->choices[i].num_tokens;
  ot_json_object(w, "usage");
  ot_json_integer(w, "prompt_tokens", prompt);
  ot_json_integer(w, "completion_tokens", made);
  ot_json_integer(w, "total_tokens", prompt + made);
  ot_json_end(w);
}

static void write_choice(ot_json_writer *w, const ot_service_options *o, const ot_choice *c) {
  const ot_job *const job = c->job;
  const char *const text = (const char *)c->text.text.data;
  const int64_t length = c->text.text.length;
  ot_json_object(w, NULL);
  ot_json_integer(w, "index", c - job->choices);
  if (job->chat) {
    ot_json_object(w, "message");
    ot_json_text(w, "role", "assistant");
    ot_json_text_bytes(w, "content", text ? text : "", length);
    ot_json_end(w);
  } else {
    ot_buffer whole = {0};
    if (ot_buffer_append(&whole, c->echo.data, c->echo.length) == OT_OK &&
        ot_buffer_append(&whole, text, length) == OT_OK) {
      ot_json_text_bytes(w, "text", whole.data ? (const char *)whole.data : "", whole.length);
    }
    ot_buffer_release(&whole);
  }
  if (job->request.logprobs < 0) {
    ot_json_null(w, "logprobs");
  } else if (job->chat) {
    write_chat_logprobs(w, o, c, 0);
  } else {
    write_logprobs(w, o, c, 0);
  }
  ot_json_text(w, "finish_reason", finish_names[c->finish]);
  ot_json_end(w);
}

const char *ot_answer_whole(const ot_job *job, const ot_service_options *options) {
  ot_job *const own = (ot_job *)job;
  ot_json_writer w =
      begin(job, options, &own->arena, job->chat ? "chat.completion" : "text_completion");
  ot_json_array(&w, "choices");
  for (int i = 0; i < job->num_choices; i++) write_choice(&w, options, &job->choices[i]);
  ot_json_end(&w);
  write_usage(&w, job);
  ot_json_end(&w);
  return w.text;
}

// ---- events of a stream ----

static void write_delta(ot_json_writer *w, ot_choice *c, bool first) {
  const char *const text = (const char *)c->text.text.data + c->shown;
  const int64_t length = c->text.passed - c->shown;
  if (c->job->chat) {
    ot_json_object(w, "delta");
    if (first) ot_json_text(w, "role", "assistant");
    ot_json_text_bytes(w, "content", length > 0 ? text : "", length);
    ot_json_end(w);
    return;
  }
  ot_buffer whole = {0};
  if (first) (void)ot_buffer_append(&whole, c->echo.data, c->echo.length);
  if (length > 0) (void)ot_buffer_append(&whole, text, length);
  ot_json_text_bytes(w, "text", whole.data ? (const char *)whole.data : "", whole.length);
  ot_buffer_release(&whole);
}

const char *ot_answer_event(ot_choice *choice, const ot_service_options *options, ot_arena *arena) {
  ot_choice *const c = choice;
  const ot_job *const job = c->job;
  const bool first = !c->begun, text = c->text.passed > c->shown;
  const bool records = c->num_records > c->records_shown;
  if (!text && !records && !c->ended && (!first || c->echo.length == 0)) return NULL;
  ot_json_writer w =
      begin(job, options, arena, job->chat ? "chat.completion.chunk" : "text_completion");
  ot_json_array(&w, "choices");
  ot_json_object(&w, NULL);
  ot_json_integer(&w, "index", c - job->choices);
  write_delta(&w, c, first);
  if (!records || job->request.logprobs < 0) {
    ot_json_null(&w, "logprobs");
  } else if (job->chat) {
    write_chat_logprobs(&w, options, c, c->records_shown);
  } else {
    write_logprobs(&w, options, c, c->records_shown);
  }
  if (c->ended) {
    ot_json_text(&w, "finish_reason", finish_names[c->finish]);
  } else {
    ot_json_null(&w, "finish_reason");
  }
  ot_json_end(&w);
  ot_json_end(&w);
  ot_json_end(&w);
  c->begun = true;
  c->shown = c->text.passed;
  c->records_shown = c->num_records;
  return w.text;
}

const char *ot_answer_usage(const ot_job *job, const ot_service_options *options, ot_arena *arena) {
  ot_json_writer w =
      begin(job, options, arena, job->chat ? "chat.completion.chunk" : "text_completion");
  ot_json_array(&w, "choices");
  ot_json_end(&w);
  write_usage(&w, job);
  ot_json_end(&w);
  return w.text;
}

const char *ot_answer_error(ot_arena *arena, int code, const char *message) {
  ot_json_writer w = ot_json_begin(arena, 0);
  ot_json_object(&w, NULL);
  ot_json_object(&w, "error");
  ot_json_text(&w, "message", message);
  ot_json_text(&w, "type", code >= 500 ? "server_error" : "invalid_request_error");
  ot_json_integer(&w, "code", code);
  ot_json_end(&w);
  ot_json_end(&w);
  return w.text;
}
