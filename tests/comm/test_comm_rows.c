// SPDX-License-Identifier: Apache-2.0
// run: alone. Valid rows of an all-to-all-v: runs outside their buffer and overlapping buffers end
// the job. The suite of back ends tests the data movement.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/comm_parts.h"

enum { ROWS = 6, SIZE = 2, RUNS = 2, COUNT = 3 };

static jmp_buf after_panic;

static void leave(const char *file, int line, const char *text) {
  (void)file;
  (void)line;
  (void)text;
  longjmp(after_panic, 1);
}

typedef struct {
  int32_t sends[SIZE][RUNS][2], receives[SIZE][RUNS][2];
  float memory[2 * ROWS * COUNT];
  ot_comm_call call;
} exchange;

// A valid one: runs that touch the end, empty runs there, rows that are sent twice.
static exchange good(void) {
  return (exchange){
      .sends = {{{0, 6}, {6, 0}}, {{2, 4}, {0, 1}}},
      .receives = {{{3, 3}, {0, 3}}, {{6, 0}, {0, 0}}},
  };
}

static bool panics(exchange *e) {
  ot_comm comm = {.groups[OT_GROUP_WORLD] = {.size = SIZE}};
  e->call.kind = OT_COMM_ALL_TO_ALL_V;
  e->call.count = COUNT;
  e->call.sends = (ot_comm_splits){RUNS, e->sends[0][0], ROWS};
  e->call.receives = (ot_comm_splits){RUNS, e->receives[0][0], ROWS};
  if (!e->call.send) e->call.send = e->memory;
  if (!e->call.receive) e->call.receive = e->memory + ROWS * COUNT;
  volatile bool panicked = true;
  ot_panic_hook_set(leave);
  if (setjmp(after_panic) == 0) {
    ot_comm_check_call(&comm, &e->call);
    panicked = false;
  }
  ot_panic_hook_set(NULL);
  return panicked;
}

static void accepts_runs_that_fill_their_buffer(void **state) {
  (void)state;
  exchange e = good();
  assert_false(panics(&e));
}

static void refuses_runs_outside_their_memory(void **state) {
  (void)state;
  static const int32_t wrong[][2] = {{-1, 2}, {-1, 0}, {0, -1}, {4, 3}, {7, 0}, {6, 1}, {0, 7}};
  for (int i = 0; i < OT_COUNT(wrong); i++) {
    for (int place = 0; place < 2 * SIZE * RUNS; place++) {
      exchange e = good();
      int32_t *const run = place < SIZE * RUNS ? e.sends[place / RUNS][place % RUNS]
                                               : e.receives[place / RUNS - SIZE][place % RUNS];
      run[0] = wrong[i][0];
      run[1] = wrong[i][1];
      if (!panics(&e)) fail_msg("run %d: [%d, %d] of %d rows", place, run[0], run[1], ROWS);
    }
  }
}

static void refuses_a_run_whose_end_overflows(void **state) {
  (void)state;
  exchange e = good();
  e.sends[1][0][0] = e.sends[1][0][1] = INT32_MAX;
  assert_true(panics(&e));
}

static void refuses_memories_that_overlap(void **state) {
  (void)state;
  for (int rows = 1 - ROWS; rows < ROWS; rows++) {
    exchange e = good();
    e.call.send = e.memory + ROWS * COUNT / 2;
    e.call.receive = e.memory + ROWS * COUNT / 2 + rows * COUNT;
    assert_true(panics(&e));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(accepts_runs_that_fill_their_buffer),
      cmocka_unit_test(refuses_runs_outside_their_memory),
      cmocka_unit_test(refuses_a_run_whose_end_overflows),
      cmocka_unit_test(refuses_memories_that_overlap),
  };
  return cmocka_run_group_tests_name("comm_rows", tests, NULL, NULL);
}
