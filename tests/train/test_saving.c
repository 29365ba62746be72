// SPDX-License-Identifier: Apache-2.0
// run: alone. Runs on four ranks whose saves fail or are slow: what ends a run, what is only said,
// and that saves while training goes on hold the same bits as others.
#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/text.h"
#include "checkpoint/checkpoint_list.h"
#include "files/config_file.h"
#include "files/disk.h"
#include "support/scratch.h"
#include "support/shards.h"
#include "train/loop.h"

enum { RANKS = 4, SAID_BYTES = 1 << 14 };

// ---- saves that fail ----

// Files that are written fail if they are of a save of one of these steps; bit i: step i.
static _Atomic unsigned failing_steps;
static _Atomic bool stuck;  // writes of saves wait

// The step whose save the open file belongs to; -1: none.
static int step_of(int file) {
  char link[64], path[512];
  int step = -1;
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  path[length > 0 ? length : 0] = '\0';
  const char *const name = strstr(path, "/.step-");
  if (name) sscanf(name, "/.step-%d", &step);
  return step;
}

ssize_t pwrite(int file, const void *buffer, size_t bytes, off_t offset) {
  ssize_t (*real)(int, const void *, size_t, off_t);
  *(void **)&real = dlsym(RTLD_NEXT, "pwrite");
  const int step = step_of(file);
  if (step < 0) return real(file, buffer, bytes, offset);
  while (stuck) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  if ((failing_steps >> step & 1) == 0) return real(file, buffer, bytes, offset);
  errno = ENOSPC;
  return -1;
}

// ---- a run ----

typedef struct fixture {
  char directory[SCRATCH_BYTES];
  ot_heap heap;
  ot_arena arena;
  ot_config config;
  char said[SAID_BYTES];
} fixture;

static void hear(void *context, const ot_loop_event *event) {
  fixture *const f = context;
  const size_t said = strlen(f->said);
  if (event->kind == OT_LOOP_STATUS && event->status->step == 7) stuck = false;
  if (event->kind == OT_LOOP_NOTE)
    snprintf(f->said + said, sizeof f->said - said, "%s\n", event->text);
}

static void set_up(fixture *f) {
  static const int32_t lengths[] = {120, 80};
  *f = (fixture){0};
  scratch_create(f->directory);
  f->arena = ot_heap_arena_create(&f->heap);
  shard_write(f->directory, "train", lengths, 2, 0);
  failing_steps = 0;
  stuck = false;
}

static void tear_down(fixture *f) {
  scratch_destroy(f->directory);
  ot_heap_release(&f->heap);
}

static ot_status run_rank(ot_comm *comm, void *context) {
  fixture *const f = context;
  ot_loop_request request = {
      .run = &f->config.run, .settings = f->config.settings, .sink = hear, .context = f};
  OT_TRY(ot_world_create(&request.run->parallel, comm, &request.world));
  const ot_status status = ot_loop_run(&request);
  ot_world_destroy(&request.world);
  return status;
}

static ot_status run(fixture *f, const char *output, const char *checkpoint) {
  const char *const sets[] = {
      "model={model_type: llama, vocab_size: 257, hidden_size: 24, intermediate_size: 40, "
      "num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, head_dim: 6, "
      "max_position_embeddings: 64}",
      ot_arena_format(&f->arena, "data.train=%s", scratch_path(f->directory, "train")),
      ot_arena_format(&f->arena, "output=%s", scratch_path(f->directory, output)),
      "data.sequence_length=16",
      "batch={global_batch_size: 4, micro_batch_size: 1}",
      "steps=8",
      "threads=1",
      "log.every=1",
      "parallel={tp: 2, zero: 3}",
      ot_arena_format(&f->arena, "checkpoint={%s}", checkpoint),
  };
  const ot_config_request request = {.sets = sets, .num_sets = OT_COUNT(sets)};
  if (ot_config_load(&request, &f->arena, &f->config) != OT_OK) fail_msg("%s", ot_fail_message());
  f->said[0] = '\0';
  return ot_comm_run_threads(RANKS, run_rank, f);
}

static const char *path_of(fixture *f, const char *output, int step, const char *name) {
  return ot_arena_format(&f->arena, "%s/%s/checkpoints/step-%08d%s%s", f->directory, output, step,
                         name[0] ? "/" : "", name);
}

static bool has_step(fixture *f, const char *output, int step) {
  return ot_disk_is_directory(path_of(f, output, step, ""));
}

static void assert_same_state(fixture *f, int step, const char *a, const char *b) {
  static const char *const names[] = {"model.safetensors", "optimizer.safetensors"};
  for (int i = 0; i < 2; i++)
    assert_files_equal(path_of(f, a, step, names[i]), path_of(f, b, step, names[i]));
}

static int count_events(fixture *f, const char *output, const char *text) {
  int64_t bytes;
  int count = 0;
  char *const log =
      scratch_read(ot_arena_format(&f->arena, "%s/%s/events.jsonl", f->directory, output), &bytes);
  log[bytes - 1] = '\0';
  for (const char *at = log; (at = strstr(at, text)) != NULL; at++) count++;
  free(log);
  return count;
}

// ---- tests ----

static void a_failed_save_is_said_and_the_next_one_made(void **state) {
  (void)state;
  fixture f;
  set_up(&f);
  assert_int_equal(run(&f, "whole", "every: 2, keep: 0"), OT_OK);
  failing_steps = 1 << 2 | 1 << 4;
  assert_int_equal(run(&f, "run", "every: 2, keep: 0"), OT_OK);
  assert_non_null(strstr(f.said, "warning: step 2 was not saved: rank "));
  assert_non_null(strstr(f.said, "No space left on device"));
  assert_non_null(strstr(f.said,
                         "what was saved before is untouched; training goes on, and ends "
                         "after 3 failed saves in a row (2 now)"));
  for (int step = 2; step <= 8; step += 2) assert_int_equal(has_step(&f, "run", step), step > 4);
  assert_false(ot_disk_is_directory(
      ot_arena_format(&f.arena, "%s/run/checkpoints/.step-00000004.partial", f.directory)));
  assert_same_state(&f, 8, "whole", "run");
  assert_int_equal(count_events(&f, "run", "\"event\":\"save_failed\""), 2);
  assert_int_equal(count_events(&f, "run", "\"event\":\"save\""), 2);
  tear_down(&f);
}

static void three_failed_saves_in_a_row_end_the_run(void **state) {
  (void)state;
  fixture f;
  set_up(&f);
  failing_steps = 1 << 2 | 1 << 3 | 1 << 4;
  assert_int_equal(run(&f, "run", "every: 1, keep: 1"), OT_ENVIRONMENT);
  assert_message_has("step 4 was not saved, nor were the saves before it: ");
  assert_message_has("No space left on device");
  assert_true(has_step(&f, "run", 1));
  failing_steps = 0;
  assert_int_equal(run(&f, "run", "every: 1, keep: 1"), OT_OK);
  assert_true(has_step(&f, "run", 8));
  tear_down(&f);
}

static void the_last_save_must_not_fail(void **state) {
  (void)state;
  fixture f;
  set_up(&f);
  failing_steps = 1 << 8;
  assert_int_equal(run(&f, "run", "every: 4"), OT_ENVIRONMENT);
  assert_message_has("step 8 was not saved: ");
  assert_true(has_step(&f, "run", 4));
  tear_down(&f);
}

static void saves_beside_the_steps_hold_the_same_bits(void **state) {
  (void)state;
  fixture f;
  set_up(&f);
  assert_int_equal(run(&f, "whole", "every: 1, keep: 0"), OT_OK);
  assert_int_equal(run(&f, "run", "every: 1, keep: 0, async: true"), OT_OK);
  int saved = 0;
  for (int step = 1; step <= 8; step++) {
    if (!has_step(&f, "run", step)) continue;
    assert_same_state(&f, step, "whole", "run");
    saved++;
  }
  assert_true(has_step(&f, "run", 8));
  assert_in_range(saved, 2, 7);  // a save takes some steps; the next one waits for it
  // It resumes as any other.
  assert_int_equal(ot_disk_remove(path_of(&f, "run", 8, "")), OT_OK);
  assert_int_equal(run(&f, "run", "every: 1, keep: 0, async: true"), OT_OK);
  assert_same_state(&f, 8, "whole", "run");
  tear_down(&f);
}

static void a_failed_save_beside_the_steps_is_said(void **state) {
  (void)state;
  fixture f;
  set_up(&f);
  failing_steps = 1 << 1;
  assert_int_equal(run(&f, "run", "every: 1, keep: 0, async: true"), OT_OK);
  assert_non_null(strstr(f.said, "warning: step 1 was not saved: rank "));
  assert_false(has_step(&f, "run", 1));
  assert_true(has_step(&f, "run", 8));
  tear_down(&f);
}

// The disk takes up the writes of the first save in step 7 only.
static void a_slow_disk_delays_the_checkpoint_and_no_step(void **state) {
  (void)state;
  fixture f;
  set_up(&f);
  stuck = true;
  assert_int_equal(run(&f, "run", "every: 1, keep: 0, async: true"), OT_OK);
  for (int step = 1; step <= 8; step++)
    assert_int_equal(has_step(&f, "run", step), step == 1 || step == 8);
  tear_down(&f);
}

// The saved steps of a run, bit i: step i.
static unsigned saved_steps(fixture *f, const char *output) {
  unsigned saved = 0;
  for (int step = 1; step <= 8; step++) saved |= (unsigned)has_step(f, output, step) << step;
  return saved;
}

// Four ranks: 50677 / 4 hours between failures. The interval is Young's, for such short saves.
static void assert_said_interval(const fixture *f) {
  const char *const line = strstr(f->said, "checkpoints every ");
  long long steps;
  double blocked_s, save_s, step_s, hours;
  assert_non_null(line);
  assert_int_equal(sscanf(line,
                          "checkpoints every %lld steps: a save blocks %lg s of %lg s, a step "
                          "takes %lg s, a failure is expected every %lg h",
                          &steps, &blocked_s, &save_s, &step_s, &hours),
                   5);
  assert_float_equal(hours, 12669, 50);
  assert_true(blocked_s > 0 && save_s >= blocked_s);
  assert_float_equal((double)steps * step_s / sqrt(2 * blocked_s * hours * 3600), 1, 0.02);
}

static void automatic_saves_follow_what_one_has_taken(void **state) {
  (void)state;
  fixture f;
  set_up(&f);
  assert_int_equal(run(&f, "whole", "every: 1, keep: 0"), OT_OK);
  assert_int_equal(run(&f, "rarely", "every: auto, keep: 0"), OT_OK);
  assert_int_equal(saved_steps(&f, "rarely"), 1 << 3 | 1 << 8);
  assert_said_interval(&f);
  assert_int_equal(run(&f, "often", "every: auto, mtbf_hours: 1e-9, keep: 0"), OT_OK);
  assert_int_equal(saved_steps(&f, "often"), 0x1f8);
  assert_non_null(strstr(f.said, "checkpoints every 1 step: a save blocks "));
  assert_null(strstr(strstr(f.said, "checkpoints every ") + 1, "checkpoints every "));
  assert_same_state(&f, 8, "whole", "rarely");
  assert_same_state(&f, 8, "whole", "often");
  // A new process measures again: its third step is 6.
  assert_int_equal(ot_disk_remove(path_of(&f, "rarely", 8, "")), OT_OK);
  assert_int_equal(run(&f, "rarely", "every: auto, keep: 0"), OT_OK);
  assert_int_equal(saved_steps(&f, "rarely"), 1 << 3 | 1 << 6 | 1 << 8);
  assert_said_interval(&f);
  assert_same_state(&f, 8, "whole", "rarely");
  tear_down(&f);
}

static void automatic_saves_while_training_goes_on_wait_for_each_other(void **state) {
  (void)state;
  fixture f;
  set_up(&f);
  stuck = true;
  assert_int_equal(run(&f, "run", "every: auto, mtbf_hours: 1e-9, keep: 0, async: true"), OT_OK);
  assert_int_equal(saved_steps(&f, "run"), 1 << 3 | 1 << 8);
  failing_steps = 1 << 3;
  assert_int_equal(run(&f, "failed", "every: auto, keep: 0"), OT_OK);
  assert_non_null(strstr(f.said, "warning: step 3 was not saved: rank "));
  assert_null(strstr(f.said, "checkpoints every "));
  assert_int_equal(saved_steps(&f, "failed"), 1 << 8);
  tear_down(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_failed_save_is_said_and_the_next_one_made),
      cmocka_unit_test(three_failed_saves_in_a_row_end_the_run),
      cmocka_unit_test(the_last_save_must_not_fail),
      cmocka_unit_test(saves_beside_the_steps_hold_the_same_bits),
      cmocka_unit_test(a_failed_save_beside_the_steps_is_said),
      cmocka_unit_test(a_slow_disk_delays_the_checkpoint_and_no_step),
      cmocka_unit_test(automatic_saves_follow_what_one_has_taken),
      cmocka_unit_test(automatic_saves_while_training_goes_on_wait_for_each_other),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
