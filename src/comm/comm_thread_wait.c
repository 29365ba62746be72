// SPDX-License-Identifier: Apache-2.0
// Waiting for calls of ranks that are threads: work first, then a short spin where there are cores
// for everyone, then sleep. Because every rank's threads are counted, a wait without end is known:
// when all threads of all ranks wait and no part is left to do, or when a rank that must come has
// ended. What depends on ot_comm_set_waiting is believed only after a while without any event,
// because a thread that was woken may not have said so yet.
#include <errno.h>
#include <math.h>
#include <time.h>

#include "base/text.h"
#include "comm/comm_thread.h"
#include "host/clock.h"

static const double spin_s = 30e-6;
static const double grace_s = 1.0;

// ---- who waits ----

static bool is_deadlock(const ot_thread_world *world) {
  return world->stuck == world->ranks && world->ready == 0 && world->running == 0;
}

void ot_thread_update_stuck(ot_thread_end *end) {
  ot_thread_world *const world = end->world;
  const bool stuck = end->finished || end->waiting >= end->threads;
  world->stuck += stuck - end->stuck;
  end->stuck = stuck;
  if (world->stuck < world->ranks || world->failed) return;
  world->stuck_since_s = ot_clock_s();
  for (int i = 0; i < world->ranks; i++) ot_thread_wake(&world->ends[i]);
}

void ot_thread_wake(ot_thread_end *end) {
  if (end->sleepers > 0) pthread_cond_broadcast(&end->woken);
}

static void count_waiting(ot_thread_end *end, int change) {
  end->waiting += change;
  ot_thread_update_stuck(end);
}

static void remember_waited(ot_thread_end *end, ot_comm_request *request) {
  ot_thread_part *const part = ot_thread_part_of(request);
  part->waited = true;
  part->next_waited = end->waited;
  end->waited = request;
  count_waiting(end, 1);
}

void ot_thread_forget_waited(ot_comm_request *request) {
  ot_thread_part *const part = ot_thread_part_of(request);
  ot_comm_request **link = &part->end->waited;
  while (*link != request) link = &ot_thread_part_of(*link)->next_waited;
  *link = part->next_waited;
  part->waited = false;
  count_waiting(part->end, -1);
}

void ot_thread_set_waiting(ot_comm *comm, bool waits) {
  ot_thread_end *const end = (ot_thread_end *)comm;
  pthread_mutex_lock(&end->world->lock);
  end->world->declared += waits ? 1 : -1;
  count_waiting(end, waits ? 1 : -1);
  pthread_mutex_unlock(&end->world->lock);
}

void ot_thread_add_thread(ot_comm *comm, bool more) {
  ot_thread_end *const end = (ot_thread_end *)comm;
  pthread_mutex_lock(&end->world->lock);
  end->threads += more ? 1 : -1;
  ot_thread_update_stuck(end);
  pthread_mutex_unlock(&end->world->lock);
}

// ---- why a wait has no end ----

static void say_wait(ot_comm_text *out, ot_comm_request *request) {
  const ot_thread_part *const part = ot_thread_part_of(request);
  ot_comm_say(out, "rank %d waits in ", part->end->comm.rank);
  ot_comm_say_call(out, &part->end->comm, request);
  ot_comm_say(out, " for ");
  ot_comm_say_ranks(out, part->group->ranks, part->group->size, ot_thread_is_absent, request);
}

static void say_rank(ot_comm_text *out, const ot_thread_end *end) {
  ot_comm_request *request = end->waited;
  if (end->finished) {
    ot_comm_say(out, "rank %d has ended", end->comm.rank);
  } else if (!request) {
    ot_comm_say(out, "rank %d waits for its own threads", end->comm.rank);
  }
  for (; request; request = ot_thread_part_of(request)->next_waited) {
    say_wait(out, request);
    if (ot_thread_part_of(request)->next_waited) ot_comm_say(out, "; ");
  }
}

static void fail_deadlock(ot_thread_world *world) {
  char why[sizeof world->why];
  ot_comm_text out = {why, sizeof why, 0};
  ot_comm_say(&out, "ranks wait for each other and nothing can move: ");
  for (int i = 0; i < world->ranks; i++) {
    if (i > 0) ot_comm_say(&out, "; ");
    say_rank(&out, &world->ends[i]);
  }
  ot_thread_fail_world(world, why);
}

static bool is_gone(const void *request, int index) {
  const ot_thread_part *const part = ot_thread_part_of((ot_comm_request *)request);
  const ot_thread_world *const world = part->end->world;
  return ot_thread_is_absent(request, index) && world->ends[part->group->ranks[index]].finished;
}

// Fails the world when a rank that must come never will.
static void check_gone(ot_comm_request *request) {
  const ot_thread_part *const part = ot_thread_part_of(request);
  int gone = 0;
  for (int i = 0; i < part->group->size; i++) gone += is_gone(request, i);
  if (gone == 0) return;
  ot_thread_world *const world = part->end->world;
  char why[sizeof world->why];
  ot_comm_text out = {why, sizeof why, 0};
  say_wait(&out, request);
  ot_comm_say(&out, ", but ");
  ot_comm_say_ranks(&out, part->group->ranks, part->group->size, is_gone, request);
  ot_comm_say(&out, gone == 1 ? " has ended" : " have ended");
  ot_thread_fail_world(world, why);
}

// Fails the world when the wait took too long and someone is missing.
static void check_patience(ot_comm_request *request) {
  const ot_thread_part *const part = ot_thread_part_of(request);
  ot_thread_world *const world = part->end->world;
  int absent = 0;
  for (int i = 0; i < part->group->size; i++) absent += ot_thread_is_absent(request, i);
  if (absent == 0) return;
  char why[sizeof world->why];
  ot_comm_text out = {why, sizeof why, 0};
  say_wait(&out, request);
  ot_comm_say(&out,
              absent == 1 ? ", which has not come in %.3g s" : ", which have not come in %.3g s",
              part->end->comm.patience_s);
  ot_thread_fail_world(world, why);
}

void ot_thread_fail_world(ot_thread_world *world, const char *why) {
  if (world->failed) return;
  ot_text_format(world->why, sizeof world->why, "%s", why);
  world->failed = true;
  world->ready = 0;
  for (int i = 0; i < world->ranks; i++) {
    world->ends[i].ready = NULL;
    ot_thread_wake(&world->ends[i]);
  }
}

// ---- waiting ----

// Sleeps until woken or until `deadline` (infinity: none).
static void sleep_until(ot_thread_end *end, double deadline) {
  pthread_mutex_t *const lock = &end->world->lock;
  end->sleepers++;
  if (isinf(deadline)) {
    pthread_cond_wait(&end->woken, lock);
  } else {
    const struct timespec until = {.tv_sec = (time_t)deadline,
                                   .tv_nsec = (long)((deadline - floor(deadline)) * 1e9)};
    pthread_cond_timedwait(&end->woken, lock, &until);
  }
  end->sleepers--;
}

void ot_thread_settle(ot_thread_end *end) {
  while (end->world->running > 0) sleep_until(end, ot_clock_s() + 0.01);
}

// Waits outside the lock, for a moment, for the request to move.
static void spin(ot_thread_end *end, const ot_comm_request *request) {
  const int seen = ot_thread_phase(request);
  pthread_mutex_unlock(&end->world->lock);
  const double until = ot_clock_s() + spin_s;
  while (ot_thread_phase(request) == seen && !end->world->failed && ot_clock_s() < until) {
    for (int i = 0; i < 16; i++) __builtin_ia32_pause();
  }
  pthread_mutex_lock(&end->world->lock);
}

// One step towards the end of the wait. `rested` is false after something has moved.
static void wait_on(ot_thread_end *end, ot_comm_request *request, double *deadline, bool *rested) {
  ot_thread_world *const world = end->world;
  ot_comm_request *const part = ot_thread_take(request);
  if (part) {
    ot_thread_run_part(world, part);
    *rested = false;
    return;
  }
  if (world->spins && !*rested) {
    spin(end, request);
    *rested = true;
    return;
  }
  const double now = ot_clock_s();
  check_gone(request);
  if (now >= *deadline) {
    if (!ot_comm_was_stopped(now - *deadline)) check_patience(request);
    *deadline = now + end->comm.patience_s;
  }
  double until = *deadline;
  if (is_deadlock(world)) {
    const double sure = world->stuck_since_s + (world->declared > 0 ? grace_s : 0.0);
    if (now >= sure) fail_deadlock(world);
    if (sure < until) until = sure;
  }
  if (!world->failed) sleep_until(end, until);
}

ot_status ot_thread_wait(ot_comm *comm, ot_comm_request *request) {
  if (ot_thread_phase(request) == OT_PART_DONE) return OT_OK;
  ot_thread_end *const end = (ot_thread_end *)comm;
  ot_thread_world *const world = end->world;
  const double patience = comm->patience_s;
  double deadline = patience > 0.0 ? ot_clock_s() + patience : INFINITY;
  pthread_mutex_lock(&world->lock);
  if (request->phase != OT_PART_DONE) remember_waited(end, request);
  bool rested = false;
  while (request->phase != OT_PART_DONE && !world->failed) {
    wait_on(end, request, &deadline, &rested);
  }
  const bool done = request->phase == OT_PART_DONE;
  if (!done) {
    ot_thread_forget_waited(request);
    ot_thread_settle(end);
  }
  pthread_mutex_unlock(&world->lock);
  return done ? OT_OK : ot_fail(OT_RANKS, "%s", world->why);
}
