// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernel_watch.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "host/clock.h"
#include "host/small_thread.h"
#include "runtime/stop_signal.h"

static const double look_s = 0.1;      // between looks, at most
static const double first_factor = 3;  // of the timeout, in the first step
static const double looks_min = 8;     // in a timeout, at least

// One lane, since the thread saw it first in a kernel.
typedef struct lane_sight {
  int64_t marks;
  double inside_s;   // in that kernel
  double stopped_s;  // of these, since a stop was requested
} lane_sight;

struct ot_kernel_watch {
  ot_kernel_watch_request request;
  ot_progress progress;
  _Atomic int64_t step, steps;  // the current one; steps begun by this process
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool ends;  // under the lock
};

double ot_kernel_watch_first_s(double watchdog_s) { return first_factor * watchdog_s; }

static double timeout_of(const ot_kernel_watch *watch) {
  const double timeout_s = watch->request.timeout_s;
  if (timeout_s == 0) return INFINITY;
  return watch->steps > 1 ? timeout_s : ot_kernel_watch_first_s(timeout_s);
}

static void fail(const ot_kernel_watch *watch, const ot_lane_progress *lane, double after_s,
                 bool stopped) {
  const ot_entry *const entry = lane->entry;
  const ot_task *const task = lane->task;
  const ot_segment *const segment = &watch->request.schedule->segments[entry->segment];
  ot_fail(OT_RANKS,
          "%s%s, step %lld: a kernel has not ended in %g s: task %d (%s) of %s, block %d, "
          "micro-batch %d%s",
          stopped ? "stopped by a signal, but " : "", watch->request.rank, (long long)watch->step,
          after_s, (int)(task - segment->tasks), ot_task_name(task), segment->name, entry->block,
          entry->micro_batch, stopped ? "; the steps since the newest checkpoint are lost" : "");
  ot_fail_hint(OT_RANKS,
               "the same command continues from the newest checkpoint; see whether limits of "
               "memory or threads (ulimit -a) let a library wait%s",
               stopped ? "" : ", or raise parallel.watchdog_seconds if kernels are that slow");
}

// `passed_s` since the last check, in which the process ran. Returns whether the kernel hangs; then
// the failure says so.
static bool check_lane(const ot_kernel_watch *watch, ot_lane lane, double passed_s,
                       lane_sight *sight) {
  const ot_lane_progress *const now = &watch->progress.lane[lane];
  const int64_t marks = atomic_load_explicit(&now->marks, memory_order_acquire);
  if (marks != sight->marks || marks % 2 == 0) {
    *sight = (lane_sight){.marks = marks};
    return false;
  }
  sight->inside_s += passed_s;
  if (ot_stop_signal_seen()) sight->stopped_s += passed_s;
  const double timeout_s = timeout_of(watch), stop_s = watch->request.stop_s;
  const bool stopped = sight->stopped_s >= stop_s;
  if (!stopped && sight->inside_s < timeout_s) return false;
  fail(watch, now, stopped ? stop_s : timeout_s, stopped);
  return true;
}

// Waits for `seconds`, or until the watch ends. Under the lock.
static void rest(ot_kernel_watch *watch, double seconds) {
  const struct timespec until = ot_clock_timespec(ot_clock_s() + seconds);
  pthread_cond_timedwait(&watch->changed, &watch->lock, &until);
}

// Under the lock. Returns whether a kernel hangs.
static bool watch_lanes(ot_kernel_watch *watch) {
  const ot_kernel_watch_request *const r = &watch->request;
  const double shortest_s = r->timeout_s > 0 ? fmin(r->timeout_s, r->stop_s) : r->stop_s;
  const double every_s = fmin(look_s, shortest_s / looks_min);
  lane_sight sights[OT_LANES] = {0};
  bool hangs = false;
  for (double seen_s = ot_clock_s(); !watch->ends && !hangs;) {
    rest(watch, every_s);
    const double gap_s = ot_clock_s() - seen_s;
    const double passed_s = ot_clock_was_stopped(gap_s) ? 0 : gap_s;
    seen_s += gap_s;
    for (int lane = 0; lane < OT_LANES && !hangs; lane++)
      hangs = check_lane(watch, (ot_lane)lane, passed_s, &sights[lane]);
  }
  return hangs && !watch->ends;
}

static void *run(void *context) {
  ot_kernel_watch *const watch = context;
  pthread_mutex_lock(&watch->lock);
  const bool hangs = watch_lanes(watch);
  pthread_mutex_unlock(&watch->lock);
  if (hangs) watch->request.end();
  return NULL;
}

static bool start(ot_kernel_watch *watch) {
  pthread_condattr_t attributes;
  if (pthread_condattr_init(&attributes) != 0) return false;
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_mutex_init(&watch->lock, NULL);
  pthread_cond_init(&watch->changed, &attributes);
  pthread_condattr_destroy(&attributes);
  return ot_host_start_small_thread(run, watch, &watch->thread);
}

ot_status ot_kernel_watch_create(const ot_kernel_watch_request *request, ot_kernel_watch **out) {
  ot_kernel_watch *const watch = calloc(1, sizeof *watch);
  *out = NULL;
  OT_CHECK(watch, OT_ENVIRONMENT, "out of memory (%s)", request->rank);
  watch->request = *request;
  if (start(watch)) {
    *out = watch;
    return OT_OK;
  }
  free(watch);
  ot_fail(OT_ENVIRONMENT, "no thread can be started to watch the kernels (%s)", request->rank);
  return ot_fail_hint(OT_ENVIRONMENT, "raise the limit of threads (ulimit -u) or memory (-v)");
}

void ot_kernel_watch_destroy(ot_kernel_watch **out) {
  ot_kernel_watch *const watch = *out;
  if (!watch) return;
  pthread_mutex_lock(&watch->lock);
  watch->ends = true;
  pthread_cond_signal(&watch->changed);
  pthread_mutex_unlock(&watch->lock);
  pthread_join(watch->thread, NULL);
  pthread_cond_destroy(&watch->changed);
  pthread_mutex_destroy(&watch->lock);
  free(watch);
  *out = NULL;
}

ot_progress *ot_kernel_watch_progress(ot_kernel_watch *watch) {
  return watch ? &watch->progress : NULL;
}

void ot_kernel_watch_step(ot_kernel_watch *watch, int64_t step) {
  if (!watch) return;
  watch->step = step;
  watch->steps++;
}
