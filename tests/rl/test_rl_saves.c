// SPDX-License-Identifier: Apache-2.0
// run: any machine. Saves that fail in a run that learns from rewards.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "checkpoint/checkpoint_list.h"
#include "files/disk.h"
#include "support/reward_run.h"

// A file stands in the place of the folder of checkpoints from one update to another.
typedef struct broken_disk {
  int64_t from, to, warnings;
  ot_status status;
  const char *folder, *aside;
} broken_disk;

static void break_disk(void *context, const ot_rl_event *event) {
  broken_disk *const d = context;
  if (event->kind == OT_RL_EVENT_NOTE) d->warnings += strstr(event->text, "was not saved: ") != 0;
  if (event->kind != OT_RL_EVENT_UPDATE) return;
  if (event->version == d->from) {
    assert_int_equal(rename(d->folder, d->aside), 0);
    scratch_write(d->folder, "", 0);
  } else if (event->version == d->to) {
    assert_int_equal(remove(d->folder) + rename(d->aside, d->folder), 0);
  }
}

// After updates 3 and 4; from 3 on, which 3 to 5 have in a row; after the last.
static void failed_saves_end_a_run_only_in_a_row(void **state) {
  (void)state;
  broken_disk cases[] = {{.from = 3, .to = 5},
                         {.from = 3, .to = 99, .status = OT_ENVIRONMENT},
                         {.from = STEPS, .to = 99, .status = OT_ENVIRONMENT}};
  for (int k = 0; k < OT_COUNT(cases); k++) {
    broken_disk *const d = &cases[k];
    ot_run run = run_of(ot_arena_format(&arena, "broken%d", k), OT_F32);
    run.checkpoint.every = 1;
    d->folder = ot_arena_format(&arena, "%s/checkpoints", run.output);
    d->aside = ot_arena_format(&arena, "%s/aside", run.output);
    ot_rl_summary summary;
    const ot_rl_request request = {.run = &run,
                                   .settings = ot_node_create(&arena, OT_NODE_MAP),
                                   .sink = break_disk,
                                   .context = d};
    assert_int_equal(ot_rl_run(&request, &arena, &summary), d->status);
    assert_int_equal(d->warnings, d->from == 3 ? 2 : 0);
  }
  for (int step = 1; step <= STEPS; step++) {
    const char *const path = ot_checkpoint_path(&arena, cases[0].folder, step);
    assert_int_equal(ot_disk_is_directory(path), step != 3 && step != 4);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(
      failed_saves_end_a_run_only_in_a_row, open_directory, close_directory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
