// SPDX-License-Identifier: Apache-2.0
// One mutex guards all state: lanes synchronize a few times per block, never inside a kernel. Each
// lane has one condition variable on which its thread sleeps; a state change signals the threads
// whose condition now holds.
#include "execute/lanes.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/failure.h"

// The kinds of events that a thread waits for.
typedef enum wait_kind {
  WAIT_WORK,   // an entry to run, or shutdown
  WAIT_ENTRY,  // `lane` has completed `entry`, or a failure
  WAIT_IDLE,   // `lane` is idle
} wait_kind;

typedef struct lane_thread {
  ot_lanes *lanes;
  ot_lane self;
  pthread_t thread;
  bool started;
  pthread_cond_t wake;
  bool asleep;
  wait_kind wait_kind;
  ot_lane lane;
  int entry;
  int *queue;  // [capacity]
  int pushed, taken, done;
  int last_done;  // entry, -1 before the first
} lane_thread;

struct ot_lanes {
  ot_lanes_options options;
  pthread_mutex_t mutex;
  lane_thread lane[OT_LANES];  // compute: the calling thread
  bool quits;
  ot_failure failure;  // the first failure of this run
};

// ---- sleep and wake; all with the mutex held ----

static bool is_satisfied(const ot_lanes *lanes, const lane_thread *t) {
  switch (t->wait_kind) {
    case WAIT_WORK:
      return lanes->quits || t->taken < t->pushed;
    case WAIT_ENTRY:
      return lanes->failure.status != OT_OK || lanes->lane[t->lane].last_done >= t->entry;
    case WAIT_IDLE:
      return lanes->lane[t->lane].done == lanes->lane[t->lane].pushed;
  }
  OT_UNREACHABLE();
}

static void report_waiting(const ot_lanes *lanes, bool waits) {
  if (lanes->options.comm) ot_comm_set_waiting(lanes->options.comm, waits);
}

static void sleep_until(ot_lanes *lanes, lane_thread *t, wait_kind for_what) {
  t->wait_kind = for_what;
  if (is_satisfied(lanes, t)) return;
  t->asleep = true;
  report_waiting(lanes, true);
  while (t->asleep) pthread_cond_wait(&t->wake, &lanes->mutex);
}

static void wake(ot_lanes *lanes) {
  for (int i = 0; i < OT_LANES; i++) {
    lane_thread *const t = &lanes->lane[i];
    if (!t->asleep || !is_satisfied(lanes, t)) continue;
    report_waiting(lanes, false);
    t->asleep = false;
    pthread_cond_signal(&t->wake);
  }
}

// ---- threads ----

static void run_next(ot_lanes *lanes, lane_thread *t) {
  const int entry = t->queue[t->taken++];
  ot_status status = OT_OK;
  if (lanes->failure.status == OT_OK) {
    pthread_mutex_unlock(&lanes->mutex);
    status = lanes->options.run(lanes->options.context, t->self, entry);
    pthread_mutex_lock(&lanes->mutex);
  }
  ot_failure_take(&lanes->failure, status);
  t->last_done = entry;
  t->done++;
  wake(lanes);
}

static void *lane_main(void *argument) {
  lane_thread *const t = argument;
  ot_lanes *const lanes = t->lanes;
  pthread_mutex_lock(&lanes->mutex);
  // Starts asleep: see start_thread.
  while (t->asleep) pthread_cond_wait(&t->wake, &lanes->mutex);
  while (t->taken < t->pushed) {
    run_next(lanes, t);
    sleep_until(lanes, t, WAIT_WORK);
  }
  pthread_mutex_unlock(&lanes->mutex);
  return NULL;
}

static ot_status start_thread(ot_lanes *lanes, lane_thread *t, int64_t capacity) {
  t->queue = calloc((size_t)capacity, sizeof *t->queue);
  OT_CHECK(t->queue, OT_ENVIRONMENT, "executor: out of memory");
  t->asleep = true;
  t->wait_kind = WAIT_WORK;
  if (lanes->options.comm) ot_comm_add_thread(lanes->options.comm, true);
  report_waiting(lanes, true);
  t->started = pthread_create(&t->thread, NULL, lane_main, t) == 0;
  if (t->started) return OT_OK;
  t->asleep = false;
  report_waiting(lanes, false);
  if (lanes->options.comm) ot_comm_add_thread(lanes->options.comm, false);
  return ot_fail(OT_ENVIRONMENT, "executor: cannot start a thread for lane %s",
                 ot_lane_name(t->self));
}

// ---- create ----

bool ot_lanes_count(const ot_schedule *schedule, ot_lanes_options *options) {
  static const ot_lane own_threads[] = {OT_LANE_GATHER, OT_LANE_REDUCE};
  for (int i = 0; i < schedule->num_orders; i++) {
    int64_t entries[OT_LANES] = {0};
    for (int k = 0; k < schedule->orders[i].num_entries; k++) {
      entries[schedule->orders[i].entries[k].lane]++;
    }
    for (int k = 0; k < OT_COUNT(own_threads); k++) {
      const ot_lane lane = own_threads[k];
      if (entries[lane] > options->capacity[lane]) options->capacity[lane] = entries[lane];
    }
  }
  return options->capacity[OT_LANE_GATHER] + options->capacity[OT_LANE_REDUCE] > 0;
}

ot_status ot_lanes_create(const ot_lanes_options *options, ot_lanes **out) {
  ot_lanes *const lanes = calloc(1, sizeof *lanes);
  OT_CHECK(lanes, OT_ENVIRONMENT, "executor: out of memory");
  *out = lanes;
  lanes->options = *options;
  pthread_mutex_init(&lanes->mutex, NULL);
  for (int i = 0; i < OT_LANES; i++) {
    lane_thread *const t = &lanes->lane[i];
    *t = (lane_thread){.lanes = lanes, .self = (ot_lane)i, .last_done = -1};
    pthread_cond_init(&t->wake, NULL);
  }
  for (int i = 0; i < OT_LANES; i++) {
    if (options->capacity[i] == 0) continue;
    const ot_status status = start_thread(lanes, &lanes->lane[i], options->capacity[i]);
    if (status == OT_OK) continue;
    ot_lanes_destroy(out);
    return status;
  }
  return OT_OK;
}

void ot_lanes_destroy(ot_lanes **out) {
  if (!out || !*out) return;
  ot_lanes *const lanes = *out;
  pthread_mutex_lock(&lanes->mutex);
  lanes->quits = true;
  wake(lanes);
  pthread_mutex_unlock(&lanes->mutex);
  for (int i = 0; i < OT_LANES; i++) {
    lane_thread *const t = &lanes->lane[i];
    if (t->started) {
      pthread_join(t->thread, NULL);
      if (lanes->options.comm) ot_comm_add_thread(lanes->options.comm, false);
    }
    pthread_cond_destroy(&t->wake);
    free(t->queue);
  }
  pthread_mutex_destroy(&lanes->mutex);
  free(lanes);
  *out = NULL;
}

// ---- run ----

void ot_lanes_begin(ot_lanes *lanes) {
  pthread_mutex_lock(&lanes->mutex);
  lanes->failure.status = OT_OK;
  for (int i = 0; i < OT_LANES; i++) {
    lane_thread *const t = &lanes->lane[i];
    OT_ASSERT(t->done == t->pushed);
    t->pushed = t->taken = t->done = 0;
    t->last_done = -1;
  }
  pthread_mutex_unlock(&lanes->mutex);
}

void ot_lanes_push(ot_lanes *lanes, ot_lane lane, int entry) {
  lane_thread *const t = &lanes->lane[lane];
  OT_ASSERT(t->started && t->pushed < lanes->options.capacity[lane]);
  pthread_mutex_lock(&lanes->mutex);
  t->queue[t->pushed++] = entry;
  wake(lanes);
  pthread_mutex_unlock(&lanes->mutex);
}

ot_status ot_lanes_wait(ot_lanes *lanes, ot_lane self, ot_lane lane, int entry) {
  lane_thread *const t = &lanes->lane[self];
  pthread_mutex_lock(&lanes->mutex);
  t->lane = lane;
  t->entry = entry;
  sleep_until(lanes, t, WAIT_ENTRY);
  const ot_status status = ot_failure_repeat(&lanes->failure);
  pthread_mutex_unlock(&lanes->mutex);
  return status;
}

void ot_lanes_drop(ot_lanes *lanes, ot_status status) {
  pthread_mutex_lock(&lanes->mutex);
  ot_failure_take(&lanes->failure, status);
  wake(lanes);
  pthread_mutex_unlock(&lanes->mutex);
}

ot_status ot_lanes_finish(ot_lanes *lanes) {
  lane_thread *const walker = &lanes->lane[OT_LANE_COMPUTE];
  pthread_mutex_lock(&lanes->mutex);
  for (int i = 0; i < OT_LANES; i++) {
    walker->lane = (ot_lane)i;
    sleep_until(lanes, walker, WAIT_IDLE);
  }
  const ot_status first = ot_failure_repeat(&lanes->failure);
  pthread_mutex_unlock(&lanes->mutex);
  return first;
}
