// SPDX-License-Identifier: Apache-2.0
// Threads without a queue: each reads the next block under one lock and waits for its turn to
// commit under another, so at most one block per thread is in memory.
#include <pthread.h>
#include <stdlib.h>

#include "base/text.h"
#include "data/corpus.h"

enum { TEXT_BYTES = 2048 };

typedef struct run {
  ot_corpus *corpus;
  const ot_corpus_job *job;
  pthread_mutex_t reading;  // guards corpus, next_turn, at_end
  pthread_mutex_t turning;  // guards the rest
  pthread_cond_t turned;
  int64_t next_turn;
  bool at_end;
  int64_t turn;  // block to commit next
  ot_status status;
  char message[TEXT_BYTES];  // of the failure, from the failing thread
  char hint[TEXT_BYTES];
} run;

typedef struct thread_start {
  run *run;
  void *worker;
  pthread_t thread;
} thread_start;

// Reads the next block and its turn; false at the end. A failed read has a turn, too.
static bool claim_block(run *r, ot_corpus_block *block, int64_t *turn, ot_status *status) {
  pthread_mutex_lock(&r->reading);
  bool more = !r->at_end;
  if (more) *status = ot_corpus_next(r->corpus, block, &more);
  if (*status != OT_OK) more = true;
  r->at_end = r->at_end || !more || *status != OT_OK;
  *turn = r->next_turn;
  r->next_turn += more;
  pthread_mutex_unlock(&r->reading);
  return more;
}

static void record_failure(run *r, ot_status status) {
  r->status = status;
  ot_text_format(r->message, TEXT_BYTES, "%s", ot_fail_message());
  ot_text_format(r->hint, TEXT_BYTES, "%s", ot_fail_hint_text());
}

// Waits for the turn and commits; false if the run has ended.
static bool process_turn(run *r, int64_t turn, void *worker, const ot_corpus_block *block,
                         ot_status status) {
  const ot_corpus_job *const job = r->job;
  pthread_mutex_lock(&r->turning);
  while (r->turn != turn && r->status == OT_OK) pthread_cond_wait(&r->turned, &r->turning);
  if (r->status == OT_OK) {
    if (status == OT_OK && job->commit) status = job->commit(job->context, worker, block);
    if (status != OT_OK) record_failure(r, status);
    r->turn++;
  }
  const bool go_on = r->status == OT_OK;
  pthread_cond_broadcast(&r->turned);
  pthread_mutex_unlock(&r->turning);
  return go_on;
}

static void *work(void *argument) {
  const thread_start *const start = argument;
  run *const r = start->run;
  ot_corpus_block block = {0};
  for (bool go_on = true; go_on;) {
    int64_t turn;
    ot_status status = OT_OK;
    if (!claim_block(r, &block, &turn, &status)) break;
    if (status == OT_OK) status = r->job->process(start->worker, &block);
    go_on = process_turn(r, turn, start->worker, &block, status);
  }
  ot_corpus_block_release(&block);
  return NULL;
}

static ot_status run_threads(run *r, thread_start *starts) {
  const int n = r->job->num_threads;
  int started = 1;
  for (int i = 0; i < n; i++) starts[i] = (thread_start){.run = r, .worker = r->job->workers[i]};
  // With fewer threads than requested the run is only slower.
  while (started < n &&
         pthread_create(&starts[started].thread, NULL, work, &starts[started]) == 0) {
    started++;
  }
  work(&starts[0]);
  for (int i = 1; i < started; i++) pthread_join(starts[i].thread, NULL);
  if (r->status == OT_OK) return OT_OK;
  ot_fail(r->status, "%s", r->message);
  return r->hint[0] ? ot_fail_hint(r->status, "%s", r->hint) : r->status;
}

ot_status ot_corpus_run(ot_corpus *corpus, const ot_corpus_job *job) {
  thread_start *const starts = calloc((size_t)job->num_threads, sizeof *starts);
  OT_CHECK(starts, OT_ENVIRONMENT, "out of memory (%d threads)", job->num_threads);
  run r = {.corpus = corpus, .job = job};
  pthread_mutex_init(&r.reading, NULL);
  pthread_mutex_init(&r.turning, NULL);
  pthread_cond_init(&r.turned, NULL);
  const ot_status status = run_threads(&r, starts);
  pthread_cond_destroy(&r.turned);
  pthread_mutex_destroy(&r.turning);
  pthread_mutex_destroy(&r.reading);
  free(starts);
  return status;
}
