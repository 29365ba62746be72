// SPDX-License-Identifier: Apache-2.0
// Two threads bound to two cores write one word in turn. The shortest of many bursts counts: others
// contain interruptions.
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/status.h"
#include "host/clock.h"
#include "host/cores.h"
#include "measure/measure.h"

enum { BURSTS = 100, TRIPS = 100 };

static const double most_s = 0.2;

typedef struct court {
  _Alignas(128) atomic_int ball;  // 1: away
  _Alignas(128) atomic_bool over;
  int cores;
} court;

static void *send_back(void *context) {
  court *const c = context;
  ot_core_binding last = {.rank = c->cores - 1, .ranks = c->cores, .threads = 1};
  ot_cores_bind(&last);
  while (!atomic_load_explicit(&c->over, memory_order_relaxed)) {
    if (atomic_load(&c->ball) == 1) atomic_store(&c->ball, 0);
  }
  return NULL;
}

static double time_burst(court *c) {
  const double start_s = ot_clock_s();
  for (int i = 0; i < TRIPS; i++) {
    atomic_store(&c->ball, 1);
    while (atomic_load(&c->ball) != 0) continue;
  }
  return (ot_clock_s() - start_s) / TRIPS;
}

ot_status ot_measure_round_trip(double *seconds) {
  court c = {.cores = ot_host_cores()};
  pthread_t other;
  *seconds = 0;
  if (c.cores < 2) return OT_OK;
  OT_CHECK(pthread_create(&other, NULL, send_back, &c) == 0, OT_ENVIRONMENT,
           "bench: cannot start a thread");
  ot_core_binding first = {.ranks = c.cores, .threads = 1};
  ot_cores_bind(&first);
  const double end_s = ot_clock_s() + most_s;
  *seconds = time_burst(&c);
  for (int i = 0; i < BURSTS && ot_clock_s() < end_s; i++) {
    const double burst_s = time_burst(&c);
    if (burst_s < *seconds) *seconds = burst_s;
  }
  ot_cores_release(&first);
  atomic_store(&c.over, true);
  pthread_join(other, NULL);
  return OT_OK;
}
