// SPDX-License-Identifier: Apache-2.0
// Who calls MPI and when. A thread that waits polls: without pause while there are cores for
// everyone, then giving way, then with naps that grow to 100 us; other waiting threads sleep until
// it tells them. While nobody waits, the engine looks after calls under way between naps.
#include <math.h>
#include <sched.h>
#include <time.h>

#include "base/text.h"
#include "comm/comm_mpi.h"
#include "host/clock.h"

static const double spin_s = 1e-3;   // polled without pause, where there are cores for everyone
static const double yield_s = 2e-3;  // polled giving way to other processes, after that
// A yield that takes so long met a process that computes; the next ones would, too. Ranks of ours
// that share cores are back sooner, and a nap takes longer than they do.
static const double long_yield_s = 2e-3, crowded_s = 0.2;
static const double first_nap_s = 20e-6, longest_nap_s = 100e-6;
static const double look_s = 0.1;  // between looks at the time while another thread polls

// ---- lists linked by `next` ----

static void append(ot_comm_request **list, ot_comm_request *request) {
  while (*list) list = &(*list)->next;
  *list = request;
  request->next = NULL;
}

static void remove_from(ot_comm_request **list, const ot_comm_request *request) {
  while (*list && *list != request) list = &(*list)->next;
  if (*list) *list = request->next;
}

// ---- failing ----

void ot_mpi_fail_all(ot_mpi_end *end, const char *why) {
  pthread_mutex_lock(&end->lock);
  if (!end->failed) ot_text_format(end->why, sizeof end->why, "%s", why);
  end->failed = true;
  pthread_cond_broadcast(&end->changed);
  pthread_cond_signal(&end->work);
  pthread_mutex_unlock(&end->lock);
}

// ---- the leader's work ----

// The call is done: its slot is free for another.
static void finish(ot_mpi_end *end, ot_comm_request *request) {
  ot_mpi_part *const part = ot_mpi_part_of(request);
  pthread_mutex_lock(&end->lock);
  end->under_way--;
  if (part->slot) {
    part->slot->next = part->group->unused;
    part->group->unused = part->slot;
  }
  const bool waited = part->waited;
  ot_mpi_set_phase(request, OT_MPI_DONE);
  if (waited) pthread_cond_broadcast(&end->changed);
  pthread_mutex_unlock(&end->lock);
}

// Queues the request for its next exchange.
static void enqueue(ot_mpi_end *end, ot_comm_request *request) {
  ot_mpi_set_phase(request, OT_MPI_QUEUED);
  append(&end->queue, request);
  end->queued++;
}

// Adds what came of the request, which is in phase OT_MPI_ADDS.
static void add(ot_mpi_end *end, ot_comm_request *request) {
  if (!ot_mpi_add(request)) {
    finish(end, request);
    return;
  }
  pthread_mutex_lock(&end->lock);
  enqueue(end, request);
  pthread_cond_signal(&end->work);
  pthread_mutex_unlock(&end->lock);
}

// An exchange is complete.
static void arrive(ot_mpi_end *end, ot_comm_request *request) {
  if (!ot_mpi_must_add(request)) {
    finish(end, request);
    return;
  }
  const int64_t bytes =
      ot_comm_workspace(&request->call, end->comm.groups[request->call.group].size);
  if (bytes <= OT_MPI_SMALL_SUM) {
    add(end, request);
    return;
  }
  // For the thread that waits for it, or for the engine; the leader goes on leading.
  pthread_mutex_lock(&end->lock);
  ot_mpi_set_phase(request, OT_MPI_CAME);
  append(&end->came, request);
  if (ot_mpi_part_of(request)->waited) {
    pthread_cond_broadcast(&end->changed);
  } else {
    pthread_cond_signal(&end->work);
  }
  pthread_mutex_unlock(&end->lock);
}

static ot_status post(ot_mpi_end *end, ot_comm_request *request) {
  ot_mpi_part *const part = ot_mpi_part_of(request);
  OT_TRY(ot_mpi_post(end, request));
  ot_mpi_set_phase(request, OT_MPI_EXCHANGES);
  if (part->slot) {
    part->slot->request = request;
    part->slot->next = end->active;
    end->active = part->slot;
  } else {
    append(&end->messages, request);
  }
  return OT_OK;
}

// Gives the request a slot unless it has one. False when there is none.
static bool take_slot(ot_mpi_end *end, ot_comm_request *request) {
  ot_mpi_part *const part = ot_mpi_part_of(request);
  if (part->slot || ot_comm_is_message(request->call.kind)) return true;
  pthread_mutex_lock(&end->lock);
  part->slot = part->group->unused;
  if (part->slot) part->group->unused = part->slot->next;
  pthread_mutex_unlock(&end->lock);
  return part->slot != NULL;
}

static ot_status post_queued(ot_mpi_end *end, bool *moved) {
  pthread_mutex_lock(&end->lock);
  ot_comm_request *request = end->queue;
  end->queue = NULL;
  end->queued = 0;
  *moved |= request != NULL;
  pthread_mutex_unlock(&end->lock);
  while (request) {
    ot_comm_request *const next = request->next;
    ot_mpi_group *const group = ot_mpi_part_of(request)->group;
    const bool behind =
        group->held && !ot_mpi_part_of(request)->slot && !ot_comm_is_message(request->call.kind);
    if (!behind && take_slot(end, request)) {
      OT_TRY(post(end, request));
    } else {
      append(&group->held, request);
      end->held++;
    }
    request = next;
  }
  return OT_OK;
}

static ot_status post_held(ot_mpi_end *end) {
  for (int kind = 0; kind < OT_GROUP_KINDS; kind++) {
    ot_mpi_group *const group = end->groups[kind];
    while (group && group->held && take_slot(end, group->held)) {
      ot_comm_request *const request = group->held;
      group->held = request->next;
      end->held--;
      OT_TRY(post(end, request));
    }
  }
  return OT_OK;
}

static ot_status test_calls(ot_mpi_end *end, bool *moved) {
  ot_mpi_slot **link = &end->active;
  while (*link) {
    ot_mpi_slot *const slot = *link;
    bool all = false;
    OT_TRY(ot_mpi_test(end, slot->request, &all));
    if (all) {
      *link = slot->next;
      arrive(end, slot->request);
      *moved = true;
    } else {
      link = &slot->next;
    }
  }
  return OT_OK;
}

static ot_status test_messages(ot_mpi_end *end, bool *moved) {
  ot_comm_request **link = &end->messages;
  while (*link) {
    ot_comm_request *const request = *link;
    bool all = false;
    OT_TRY(ot_mpi_test(end, request, &all));
    if (all) {
      *link = request->next;
      finish(end, request);
      *moved = true;
    } else {
      link = &request->next;
    }
  }
  return OT_OK;
}

// Another rank has failed, and tells its user.
static ot_status test_news(ot_mpi_end *end) {
  int failed = end->comm.size;
  OT_TRY(ot_mpi_hear(end, &failed));
  if (failed == end->comm.size) return OT_OK;
  end->muted = true;
  return ot_fail(OT_RANKS, "rank %d has failed", failed);
}

static ot_status progress(ot_mpi_end *end, bool *moved) {
  if (end->queued > 0) OT_TRY(post_queued(end, moved));
  if (end->held > 0) OT_TRY(post_held(end));
  OT_TRY(test_calls(end, moved));
  OT_TRY(test_messages(end, moved));
  return test_news(end);
}

typedef ot_status (*leading)(ot_mpi_end *end, bool *moved);

// Under the lock, let go meanwhile: leads for one round. True when something has moved.
static bool lead_once(ot_mpi_end *end, leading work) {
  bool moved = false;
  end->led = true;
  pthread_mutex_unlock(&end->lock);
  const ot_status status = work(end, &moved);
  if (status != OT_OK) {
    end->broken = status == OT_ENVIRONMENT;
    ot_mpi_fail_all(end, ot_fail_message());
  }
  pthread_mutex_lock(&end->lock);
  end->led = false;
  return moved;
}

void ot_mpi_lead(ot_mpi_end *end) {
  pthread_mutex_lock(&end->lock);
  while (end->led) {
    pthread_mutex_unlock(&end->lock);
    sched_yield();
    pthread_mutex_lock(&end->lock);
  }
  end->led = true;
  pthread_mutex_unlock(&end->lock);
}

void ot_mpi_let_go(ot_mpi_end *end) {
  pthread_mutex_lock(&end->lock);
  end->led = false;
  pthread_cond_broadcast(&end->changed);
  pthread_cond_signal(&end->work);
  pthread_mutex_unlock(&end->lock);
}

// ---- starting ----

void ot_mpi_start(ot_comm *comm, ot_comm_request *request) {
  ot_mpi_end *const end = (ot_mpi_end *)comm;
  ot_mpi_part *const part = ot_mpi_part_of(request);
  const ot_comm_call *const call = &request->call;
  pthread_mutex_lock(&end->lock);
  part->group = end->groups[call->group];
  request->sequence = call->kind == OT_COMM_SEND      ? ++part->group->sent[call->peer]
                      : call->kind == OT_COMM_RECEIVE ? ++part->group->received[call->peer]
                                                      : ++part->group->started;
  if (!end->failed) {
    end->under_way++;
    enqueue(end, request);
    if (!end->led) lead_once(end, post_queued);
    if (!end->polled && !request->awaited) pthread_cond_signal(&end->work);
  }
  pthread_mutex_unlock(&end->lock);
}

bool ot_mpi_done(ot_comm *comm, ot_comm_request *request) {
  ot_mpi_end *const end = (ot_mpi_end *)comm;
  if (ot_mpi_phase(request) == OT_MPI_DONE) return true;
  pthread_mutex_lock(&end->lock);
  if (!end->led && !end->failed) lead_once(end, progress);
  pthread_mutex_unlock(&end->lock);
  return ot_mpi_phase(request) == OT_MPI_DONE;
}

// ---- waiting ----

static struct timespec at_time(double seconds) {
  return (struct timespec){.tv_sec = (time_t)seconds,
                           .tv_nsec = (long)((seconds - floor(seconds)) * 1e9)};
}

static void sleep_until(ot_mpi_end *end, pthread_cond_t *condition, double until) {
  if (isinf(until)) {
    pthread_cond_wait(condition, &end->lock);
  } else {
    const struct timespec time = at_time(until);
    pthread_cond_timedwait(condition, &end->lock, &time);
  }
}

// The pace of a thread that polls: since when nothing has moved, and its next nap.
typedef struct {
  double idle_since_s, nap_s;
} poll_pace;

static poll_pace new_pace(void) { return (poll_pace){ot_clock_s(), first_nap_s}; }

// Under the lock, let go meanwhile: rests as long as is fit after so much idleness.
static void rest(ot_mpi_end *end, poll_pace *pace, double now) {
  const double idle = now - pace->idle_since_s;
  const double busy = end->spins ? spin_s : 0.0;
  const bool crowded = now < end->crowded_until_s;
  if (idle >= busy + (crowded ? 0.0 : yield_s)) {
    sleep_until(end, &end->changed, now + pace->nap_s);
    pace->nap_s = fmin(pace->nap_s * 1.25, longest_nap_s);
    return;
  }
  pthread_mutex_unlock(&end->lock);
  if (idle >= busy) sched_yield();
  const double took = ot_clock_s() - now;
  pthread_mutex_lock(&end->lock);
  if (idle >= busy && took > long_yield_s) end->crowded_until_s = now + took + crowded_s;
}

// Under the lock: fails all when ranks are missing from a call that was waited for too long.
static void check_patience(ot_mpi_end *end, const ot_comm_request *request) {
  const int size = end->comm.groups[request->call.group].size;
  int absent = 0;
  for (int i = 0; i < size; i++) absent += ot_mpi_is_absent(request, i);
  if (absent == 0) return;
  end->overdue = request;
  pthread_mutex_unlock(&end->lock);
  ot_mpi_fail_all(end, "");
  pthread_mutex_lock(&end->lock);
}

// Under the lock: takes the request's sum from the list and makes it.
static void add_now(ot_mpi_end *end, ot_comm_request *request) {
  remove_from(&end->came, request);
  ot_mpi_set_phase(request, OT_MPI_ADDS);
  pthread_mutex_unlock(&end->lock);
  add(end, request);
  pthread_mutex_lock(&end->lock);
}

static bool still_moves(const ot_mpi_end *end, const ot_comm_request *request) {
  return ot_mpi_phase(request) != OT_MPI_DONE && !end->failed;
}

// When a wait gives up, and when it was last seen to run: time in which the process was stopped
// does not count.
typedef struct {
  double deadline_s, seen_s;
} patience;

// True when patience has run out.
static bool is_over(patience *p) {
  const double now = ot_clock_s();
  if (ot_comm_was_stopped(now - p->seen_s)) p->deadline_s += now - p->seen_s;
  p->seen_s = now;
  return now >= p->deadline_s;
}

// Polls until the request is done or must be added, or patience has run out.
static void poll_for(ot_mpi_end *end, ot_comm_request *request, patience *p) {
  poll_pace pace = new_pace();
  end->polled = true;
  while (still_moves(end, request) && request->phase != OT_MPI_CAME) {
    if (!end->led && lead_once(end, progress)) {
      pace = new_pace();
      continue;
    }
    if (is_over(p)) break;
    if (still_moves(end, request)) rest(end, &pace, p->seen_s);
  }
  end->polled = false;
  // Someone else has to look after what is left.
  pthread_cond_broadcast(&end->changed);
  if (end->under_way > 0) pthread_cond_signal(&end->work);
}

static void wait_under_lock(ot_mpi_end *end, ot_comm_request *request) {
  const double now = ot_clock_s(), patience_s = end->comm.patience_s;
  patience p = {.deadline_s = patience_s > 0.0 ? now + patience_s : INFINITY, .seen_s = now};
  while (still_moves(end, request)) {
    if (request->phase == OT_MPI_CAME) {
      add_now(end, request);
    } else if (!end->polled) {
      poll_for(end, request, &p);
    } else {
      sleep_until(end, &end->changed, isinf(p.deadline_s) ? INFINITY : p.seen_s + look_s);
    }
    if (!is_over(&p)) continue;
    if (still_moves(end, request) && !end->led) check_patience(end, request);
    p.deadline_s = p.seen_s + 0.1;
  }
}

ot_status ot_mpi_wait(ot_comm *comm, ot_comm_request *request) {
  if (ot_mpi_phase(request) == OT_MPI_DONE) return OT_OK;
  ot_mpi_end *const end = (ot_mpi_end *)comm;
  pthread_mutex_lock(&end->lock);
  ot_mpi_part_of(request)->waited = true;
  if (!end->failed) end->waiting++;
  wait_under_lock(end, request);
  if (!end->failed) end->waiting--;
  pthread_mutex_unlock(&end->lock);
  if (ot_mpi_phase(request) == OT_MPI_DONE) return OT_OK;
  ot_mpi_settle(end);
  return ot_fail(OT_RANKS, "%s", end->why);
}

// ---- the engine ----

// A sum that no thread waits for, or null.
static ot_comm_request *find_sum(const ot_mpi_end *end) {
  for (ot_comm_request *request = end->came; request; request = request->next) {
    if (!ot_mpi_part_of(request)->waited) return request;
  }
  return NULL;
}

void *ot_mpi_engine(void *context) {
  ot_mpi_end *const end = context;
  poll_pace pace = new_pace();
  pthread_mutex_lock(&end->lock);
  while (!end->stopping) {
    ot_comm_request *const sum = end->failed ? NULL : find_sum(end);
    if (sum) {
      add_now(end, sum);
    } else if (end->failed || end->polled || end->under_way == 0) {
      pthread_cond_wait(&end->work, &end->lock);
      pace.nap_s = first_nap_s;
    } else {
      if (!end->led && lead_once(end, progress)) pace.nap_s = first_nap_s;
      sleep_until(end, &end->work, ot_clock_s() + pace.nap_s);
      pace.nap_s = fmin(pace.nap_s * 1.25, longest_nap_s);
    }
  }
  pthread_mutex_unlock(&end->lock);
  return NULL;
}
