// SPDX-License-Identifier: Apache-2.0
// Answers in the form of the OpenAI API, with the details that evaluation harnesses rely on: one
// entry for each token, null for the first, the token itself always in the list of the most
// probable ones, with the same number in both, and no two ids under one text.
#include <math.h>
#include <string.h>

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

// ---- log-probabilities: lists with an entry for each token ----

typedef struct section {
  const char *name;
  void (*write)(ot_json_writer *w, const ot_service_options *o, const ot_token_record *r);
} section;

static void write_token(ot_json_writer *w, const ot_service_options *o, const ot_token_record *r) {
  ot_json_text(w, NULL, text_of(o, w->arena, r->token));
}

static void write_logprob(ot_json_writer *w, const ot_service_options *o,
                          const ot_token_record *r) {
  (void)o;
  ot_json_real(w, NULL, shown_logprob(r->logprob));
}

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

static void write_offset(ot_json_writer *w, const ot_service_options *o, const ot_token_record *r) {
  (void)o;
  ot_json_integer(w, NULL, r->text_offset);
}

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

static void write_chat_record(ot_json_writer *w, const ot_service_options *o,
                              const ot_token_record *r) {
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

static const section of_completions[] = {{"tokens", write_token},
                                         {"token_logprobs", write_logprob},
                                         {"top_logprobs", write_top},
                                         {"text_offset", write_offset}};
static const section of_chats[] = {{"content", write_chat_record}};

static const section *sections_of(const ot_job *job, int *count) {
  *count = job->chat ? OT_COUNT(of_chats) : OT_COUNT(of_completions);
  return job->chat ? of_chats : of_completions;
}

// ---- parts of all answers ----

static ot_json_writer begin(const ot_job *job, ot_arena *arena, const char *object) {
  ot_json_writer w = ot_json_begin(arena, 0);
  ot_json_object(&w, NULL);
  ot_json_text(
      &w, "id",
      ot_arena_format(arena, "%s-%lld", job->chat ? "chatcmpl" : "cmpl", (long long)job->id));
  ot_json_text(&w, "object", object);
  ot_json_integer(&w, "created", (int64_t)job->created_s);
  ot_json_text(&w, "model", job->service->options.model);
  return w;
}

static void write_usage(ot_json_writer *w, const ot_job *job) {
  int64_t prompt = 0, made = 0;
  for (int i = 0; i < job->request.num_prompts; i++) prompt += job->prompts[i].ids.count;
  for (int i = 0; i < job->num_choices; i++) made += job->choices[i].num_tokens;
  ot_json_object(w, "usage");
  ot_json_integer(w, "prompt_tokens", prompt);
  ot_json_integer(w, "completion_tokens", made);
  ot_json_integer(w, "total_tokens", prompt + made);
  ot_json_end(w);
}

// The text of the prompt, if it is wanted, and `text` [length].
static void write_text(ot_json_writer *w, const ot_buffer *echo, const char *text, int64_t length) {
  char *const whole = ot_arena_array(w->arena, echo->length + length + 1, 1);
  if (echo->length > 0) memcpy(whole, echo->data, (size_t)echo->length);
  if (length > 0) memcpy(whole + echo->length, text, (size_t)length);
  ot_json_text_bytes(w, "text", whole, echo->length + length);
}

// ---- whole answers ----

enum { PIECE_BYTES = 1 << 16 };

static void write_head(ot_json_writer *w, const ot_choice *c) {
  const char *const text = c->text.text.data ? (const char *)c->text.text.data : "";
  ot_json_object(w, NULL);
  ot_json_integer(w, "index", c - c->job->choices);
  if (c->job->chat) {
    ot_json_object(w, "message");
    ot_json_text(w, "role", "assistant");
    ot_json_text_bytes(w, "content", text, c->text.text.length);
    ot_json_end(w);
  } else {
    write_text(w, &c->job->prompts[c->prompt].echo, text, c->text.text.length);
  }
}

// One entry, and what comes before the first and after the last of a list.
static void write_entry(ot_answer_reader *r, const ot_choice *c) {
  ot_json_writer *const w = &r->writer;
  const ot_record_list *const scores = &c->job->prompts[c->prompt].scores;
  const int64_t records = scores->count + c->made.count;
  int count = 0;
  const section *const s = &sections_of(c->job, &count)[r->section - 1];
  if (r->record == 0 && r->section == 1) ot_json_object(w, "logprobs");
  if (r->record == 0) ot_json_array(w, s->name);
  if (r->record < records) {
    const int64_t i = r->record++;
    s->write(w, &c->job->service->options,
             i < scores->count ? &scores->of[i] : &c->made.of[i - scores->count]);
    return;
  }
  ot_json_end(w);
  r->record = 0;
  if (r->section++ == count) ot_json_end(w);
}

static void write_more(ot_job *job) {
  ot_answer_reader *const r = &job->reader;
  ot_json_writer *const w = &r->writer;
  int count = 0;
  (void)sections_of(job, &count);
  if (r->choice == job->num_choices) {
    ot_json_end(w);
    write_usage(w, job);
    ot_json_end(w);
    r->ends = true;
  } else if (r->section == 0) {
    write_head(w, &job->choices[r->choice]);
    r->section = job->request.logprobs >= 0 ? 1 : count + 1;
    if (job->request.logprobs < 0) ot_json_null(w, "logprobs");
  } else if (r->section <= count) {
    write_entry(r, &job->choices[r->choice]);
  } else {
    ot_json_text(w, "finish_reason", finish_names[job->choices[r->choice].finish]);
    ot_json_end(w);
    r->choice++;
    r->section = 0;
  }
}

void ot_answer_write_piece(ot_job *job) {
  ot_answer_reader *const r = &job->reader;
  ot_json_writer *const w = &r->writer;
  if (w->depth == 0) {
    *w = begin(job, &r->arena, job->chat ? "chat.completion" : "text_completion");
    ot_json_array(w, "choices");
  } else {
    w->arena = &r->arena;
    w->text = NULL;
    w->length = w->capacity = 0;
  }
  while (!r->ends && w->length < PIECE_BYTES) write_more(job);
  r->piece = w->text;
  r->length = w->length;
}

// ---- events of a stream ----

static ot_json_writer begin_event(const ot_job *job, ot_arena *arena) {
  ot_json_writer w = begin(job, arena, job->chat ? "chat.completion.chunk" : "text_completion");
  ot_json_array(&w, "choices");
  return w;
}

static void write_delta(ot_json_writer *w, const ot_choice_news *news) {
  const ot_job *const job = news->choice->job;
  static const ot_buffer none = {0};
  if (!job->chat) {
    write_text(w, news->first ? &job->prompts[news->choice->prompt].echo : &none, news->text,
               news->length);
    return;
  }
  ot_json_object(w, "delta");
  if (news->first) ot_json_text(w, "role", "assistant");
  ot_json_text_bytes(w, "content", news->text, news->length);
  ot_json_end(w);
}

static void write_new_logprobs(ot_json_writer *w, const ot_choice_news *news) {
  const ot_job *const job = news->choice->job;
  const ot_service_options *const o = &job->service->options;
  int count = 0;
  const section *const sections = sections_of(job, &count);
  ot_json_object(w, "logprobs");
  for (int k = 0; k < count; k++) {
    ot_json_array(w, sections[k].name);
    for (int64_t i = news->first_score; i < news->scores.count; i++) {
      sections[k].write(w, o, &news->scores.of[i]);
    }
    for (int64_t i = news->first_made; i < news->made.count; i++) {
      sections[k].write(w, o, &news->made.of[i]);
    }
    ot_json_end(w);
  }
  ot_json_end(w);
}

const char *ot_answer_event(const ot_choice_news *news, ot_arena *arena) {
  const ot_job *const job = news->choice->job;
  const bool records =
      news->scores.count > news->first_score || news->made.count > news->first_made;
  ot_json_writer w = begin_event(job, arena);
  ot_json_object(&w, NULL);
  ot_json_integer(&w, "index", news->choice - job->choices);
  write_delta(&w, news);
  if (records) {
    write_new_logprobs(&w, news);
  } else {
    ot_json_null(&w, "logprobs");
  }
  if (news->last) {
    ot_json_text(&w, "finish_reason", finish_names[news->choice->finish]);
  } else {
    ot_json_null(&w, "finish_reason");
  }
  ot_json_end(&w);
  ot_json_end(&w);
  ot_json_end(&w);
  return w.text;
}

const char *ot_answer_usage(const ot_job *job, ot_arena *arena) {
  ot_json_writer w = begin_event(job, arena);
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
