// SPDX-License-Identifier: Apache-2.0
// The path of a request from start to done, common to all back ends. A waiting thread does the work
// of its call, else it rests as its back end defines; work that no thread waits for is done by the
// progress thread, one per rank, which sleeps when idle.
#include <errno.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "base/text.h"
#include "comm/comm.h"
#include "comm/comm_nccl.h"
#include "comm/comm_parts.h"
#include "host/clock.h"

static const double look_s = 0.1;  // between checks of the time while a wait has a timeout

void ot_comm_append(ot_comm_request **list, ot_comm_request *request) {
  while (*list) list = &(*list)->next;
  *list = request;
  request->next = NULL;
}

// ---- sleeping ----

void ot_comm_wake(ot_comm *comm) {
  if (comm->sleepers > 0) pthread_cond_broadcast(&comm->woken);
}

static void wake_all(ot_comm_process *process) {
  for (ot_comm *end = process->ends; end; end = end->next) ot_comm_wake(end);
}

void ot_comm_sleep(ot_comm *comm, pthread_cond_t *condition, double until_s) {
  pthread_mutex_t *const lock = &comm->process->lock;
  const bool waits = condition == &comm->woken;
  comm->sleepers += waits;
  if (isinf(until_s)) {
    pthread_cond_wait(condition, lock);
  } else {
    const struct timespec until = ot_clock_timespec(until_s);
    pthread_cond_timedwait(condition, lock, &until);
  }
  comm->sleepers -= waits;
}

// ---- failing ----

void ot_comm_fail_process(ot_comm_process *process, const char *why) {
  if (process->failed) return;
  ot_text_format(process->why, sizeof process->why, "%s", why);
  process->failed = true;
  process->ready = 0;
  for (ot_comm *end = process->ends; end; end = end->next) end->ready = NULL;
  wake_all(process);
}

void ot_comm_fail_rank(ot_comm *comm, ot_status status) {
  ot_comm_process *const process = comm->process;
  if (process->failed_rank >= 0) return;
  process->failed_rank = comm->rank;
  ot_failure_take(&process->failure, status);
  ot_comm_text why = {.length = 0};
  ot_comm_say(&why, "rank %d has failed: %s", comm->rank, ot_fail_message());
  ot_comm_fail_process(process, why.text);
}

void ot_comm_settle(ot_comm *comm) {
  ot_comm_process *const process = comm->process;
  while (process->running > 0) ot_comm_sleep(comm, &comm->woken, ot_clock_s() + 0.01);
  if (comm->backend->settle) comm->backend->settle(comm);
}

void ot_comm_fail(ot_comm *comm, ot_status status) {
  pthread_mutex_lock(&comm->process->lock);
  ot_comm_fail_rank(comm, status);
  ot_comm_settle(comm);
  pthread_mutex_unlock(&comm->process->lock);
}

bool ot_comm_is_failure(ot_status status) {
  return status != OT_OK && status != OT_FINDINGS && status != OT_STOPPED;
}

ot_status ot_comm_check_left(const ot_comm *comm, ot_status status) {
  if (ot_comm_is_failure(status) || comm->open == 0) return status;
  return ot_fail(OT_BUG, "comm: main returned with %d calls in flight", comm->open);
}

// ---- waiting ranks ----

static void recount(ot_comm *comm) {
  if (comm->backend->recount) comm->backend->recount(comm);
}

static void remember_waited(ot_comm_request *request) {
  ot_comm *const end = request->end;
  request->waited = true;
  request->waiting = end->waited;
  end->waited = request;
  end->waiting++;
  recount(end);
}

static void forget_waited(ot_comm_request *request) {
  ot_comm *const end = request->end;
  ot_comm_request **link = &end->waited;
  while (*link != request) link = &(*link)->waiting;
  *link = request->waiting;
  request->waited = false;
  end->waiting--;
  recount(end);
}

void ot_comm_set_waiting(ot_comm *comm, bool waits) {
  pthread_mutex_lock(&comm->process->lock);
  comm->declared += waits ? 1 : -1;
  recount(comm);
  pthread_mutex_unlock(&comm->process->lock);
}

void ot_comm_add_thread(ot_comm *comm, bool more) {
  pthread_mutex_lock(&comm->process->lock);
  comm->threads += more ? 1 : -1;
  recount(comm);
  pthread_mutex_unlock(&comm->process->lock);
}

// ---- work ----

void ot_comm_offer(ot_comm_request *request) {
  ot_comm *const end = request->end;
  if (end->process->failed) return;
  ot_comm_set_phase(request, OT_COMM_READY);
  ot_comm_append(&end->ready, request);
  end->process->ready++;
  if (request->waited) {
    ot_comm_wake(end);
  } else if (!request->awaited) {
    pthread_cond_signal(&end->work);
  }
}

void ot_comm_run_work(ot_comm_request *request) {
  const ot_comm_backend *const backend = request->end->backend;
  ot_comm_process *const process = request->end->process;
  process->running++;
  ot_comm_set_phase(request, OT_COMM_RUNNING);
  pthread_mutex_unlock(&process->lock);
  const ot_status status = backend->work(request);
  pthread_mutex_lock(&process->lock);
  process->running--;
  if (status == OT_OK) {
    backend->worked(request);
  } else {
    ot_comm_fail_process(process, ot_fail_message());
  }
  if (process->failed && process->running == 0) wake_all(process);
}

static void run_next(ot_comm_request *request) {
  ot_comm_request **link = &request->end->ready;
  while (*link != request) link = &(*link)->next;
  *link = request->next;
  request->end->process->ready--;
  ot_comm_run_work(request);
}

// A ready request of the same call, preferring the own one; or null.
static ot_comm_request *find_ready(ot_comm_request *request) {
  ot_comm_request *member = request;
  do {
    if (member->phase == OT_COMM_READY) return member;
    member = member->peer;
  } while (member && member != request);
  return NULL;
}

void ot_comm_complete(ot_comm_request *request) {
  ot_comm *const end = request->end;
  const bool waited = request->waited;
  end->open--;
  if (waited) forget_waited(request);
  ot_comm_set_phase(request, OT_COMM_DONE);
  if (waited) ot_comm_wake(end);
}

// ---- starting ----

static void count_bytes(const ot_comm_member_call *x, _Atomic double *sum) {
  const double bytes = ot_comm_wire_bytes(x);
  double before = atomic_load_explicit(sum, memory_order_relaxed);
  while (!atomic_compare_exchange_weak(sum, &before, before + bytes)) continue;
}

static int64_t next_sequence(ot_comm_group *group, const ot_comm_call *call) {
  return call->kind == OT_COMM_SEND      ? ++group->sent[call->peer]
         : call->kind == OT_COMM_RECEIVE ? ++group->received[call->peer]
                                         : ++group->started;
}

// Under the lock, released meanwhile. Then the request is done: the stream keeps its order.
static void queue_by_nccl(ot_comm_request *request) {
  ot_comm *const comm = request->end;
  pthread_mutex_unlock(&comm->process->lock);
  const ot_status status = ot_comm_nccl_queue(request);
  pthread_mutex_lock(&comm->process->lock);
  if (status != OT_OK) ot_comm_fail_rank(comm, status);
  ot_comm_complete(request);
}

static void start(ot_comm *comm, const ot_comm_call *call, ot_comm_request *request, bool awaited) {
  ot_comm_check_call(comm, call);
  memset(request, 0, sizeof *request);
  request->call = *call;
  if (call->kind == OT_COMM_BARRIER) request->call.count = 0;
  request->end = comm;
  request->awaited = awaited;
  const ot_comm_member_call x = ot_comm_member_call_of(request);
  request->bytes = ot_comm_received_bytes(&x);
  count_bytes(&x, &comm->sent_bytes[call->group][call->kind]);
  const bool shared = call->stream && !comm->nccl;
  const ot_status queued = shared ? ot_event_record(call->event, call->stream) : OT_OK;
  pthread_mutex_lock(&comm->process->lock);
  if (queued != OT_OK) ot_comm_fail_rank(comm, queued);
  request->sequence = next_sequence(ot_comm_group_of(request), call);
  if (!comm->process->failed) {
    comm->open++;
    if (call->stream && comm->nccl) {
      queue_by_nccl(request);
    } else {
      comm->backend->post(request);
    }
  }
  pthread_mutex_unlock(&comm->process->lock);
}

void ot_comm_start(ot_comm *comm, const ot_comm_call *call, ot_comm_request *request) {
  start(comm, call, request, false);
}

bool ot_comm_done(ot_comm *comm, ot_comm_request *request) {
  if (ot_comm_phase(request) == OT_COMM_DONE || !comm->backend->poll) {
    return ot_comm_phase(request) == OT_COMM_DONE;
  }
  pthread_mutex_lock(&comm->process->lock);
  if (!comm->process->failed) comm->backend->poll(comm);
  pthread_mutex_unlock(&comm->process->lock);
  return ot_comm_phase(request) == OT_COMM_DONE;
}

// ---- waits ----

double ot_comm_next_look(const ot_comm_pace *pace) {
  return isinf(pace->deadline_s) ? INFINITY : fmin(pace->deadline_s, pace->seen_s + look_s);
}

bool ot_comm_is_timed_out(ot_comm_pace *pace) {
  const double now = ot_clock_s();
  if (ot_clock_was_stopped(now - pace->seen_s)) pace->deadline_s += now - pace->seen_s;
  pace->seen_s = now;
  return now >= pace->deadline_s;
}

// Fails the process if ranks are missing from a call at its timeout.
static void abandon(ot_comm_request *request) {
  const ot_comm_backend *const backend = request->end->backend;
  ot_comm_text why = {.length = 0};
  const int absent = ot_comm_say_wait(&why, request, backend->is_absent, request);
  if (absent == 0) return;
  ot_comm_say_timeout(&why, request->end, absent);
  request->end->process->overdue = request;
  ot_comm_fail_process(request->end->process, why.text);
}

static void wait_under_lock(ot_comm *comm, ot_comm_request *request) {
  const double now = ot_clock_s(), timeout_s = request->call.patient ? 0.0 : comm->timeout_s;
  ot_comm_pace pace = {.deadline_s = timeout_s > 0.0 ? now + timeout_s : INFINITY, .seen_s = now};
  remember_waited(request);
  while (request->phase != OT_COMM_DONE && !comm->process->failed) {
    ot_comm_request *const ready = find_ready(request);
    if (ready) {
      run_next(ready);
      pace.spun = false;
      continue;
    }
    comm->backend->rest(comm, request, &pace);
    if (isinf(pace.deadline_s) || !ot_comm_is_timed_out(&pace)) continue;
    if (request->phase != OT_COMM_DONE && !comm->process->failed) abandon(request);
    pace.deadline_s = pace.seen_s + look_s;
  }
}

static _Thread_local double waiting_s;  // of this thread, see ot_comm_waiting_s

double ot_comm_waiting_s(void) { return waiting_s; }

ot_status ot_comm_wait(ot_comm *comm, ot_comm_request *request) {
  if (ot_comm_phase(request) == OT_COMM_DONE) return OT_OK;
  const double from_s = ot_clock_thread_s();
  pthread_mutex_lock(&comm->process->lock);
  if (request->phase != OT_COMM_DONE) wait_under_lock(comm, request);
  const bool done = request->phase == OT_COMM_DONE;
  if (!done) {
    ot_comm_settle(comm);
    // Work in flight when the process failed may have completed the request.
    if (request->waited) forget_waited(request);
  }
  pthread_mutex_unlock(&comm->process->lock);
  waiting_s += ot_clock_thread_s() - from_s;
  return done ? OT_OK : ot_fail(OT_RANKS, "%s", comm->process->why);
}

ot_status ot_comm_run(ot_comm *comm, const ot_comm_call *call) {
  ot_comm_request request;
  start(comm, call, &request, true);
  return ot_comm_wait(comm, &request);
}

// ---- the progress thread ----

static void *run_engine(void *context) {
  ot_comm *const comm = context;
  ot_comm_pace pace = {.deadline_s = INFINITY};
  pthread_mutex_lock(&comm->process->lock);
  while (!comm->process->stopping) {
    if (comm->ready) {
      run_next(comm->ready);
    } else {
      comm->backend->rest(comm, NULL, &pace);
    }
  }
  pthread_mutex_unlock(&comm->process->lock);
  return NULL;
}

bool ot_comm_start_progress(ot_comm *comm) {
  comm->has_engine = pthread_create(&comm->engine, NULL, run_engine, comm) == 0;
  return comm->has_engine;
}

void ot_comm_stop_progress(ot_comm_process *process) {
  pthread_mutex_lock(&process->lock);
  process->stopping = true;
  for (ot_comm *end = process->ends; end; end = end->next) pthread_cond_signal(&end->work);
  pthread_mutex_unlock(&process->lock);
  for (ot_comm *end = process->ends; end; end = end->next) {
    if (end->has_engine) pthread_join(end->engine, NULL);
    end->has_engine = false;
  }
}
