// SPDX-License-Identifier: Apache-2.0
// OpenMP threads are bound once, because their number for a kernel may be smaller than `threads`.
#include "host/cores.h"

#include <omp.h>
#include <pthread.h>

int ot_host_cores(void) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  const int cores = CPU_COUNT(&set);
  return cores > 0 ? cores : 1;
}

int ot_host_threads(int ranks) {
  const int cores = ot_host_cores();
  if (ranks <= 1) return cores;
  return cores > ranks ? cores / ranks : 1;
}

// The core of thread `thread` of the rank: of those in `all`, one after the other.
static cpu_set_t core_of(const ot_core_binding *b, int thread) {
  int left = b->rank * b->threads + thread;
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int core = 0; core < CPU_SETSIZE; core++) {
    if (!CPU_ISSET(core, &b->all) || left-- > 0) continue;
    CPU_SET(core, &one);
    break;
  }
  return one;
}

static bool use(const cpu_set_t *cores) {
  return pthread_setaffinity_np(pthread_self(), sizeof *cores, cores) == 0;
}

static void place_workers(const ot_core_binding *b, bool bound) {
  if (b->threads == 1) return;
#pragma omp parallel num_threads(b->threads)
  {
    const int thread = omp_get_thread_num();
    const cpu_set_t cores = bound ? core_of(b, thread) : b->all;
    if (thread > 0) (void)use(&cores);
  }
}

void ot_cores_bind(ot_core_binding *b) {
  CPU_ZERO(&b->all);
  if (pthread_getaffinity_np(pthread_self(), sizeof b->all, &b->all) != 0) return;
  if (b->ranks * b->threads != CPU_COUNT(&b->all)) return;
  if (!b->workers) place_workers(b, true);
  b->workers = true;
  const cpu_set_t own = core_of(b, 0);
  b->bound = use(&own);
}

void ot_cores_release(ot_core_binding *b) {
  if (b->bound) (void)use(&b->all);
  b->bound = false;
}

void ot_cores_destroy(ot_core_binding *b) {
  if (b->workers) place_workers(b, false);
  b->workers = false;
}
