// SPDX-License-Identifier: Apache-2.0
// run: any machine; skipped with one core. Where the ranks of a host use all its cores, each thread
// is on a core of its own; after the run, and with other numbers of threads, on any.
#include <omp.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "host/cores.h"

static cpu_set_t cores_of_thread(void) {
  cpu_set_t set;
  CPU_ZERO(&set);
  assert_int_equal(pthread_getaffinity_np(pthread_self(), sizeof set, &set), 0);
  return set;
}

// The cores that some OpenMP thread may use, and how many may use more than one.
static int free_threads(int threads, cpu_set_t *all) {
  int free = 0;
  CPU_ZERO(all);
#pragma omp parallel num_threads(threads) reduction(+ : free)
  {
    const cpu_set_t own = cores_of_thread();
    free += CPU_COUNT(&own) > 1;
#pragma omp critical
    CPU_OR(all, all, &own);
  }
  return free;
}

static void binds_each_thread_to_a_core_of_its_own(void **state) {
  (void)state;
  const int n = ot_host_cores();
  if (n < 2) skip();
  const cpu_set_t before = cores_of_thread();
  ot_core_binding binding = {.ranks = 1, .threads = n};
  cpu_set_t used;
  ot_cores_bind(&binding);
  assert_int_equal(free_threads(n, &used), 0);
  assert_true(CPU_EQUAL(&used, &before));
  ot_cores_release(&binding);
  assert_int_equal(free_threads(n, &used), 1);
  ot_cores_destroy(&binding);
  assert_int_equal(free_threads(n, &used), n);
}

static void gives_each_rank_the_next_core(void **state) {
  (void)state;
  const int n = ot_host_cores();
  if (n < 2) skip();
  const cpu_set_t before = cores_of_thread();
  cpu_set_t used;
  CPU_ZERO(&used);
  for (int rank = 0; rank < n; rank++) {
    ot_core_binding binding = {.rank = rank, .ranks = n, .threads = 1};
    ot_cores_bind(&binding);
    const cpu_set_t own = cores_of_thread();
    assert_int_equal(CPU_COUNT(&own), 1);
    CPU_OR(&used, &used, &own);
    ot_cores_release(&binding);
  }
  assert_true(CPU_EQUAL(&used, &before));
}

static void leaves_threads_alone_that_do_not_fill_the_host(void **state) {
  (void)state;
  const int n = ot_host_cores();
  const cpu_set_t before = cores_of_thread();
  const ot_core_binding others[] = {{.ranks = 1, .threads = n + 1}, {.ranks = 2 * n, .threads = 1}};
  for (int i = 0; i < 2; i++) {
    ot_core_binding binding = others[i];
    ot_cores_bind(&binding);
    const cpu_set_t own = cores_of_thread();
    assert_true(CPU_EQUAL(&own, &before));
    ot_cores_release(&binding);
    ot_cores_destroy(&binding);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(binds_each_thread_to_a_core_of_its_own),
      cmocka_unit_test(gives_each_rank_the_next_core),
      cmocka_unit_test(leaves_threads_alone_that_do_not_fill_the_host),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
