// SPDX-License-Identifier: Apache-2.0
// run: alone. The fewest devices against all counts, for times that do not fall with every host.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "answer/sweep.h"
#include "base/rng.h"
#include "base/text.h"
#include "support/arena_fixture.h"

typedef struct machine {
  uint64_t seed;
  int host;
  double work_s;  // device seconds at best
  int calls;
} machine;

// Up to an eighth of the devices' work is lost, more or less by chance; odd hosts lose more.
static double elapsed(const machine *m, int devices) {
  const double chance = ot_rng_uniform(m->seed, 1, (uint64_t)devices);
  if (devices < m->host && m->host % devices != 0) return 0;
  return m->work_s * (1 + chance / 8) / devices;
}

static ot_status run(void *context, int devices, double *elapsed_s) {
  machine *const m = context;
  m->calls++;
  *elapsed_s = elapsed(m, devices);
  return OT_OK;
}

static int fewest(const machine *m, int most, double seconds) {
  for (int n = 1; n <= most; n++) {
    const bool counts = n <= m->host || n % m->host == 0 || n == most;
    const double s = counts ? elapsed(m, n) : 0;
    if (s > 0 && s <= seconds) return n;
  }
  return 0;
}

static void the_fewest_whole_hosts_are_found(void **state) {
  (void)state;
  int refused = 0;
  for (uint64_t seed = 0; seed < 400; seed++) {
    const int hosts = 1 + (int)(ot_rng_uniform(seed, 2, 0) * 60);
    machine m = {.seed = seed, .host = 8, .work_s = 86400 * 1000};
    const int most = 8 * hosts - (seed % 5 == 0 && hosts > 1 ? 3 : 0);
    const int days = 1 + (int)(1000 / (1 + ot_rng_uniform(seed, 3, 0) * most));
    ot_deadline d;
    const ot_deadline_search search = {most, m.host, run, &m};
    const ot_status status =
        ot_deadline_meet(ot_arena_format(&arena, "%dd", days), &search, &arena, &d);
    const int expected = fewest(&m, most, days * 86400.0);
    assert_int_equal(status, expected > 0 ? OT_OK : OT_FINDINGS);
    if (expected > 0) assert_int_equal(d.fewest, expected);
    assert_true(m.calls <= 60);
    refused += expected == 0;
  }
  assert_true(refused > 0 && refused < 200);
}

static void the_text_names_the_next_fewer(void **state) {
  (void)state;
  machine m = {.seed = 1, .host = 8, .work_s = 86400 * 1000};
  ot_deadline d;
  const ot_deadline_search search = {1024, 8, run, &m};
  assert_int_equal(ot_deadline_meet("30d", &search, &arena, &d), OT_OK);
  assert_int_equal(d.fewest, fewest(&m, 1024, 30 * 86400.0));
  assert_non_null(
      ot_text_find(d.text, ot_arena_format(&arena, ", %d devices take ", d.fewest - 8)));
  assert_int_equal(ot_deadline_meet("1h", &search, &arena, &d), OT_FINDINGS);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_fewest_whole_hosts_are_found),
      cmocka_unit_test(the_text_names_the_next_fewer),
  };
  return cmocka_run_group_tests(tests, begin, finish);
}
