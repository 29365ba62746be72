// SPDX-License-Identifier: Apache-2.0
// run: alone. A save that fails, or a process that ends, at any system call: the old or the new
// checkpoint is then complete.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_list.h"
#include "files/disk.h"
#include "host/heap.h"
#include "support/checkpoint_tensor.h"
#include "support/faults.h"
#include "support/scratch.h"

enum { ELEMENTS = 5000 };

typedef struct fixture {
  char directory[SCRATCH_BYTES];
  char checkpoints[SCRATCH_BYTES + 16];
} fixture;

static int set_up(void **state) {
  fixture *const f = calloc(1, sizeof *f);
  scratch_create(f->directory);
  snprintf(f->checkpoints, sizeof f->checkpoints, "%s/checkpoints", f->directory);
  assert_int_equal(ot_disk_make_directory(f->checkpoints), OT_OK);
  *state = f;
  return 0;
}

static int tear_down(void **state) {
  fixture *const f = *state;
  scratch_destroy(f->directory);
  free(f);
  return 0;
}

static void fill_values(float *values, int64_t seed) {
  for (int i = 0; i < ELEMENTS; i++) values[i] = (float)(seed * 10000 + i);
}

// Saves tensors generated from `seed` as the checkpoint of `step` and removes older ones.
static ot_status save(const fixture *f, int64_t step, int64_t seed) {
  static float values[ELEMENTS];
  fill_values(values, seed);
  const ot_tensor_source model = {
      .name = "w", .dtype = OT_F32, .rank = 1, .dim = {ELEMENTS}, .data = values};
  const ot_tensor_source optimizer[] = {
      {.name = "m.w", .dtype = OT_F32, .rank = 1, .dim = {ELEMENTS}, .data = values},
      {.name = "v.w", .dtype = OT_F32, .rank = 1, .dim = {ELEMENTS}, .data = values}};
  const ot_checkpoint_text text = {"config.json", "{}", 2};
  const ot_manifest manifest = {.step = step,
                                .config = "{}",
                                .mesh = {1, 1, 1, 1, 1, 1, 1, 1},
                                .next_sample = seed,
                                .tokens = 1};
  const ot_checkpoint_content content = {.num_model = 1,
                                         .model = &model,
                                         .num_optimizer = 2,
                                         .optimizer = optimizer,
                                         .num_texts = 1,
                                         .texts = &text,
                                         .manifest = &manifest,
                                         .shard_bytes = ELEMENTS * 4};
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_status status =
      ot_checkpoint_write(ot_checkpoint_path(&arena, f->checkpoints, step), &content);
  if (status == OT_OK) status = ot_checkpoint_prune(&arena, f->checkpoints, 1);
  ot_heap_release(&heap);
  return status;
}

// Fails unless `path` verifies and holds the tensors of the seed in its manifest. Returns that
// seed.
static int64_t check_whole(const char *path) {
  static float values[ELEMENTS], read[ELEMENTS];
  ot_checkpoint *checkpoint = NULL;
  if (ot_checkpoint_create(path, &checkpoint) != OT_OK) fail_msg("%s", ot_fail_message());
  const int64_t seed = ot_checkpoint_manifest(checkpoint)->next_sample;
  fill_values(values, seed);
  static const char *const names[] = {"w", "m.w", "v.w"};
  for (int i = 0; i < 3; i++) {
    assert_int_equal(checkpoint_read_tensor(checkpoint, names[i], OT_F32, ELEMENTS, read), OT_OK);
    assert_memory_equal(read, values, sizeof values);
  }
  ot_checkpoint_destroy(&checkpoint);
  return seed;
}

typedef struct outcome {
  int64_t step, seed;
} outcome;

static outcome newest(const fixture *f) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_checkpoint_found found;
  assert_int_equal(
      ot_checkpoint_newest(&arena, f->checkpoints,
                           &(ot_checkpoint_search){.hashes = OT_CHECKPOINT_HASH_ALL}, &found),
      OT_OK);
  if (found.path == NULL) fail_msg("no checkpoint is left");
  assert_null(found.note);
  const outcome result = {found.manifest->step, check_whole(found.path)};
  ot_heap_release(&heap);
  return result;
}

static void start_over(const fixture *f) {
  faults_arm(0, 0);
  assert_int_equal(ot_disk_remove(f->checkpoints), OT_OK);
  assert_int_equal(ot_disk_make_directory(f->checkpoints), OT_OK);
  assert_int_equal(save(f, 1, 1), OT_OK);
}

static int calls_of_a_save(const fixture *f, int64_t step) {
  start_over(f);
  faults_arm(0, 0);
  assert_int_equal(save(f, step, 2), OT_OK);
  const int calls = faults_count();
  assert_true(calls > 30);
  return calls;
}

static void keeps_the_old_checkpoint_if_any_call_fails(void **state) {
  const fixture *const f = *state;
  const int errors[] = {ENOSPC, EIO};
  for (int64_t step = 1; step <= 2; step++) {  // 1: replaces the old one, 2: in addition to it
    const int calls = calls_of_a_save(f, step);
    int failures = 0;
    for (int call = 1; call <= calls; call++) {
      start_over(f);
      faults_arm(call, errors[call % 2]);
      const ot_status status = save(f, step, 2);
      faults_arm(0, 0);
      const outcome found = newest(f);
      if (status == OT_OK) {  // calls whose failure is harmless: closing a file that was only read
        assert_int_equal(found.seed, 2);
        continue;
      }
      failures++;
      assert_int_equal(status, OT_ENVIRONMENT);
      assert_message_has(strerror(errors[call % 2]));
      if (found.seed == 1) assert_int_equal(found.step, 1);
      assert_int_equal(save(f, step, 3), OT_OK);
      assert_int_equal(newest(f).seed, 3);
    }
    assert_true(failures > 25);
  }
}

static void frees_the_space_of_a_failed_save(void **state) {
  const fixture *const f = *state;
  start_over(f);
  faults_arm(8, ENOSPC);
  assert_int_equal(save(f, 2, 2), OT_ENVIRONMENT);
  faults_arm(0, 0);
  assert_message_has("No space left on device");
  assert_non_null(strstr(ot_fail_hint_text(), "what was saved before is untouched"));
  assert_false(ot_disk_is_directory(scratch_path(f->checkpoints, ".step-00000002.partial")));
}

// The process ends immediately before the i-th call, for every i.
static void survives_a_crash_at_every_call(void **state) {
  const fixture *const f = *state;
  int found_old = 0, found_new = 0;
  for (int64_t step = 1; step <= 2; step++) {
    const int calls = calls_of_a_save(f, step);
    for (int call = 1; call <= calls + 1; call++) {
      start_over(f);
      const pid_t child = fork();
      if (child == 0) {
        faults_crash(call);
        save(f, step, 2);
        _exit(0);
      }
      int status = 0;
      assert_int_equal(waitpid(child, &status, 0), child);
      assert_true(WIFEXITED(status));
      const outcome found = newest(f);
      found_old += found.seed == 1;
      found_new += found.seed == 2;
      ot_heap heap = {0};
      ot_arena arena = ot_heap_arena_create(&heap);
      assert_int_equal(ot_checkpoint_clean(&arena, f->checkpoints), OT_OK);
      ot_heap_release(&heap);
      assert_int_equal(newest(f).seed, found.seed);
      assert_int_equal(save(f, step, 3), OT_OK);
      assert_int_equal(newest(f).seed, 3);
    }
  }
  assert_true(found_old > 20 && found_new > 4);
}

// ---- state after a power failure ----

// True when `path` is synced between event `from` and event `to`.
static bool is_synced(const faults_event *events, int from, int to, const char *path) {
  for (int i = from; i < to; i++)
    if (events[i].kind == FAULTS_SYNC && strcmp(events[i].path, path) == 0) return true;
  return false;
}

static int find_rename(const faults_event *events, int count) {
  for (int i = 0; i < count; i++)
    if (events[i].kind == FAULTS_RENAME && strstr(events[i].path, ".partial") != NULL) return i;
  fail_msg("no rename");
  return -1;
}

// The kernel may lose unsynced data. Required order: contents before the name that publishes them,
// names in the new directory before the directory's own name, and that name before any removal.
static void syncs_contents_names_and_the_rename_in_this_order(void **state) {
  const fixture *const f = *state;
  start_over(f);
  faults_watch();
  assert_int_equal(save(f, 2, 2), OT_OK);
  int count;
  const faults_event *const events = faults_events(&count);
  const int renamed = find_rename(events, count);
  char partial[SCRATCH_BYTES + 64];
  snprintf(partial, sizeof partial, "%s/.step-00000002.partial", f->checkpoints);
  assert_string_equal(events[renamed].path, partial);
  int written = 0, last_create = 0;
  for (int i = 0; i < renamed; i++) {
    if (events[i].kind == FAULTS_CREATE) last_create = i;
    if (events[i].kind != FAULTS_WRITE) continue;
    written++;
    if (!is_synced(events, i, renamed, events[i].path)) fail_msg("%s not synced", events[i].path);
  }
  assert_true(written >= 8);
  assert_true(is_synced(events, last_create, renamed, partial));
  int removal = renamed + 1;
  while (removal < count && events[removal].kind != FAULTS_RENAME) removal++;
  assert_true(removal < count);  // removal of the old checkpoint
  assert_true(is_synced(events, renamed, removal, f->checkpoints));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(keeps_the_old_checkpoint_if_any_call_fails, set_up,
                                      tear_down),
      cmocka_unit_test_setup_teardown(frees_the_space_of_a_failed_save, set_up, tear_down),
      cmocka_unit_test_setup_teardown(survives_a_crash_at_every_call, set_up, tear_down),
      cmocka_unit_test_setup_teardown(syncs_contents_names_and_the_rename_in_this_order, set_up,
                                      tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
