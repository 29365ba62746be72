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

// Hours that plans of these models take on 1 to 7 devices, then on 1 and more hosts of 8; 0: they
// do not fit. Degrees have to divide the devices, so times go up and down.
static const struct {
  const char *model;
  double hours[72];  // up to the first 0 after a count that fits
} planned[] = {
    {"gpt2-xl", {146.8, 73.4, 49, 36.8, 29.7, 24.6, 55.4, 18.6, 9.5, 6.4, 4.9, 4.1, 3.4, 7.2, 3.1}},
    {"llama3-70b",
     {0,      0,      0,      0,     0,      0,      0,      0,      0,     5289.8, 3914.7, 3027,
      2445.5, 1979.6, 1840.4, 1559,  1531.3, 1330.6, 1173.2, 1178.5, 997.5, 1003.5, 924.8,  853.2,
      797.2,  849.7,  756.1,  686.3, 684.9,  683.5,  594.9,  686.1,  606.5, 543.8,  528.6,  529.1,
      506.5,  525.9,  469.8,  472.1, 448.5,  526.6,  415.2,  529,    445.8, 418,    386.9,  412.5,
      361.7,  370.9,  359.9,  362,   347.8,  369.4,  304.3,  368.7,  363.6, 309,    320.6,  367.3,
      286.1,  366.5,  272.1,  307.1, 283.1,  365.1,  262.5,  364.3,  272.7, 253.9,  240.8}},
    {"gemma2-9b", {0,     0,     0,     0,     0,     1938.2, 0,     1230.6, 574.8,
                   400.4, 290.2, 231.6, 197.9, 176.4, 150.5,  151.6, 116.3,  127.3,
                   99.7,  103.3, 89.3,  81,    77,    96.8,   76.8,  96.9,   59.5}},
    {"olmoe-1b-7b",
     {0, 272, 163, 122.4, 97.4, 81.3, 85.4, 61.2, 31.1, 21.1, 16.6, 13, 11, 11.2, 9.3, 7.6, 7, 7.8,
      5.9}},
};

static int devices_at(int i) { return i < 7 ? i + 1 : 8 * (i - 6); }

static ot_status look_up(void *context, int devices, double *elapsed_s) {
  const double *const hours = context;
  *elapsed_s = 3600 * hours[devices < 8 ? devices - 1 : devices / 8 + 6];
  return OT_OK;
}

static void the_fewest_are_found_of_times_as_plans_have_them(void **state) {
  (void)state;
  for (int p = 0; p < OT_COUNT(planned); p++) {
    const double *const hours = planned[p].hours;
    int counts = 72;
    while (hours[counts - 1] == 0) counts--;
    for (int most = 8; most <= counts; most++) {
      for (int k = 0; k < counts; k++) {
        int expected = 0;
        ot_deadline d;
        if (hours[k] == 0) continue;
        const ot_deadline_search search = {devices_at(most - 1), 8, look_up, (void *)hours};
        const char *const time = ot_arena_format(&arena, "%.3fh", hours[k] + 0.01);
        while (expected < most && (hours[expected] == 0 || hours[expected] > hours[k])) expected++;
        const ot_status status = ot_deadline_meet(time, &search, &arena, &d);
        if (status != (expected < most ? OT_OK : OT_FINDINGS) ||
            (expected < most && d.fewest != devices_at(expected)))
          fail_msg("%s, %d devices, %s: %d, not %d", planned[p].model, search.most, time, d.fewest,
                   expected < most ? devices_at(expected) : 0);
      }
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_fewest_whole_hosts_are_found),
      cmocka_unit_test(the_fewest_are_found_of_times_as_plans_have_them),
      cmocka_unit_test(the_text_names_the_next_fewer),
  };
  return cmocka_run_group_tests(tests, begin, finish);
}
