// SPDX-License-Identifier: Apache-2.0
// ctest: first
// run: ranks=2,4 as threads. Known bugs from real runs and issues are injected into a correct
// engine one at a time; what a user would run must find them: the checks before a start, the
// audits, the monitors of training. Each on one layout; on every applicable layout with
// OT_TESTS=full in the environment (minutes). MUTANT=NAME runs one alone.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"
#include "support/mutant.h"

typedef struct tally {
  int total, caught, by[MUTANT_CATCHES];
  int proved;      // rejected by the check
  int late;        // found by an audit after the expected one
  int also_found;  // of those, found by audits when the check is ignored
} tally;

static bool full(void) {
  const char *const text = getenv("OT_TESTS");
  return text && strcmp(text, "full") == 0;
}

static bool wanted(const mutant *m) {
  const char *const name = getenv("MUTANT");
  return !name || strcmp(name, m->name) == 0;
}

// In a sample, bugs rotate over their applicable layouts.
static bool is_turn(const mutant *m, int index, int layout) {
  int places = 0, before = 0;
  for (int i = 0; i < MUTANT_LAYOUTS; i++) {
    const bool has = (m->layouts >> i) & 1u;
    places += has;
    before += has && i < layout;
  }
  return ((m->layouts >> layout) & 1u) && (full() || before == index % places);
}

static void try(const mutant *m, mutant_layout layout, tally *t) {
  const mutant_verdict v = mutant_run(m, layout);
  const bool caught = v.by < NOT_CAUGHT;
  t->total++;
  t->caught += caught;
  t->by[v.by]++;
  t->proved += v.by == BY_CHECK;
  t->also_found += v.by == BY_CHECK && v.without_check < NOT_CAUGHT;
  print_message("  %-8s %-38s %-10s %-10s %s\n", mutant_layout_name(layout), m->name,
                mutant_catch_name(v.by), v.by == BY_CHECK ? mutant_catch_name(v.without_check) : "",
                v.text);
  const mutant_catch found = v.by == BY_CHECK ? v.without_check : v.by;
  const bool late = found > m->expected && found != BY_MONITOR;  // non-finite numbers
  if (late && !m->escapes) {
    print_message("  LATE: found by %s, not by %s\n", mutant_catch_name(found),
                  mutant_catch_name(m->expected));
    t->late++;
  }
  if (!caught) {
    print_message("  NOT CAUGHT: %s (%s): %s: %s\n", m->name, m->source, m->effect,
                  m->escapes ? m->escapes : "unexpected");
  }
}

static void ninety_five_in_a_hundred_silent_failures_are_found(void **state) {
  (void)state;
  tally all = {0}, of[MUTANT_LAYOUTS] = {0};
  for (int i = 0; i < mutant_count(); i++) {
    const mutant *const m = mutant_at(i);
    for (int layout = 0; layout < MUTANT_LAYOUTS; layout++) {
      if (!wanted(m) || !is_turn(m, i, layout)) continue;
      tally *const t = &of[layout];
      try(m, (mutant_layout)layout, t);
    }
  }
  for (int layout = 0; layout < MUTANT_LAYOUTS; layout++) {
    const tally *const t = &of[layout];
    print_message("%-8s caught %d / %d\n", mutant_layout_name((mutant_layout)layout), t->caught,
                  t->total);
    all.total += t->total;
    all.caught += t->caught;
    all.proved += t->proved;
    all.also_found += t->also_found;
    all.late += t->late;
    for (int i = 0; i < MUTANT_CATCHES; i++) all.by[i] += t->by[i];
  }
  for (int i = 0; i < NOT_CAUGHT; i++) {
    print_message("by %-10s %d\n", mutant_catch_name((mutant_catch)i), all.by[i]);
  }
  print_message("caught %d / %d; of %d that the check rejects, audits alone find %d\n", all.caught,
                all.total, all.proved, all.also_found);
  assert_int_equal(all.by[NOT_THERE], 0);
  assert_int_equal(all.late, 0);
  assert_true(all.caught * 100 >= all.total * 95 || getenv("MUTANT"));
}

static void names_are_distinguished(void **state) {
  (void)state;
  assert_true(mutant_count() >= 60);
  for (int i = 0; i < mutant_count(); i++) {
    assert_true(mutant_at(i)->layouts != 0 && mutant_at(i)->source && mutant_at(i)->effect);
    for (int j = 0; j < i; j++) assert_string_not_equal(mutant_at(i)->name, mutant_at(j)->name);
  }
}

static void the_layouts_without_a_bug_are_clean(void **state) {
  (void)state;
  for (int layout = 0; layout < MUTANT_LAYOUTS; layout++) {
    const mutant_verdict v = mutant_run(NULL, (mutant_layout)layout);
    if (v.by != NOT_CAUGHT) {
      fail_msg("%s: %s: %s", mutant_layout_name((mutant_layout)layout), mutant_catch_name(v.by),
               v.text);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(names_are_distinguished),
      cmocka_unit_test(the_layouts_without_a_bug_are_clean),
      cmocka_unit_test(ninety_five_in_a_hundred_silent_failures_are_found),
  };
  return cmocka_run_group_tests_name("silent failures", tests, NULL, NULL);
}
