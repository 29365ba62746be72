// SPDX-License-Identifier: Apache-2.0
// Reading of answers. The reader's thread writes an answer as it is passed on, in pieces, so what
// an answer takes of memory does not depend on its length. Each generated token is an event of its
// own in a stream, however late it is read.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "host/clock.h"
#include "serve/service_job.h"

bool ot_job_streams(const ot_job *job) { return job->request.stream; }

static void begin_piece(ot_job *job) {
  ot_answer_reader *const r = &job->reader;
  ot_heap_release(&r->heap);
  r->arena = ot_heap_arena_create(&r->heap);
  r->piece = "";
  r->length = r->sent = 0;
}

static void set_piece(ot_answer_reader *r, const char *text) {
  r->piece = text;
  r->length = ot_text_length(text);
}

// Under the lock; until there is more, or the job is done.
static void wait_for_news(ot_job *job) {
  job->waits = true;
  pthread_cond_wait(&job->news, &job->service->lock);
  job->waits = false;
}

// ---- whole answers ----

int ot_job_await(ot_job *job, const char **body, int64_t *length) {
  ot_answer_reader *const r = &job->reader;
  pthread_mutex_lock(&job->service->lock);
  while (!job->done) wait_for_news(job);
  pthread_mutex_unlock(&job->service->lock);
  begin_piece(job);
  if (job->error || job->taught) {
    set_piece(r, job->error ? ot_answer_error(&r->arena, job->code, job->error) : job->taught);
    r->ends = true;
  } else {
    ot_answer_write_piece(job);
  }
  *body = r->ends ? r->piece : NULL;
  *length = r->length;
  return job->code;
}

static void write_next_piece(ot_job *job) {
  begin_piece(job);
  pthread_mutex_lock(&job->service->writing);
  ot_answer_write_piece(job);
  pthread_mutex_unlock(&job->service->writing);
}

// ---- streams ----

// The next part of `c` for an event, under the lock; false: none yet.
static bool find_news_of(ot_choice *c, ot_choice_news *news) {
  const ot_job *const job = c->job;
  const ot_job_prompt *const prompt = &job->prompts[c->prompt];
  const bool more = c->events_read < c->num_events;
  if (!more && (!c->ended || c->closed)) return false;
  *news = (ot_choice_news){.choice = c, .first = !c->begun, .last = !more};
  const int64_t end = more ? c->events[c->events_read++] : c->text.text.length;
  c->closed = !more;
  news->scores = prompt->scores;
  news->first_score = news->first ? 0 : prompt->scores.count;
  news->made = c->made;
  news->first_made = c->made_read;
  if (more && c->made.count > c->events_read) news->made.count = c->events_read;
  news->text = (const char *)c->text.text.data + c->text_read;
  news->length = end > c->text_read ? end - c->text_read : 0;
  return true;
}

static bool shows_something(const ot_choice_news *n) {
  return n->length > 0 || n->last || n->scores.count > n->first_score ||
         n->made.count > n->first_made ||
         (n->first && n->choice->job->prompts[n->choice->prompt].echo.length > 0);
}

// The same of any choice, each in turn. The text is copied, since that of the choice may move.
static bool find_news(ot_job *job, ot_choice_news *news) {
  ot_answer_reader *const r = &job->reader;
  for (int i = 0; !job->error && i < job->num_choices; i++) {
    ot_choice *const c = &job->choices[(r->next + i) % job->num_choices];
    while (find_news_of(c, news)) {
      if (!shows_something(news)) continue;
      news->text = ot_arena_text(&r->arena, news->length > 0 ? news->text : "", news->length);
      c->text_read += news->length;
      c->made_read = news->made.count;
      c->begun = true;
      r->next = (int)(c - job->choices) + 1;
      return true;
    }
  }
  return false;
}

static const char *event_of(ot_arena *arena, const char *before, const char *text) {
  const int64_t head = ot_text_length(before), length = ot_text_length(text);
  char *const event = ot_arena_array(arena, head + length + 9, 1);
  memcpy(event, before, (size_t)head);
  memcpy(event + head, "data: ", 6);
  memcpy(event + head + 6, text, (size_t)length);
  memcpy(event + head + 6 + length, "\n\n", 3);
  return event;
}

// The end of a stream, in one piece.
static void write_last_events(ot_job *job) {
  ot_answer_reader *const r = &job->reader;
  const char *events = "";
  if (job->error) {
    events = event_of(&r->arena, events, ot_answer_error(&r->arena, job->code, job->error));
  } else if (job->request.include_usage) {
    events = event_of(&r->arena, events, ot_answer_usage(job, &r->arena));
  }
  set_piece(r, event_of(&r->arena, events, "[DONE]"));
  r->ends = true;
}

// wait_for_news for at most `seconds`; returns whether they have passed.
static bool wait_at_most(ot_job *job, double seconds) {
  const struct timespec end = ot_clock_timespec(ot_clock_unix_s() + seconds);
  job->waits = true;
  const int code = pthread_cond_timedwait(&job->news, &job->service->lock, &end);
  job->waits = false;
  return code == ETIMEDOUT;
}

// Without an event for some time, the piece is a comment of the event stream: connections without a
// byte are closed, by this server or by what is between it and the client.
static void write_next_event(ot_job *job) {
  ot_answer_reader *const r = &job->reader;
  ot_choice_news news;
  bool late = false;
  begin_piece(job);
  pthread_mutex_lock(&job->service->lock);
  bool found = find_news(job, &news);
  while (!found && !job->done && !late) {
    late = wait_at_most(job, job->service->options.comment_s);
    found = find_news(job, &news);
  }
  const bool done = job->done;
  pthread_mutex_unlock(&job->service->lock);
  if (found) {
    set_piece(r, event_of(&r->arena, "", ot_answer_event(&news, &r->arena)));
  } else if (done) {
    write_last_events(job);
  } else {
    set_piece(r, ": waiting\n\n");
  }
}

int64_t ot_job_read(ot_job *job, char *to, int64_t most) {
  ot_answer_reader *const r = &job->reader;
  while (r->sent == r->length) {
    if (r->ends) return 0;
    if (job->request.stream) {
      write_next_event(job);
    } else {
      write_next_piece(job);
    }
  }
  const int64_t left = r->length - r->sent, n = left < most ? left : most;
  memcpy(to, r->piece + r->sent, (size_t)n);
  r->sent += n;
  return n;
}

// ---- the end ----

void ot_job_free(ot_job *job) {
  ot_service *const service = job->service;
  for (int i = 0; i < job->num_choices; i++) ot_text_stream_release(&job->choices[i].text);
  for (int i = 0; job->prompts && i < job->request.num_prompts; i++) {
    ot_token_list_release(&job->prompts[i].ids);
    ot_buffer_release(&job->prompts[i].echo);
  }
  ot_heap_release(&job->reader.heap);
  ot_heap_release(&job->heap);
  pthread_cond_destroy(&job->news);
  const int64_t bytes = job->bytes;
  free(job);
  pthread_mutex_lock(&service->lock);
  service->reserved -= bytes;
  service->held--;
  pthread_cond_signal(&service->work);
  pthread_mutex_unlock(&service->lock);
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
  if (done) ot_job_free(j);
  *job = NULL;
}
