// SPDX-License-Identifier: Apache-2.0
// run: alone. A run's directory and the list of its checkpoints: one owner at a time, the newest
// complete checkpoint is found despite damaged ones, only old ones are removed.
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
#include "record/run_directory.h"
#include "support/faults.h"
#include "support/scratch.h"

typedef struct fixture {
  char directory[SCRATCH_BYTES];
  char run[SCRATCH_BYTES + 16];
  ot_heap heap;
  ot_arena arena;
} fixture;

static int set_up(void **state) {
  fixture *const f = calloc(1, sizeof *f);
  scratch_create(f->directory);
  snprintf(f->run, sizeof f->run, "%s/runs/a", f->directory);
  f->arena = ot_heap_arena_create(&f->heap);
  *state = f;
  return 0;
}

static int tear_down(void **state) {
  fixture *const f = *state;
  scratch_destroy(f->directory);
  ot_heap_release(&f->heap);
  free(f);
  return 0;
}

static void save(fixture *f, const char *directory, int64_t step) {
  const float value = (float)step;
  const ot_tensor_source model = {
      .name = "w", .dtype = OT_F32, .rank = 1, .dim = {1}, .data = &value};
  const ot_tensor_source moment = {
      .name = "m.w", .dtype = OT_F32, .rank = 1, .dim = {1}, .data = &value};
  const ot_manifest manifest = {.step = step, .config = "{}", .mesh = {1, 1, 1, 1, 1, 1, 1, 1}};
  const ot_checkpoint_content content = {.num_model = 1,
                                         .model = &model,
                                         .num_optimizer = 1,
                                         .optimizer = &moment,
                                         .manifest = &manifest};
  assert_int_equal(ot_checkpoint_write(ot_checkpoint_path(&f->arena, directory, step), &content),
                   OT_OK);
}

static ot_status newest(fixture *f, const char *directory, ot_checkpoint_found *found) {
  return ot_checkpoint_newest(&f->arena, directory,
                              &(ot_checkpoint_search){.hashes = OT_CHECKPOINT_HASH_ALL}, found);
}

static void finds_the_newest_whole_checkpoint(void **state) {
  fixture *const f = *state;
  ot_checkpoint_found found;
  assert_int_equal(newest(f, scratch_path(f->directory, "absent"), &found), OT_OK);
  assert_null(found.path);
  const int64_t steps[] = {7, 99999999, 100, 123456789};
  for (int i = 0; i < 4; i++) save(f, f->directory, steps[i]);
  assert_int_equal(ot_disk_make_directory(scratch_path(f->directory, "step-9999999999x")), OT_OK);
  assert_int_equal(ot_disk_make_directory(scratch_path(f->directory, "step-999")), OT_OK);
  assert_int_equal(newest(f, f->directory, &found), OT_OK);
  assert_int_equal(found.manifest->step, 123456789);
  assert_null(found.note);
  assert_string_equal(ot_disk_base_name(found.path), "step-123456789");
  assert_int_equal(unlink(scratch_path(found.path, "model.safetensors")), 0);
  assert_int_equal(truncate(scratch_path(f->directory, "step-99999999/manifest.json"), 30), 0);
  assert_int_equal(newest(f, f->directory, &found), OT_OK);
  assert_int_equal(found.manifest->step, 100);
  assert_string_equal(ot_disk_base_name(found.path), "step-00000100");
  assert_non_null(strstr(found.note, "skipping 2 damaged checkpoints:"));
  assert_non_null(strstr(found.note, "step-123456789/model.safetensors is missing"));
  assert_non_null(strstr(found.note, "step-99999999/manifest.json:"));
}

static void skips_a_checkpoint_named_after_another_step(void **state) {
  fixture *const f = *state;
  save(f, f->directory, 5);
  save(f, f->directory, 6);
  assert_int_equal(rename(scratch_path(f->directory, "step-00000006"),
                          scratch_path(f->directory, "step-00000009")),
                   0);
  ot_checkpoint_found found;
  assert_int_equal(newest(f, f->directory, &found), OT_OK);
  assert_int_equal(found.manifest->step, 5);
  assert_non_null(strstr(found.note, "step-00000009/manifest.json states step 6"));
}

static void removes_only_old_checkpoints(void **state) {
  fixture *const f = *state;
  for (int64_t step = 1; step <= 6; step++) save(f, f->directory, step);
  assert_int_equal(ot_checkpoint_prune(&f->arena, f->directory, 0), OT_OK);
  assert_true(ot_disk_is_directory(scratch_path(f->directory, "step-00000001")));
  // A damaged one does not count towards those kept.
  assert_int_equal(unlink(scratch_path(f->directory, "step-00000005/model.safetensors")), 0);
  assert_int_equal(ot_disk_make_directory(scratch_path(f->directory, "notes")), OT_OK);
  assert_int_equal(ot_checkpoint_prune(&f->arena, f->directory, 2), OT_OK);
  for (int step = 1; step <= 6; step++) {
    char name[32];
    snprintf(name, sizeof name, "step-%08d", step);
    assert_int_equal(ot_disk_is_directory(scratch_path(f->directory, name)), step >= 4);
  }
  assert_true(ot_disk_is_directory(scratch_path(f->directory, "notes")));
}

static void clears_what_an_interrupted_save_left(void **state) {
  fixture *const f = *state;
  static const char *const left[] = {".step-00000001.partial", ".step-00000002.deleting"};
  for (int i = 0; i < 2; i++) {
    assert_int_equal(ot_disk_make_directory(scratch_path(f->directory, left[i])), OT_OK);
    char inner[64];
    snprintf(inner, sizeof inner, "%s/x", left[i]);
    scratch_write(scratch_path(f->directory, inner), "x", 1);
  }
  scratch_write(scratch_path(f->directory, ".step-notes"), "x", 1);
  assert_int_equal(ot_checkpoint_clean(&f->arena, f->directory), OT_OK);
  for (int i = 0; i < 2; i++)
    assert_false(ot_disk_is_directory(scratch_path(f->directory, left[i])));
  assert_true(ot_disk_is_file(scratch_path(f->directory, ".step-notes")));
}

static ot_status find(fixture *f, const char *path, ot_checkpoint_found *found) {
  return ot_checkpoint_find(&f->arena, path,
                            &(ot_checkpoint_search){.hashes = OT_CHECKPOINT_HASH_ALL}, found);
}

static void finds_what_a_user_calls_a_checkpoint(void **state) {
  fixture *const f = *state;
  ot_checkpoint_found found, again;
  assert_int_equal(find(f, scratch_path(f->directory, "absent"), &found), OT_ENVIRONMENT);
  assert_message_has("there is no checkpoint, run or HF directory of this name");
  const char *const checkpoints = scratch_path(f->run, "checkpoints");
  assert_int_equal(ot_disk_make_directory(checkpoints), OT_OK);
  assert_int_equal(find(f, f->run, &found), OT_ENVIRONMENT);
  assert_message_has("the run has no checkpoint yet");
  save(f, checkpoints, 3);
  assert_int_equal(find(f, f->run, &found), OT_OK);
  assert_string_equal(ot_disk_base_name(found.path), "step-00000003");
  assert_int_equal(find(f, found.path, &again), OT_OK);
  assert_string_equal(again.path, found.path);
  assert_int_equal(again.manifest->step, 3);
  assert_int_equal(find(f, fixture_path("train/sharded"), &again), OT_OK);
  assert_null(again.manifest);
  assert_int_equal(unlink(scratch_path(found.path, "model.safetensors")), 0);
  assert_int_equal(find(f, f->run, &again), OT_ENVIRONMENT);
  assert_message_has("the only checkpoint of ");
  assert_message_has("step-00000003/model.safetensors is missing");
  assert_int_equal(find(f, found.path, &again), OT_ENVIRONMENT);
  assert_message_has("checkpoint is damaged: ");
}

// Changes one bit and no file size.
static void flip(const char *directory, int64_t step, const char *name) {
  char path[OT_PATH_BYTES];
  snprintf(path, sizeof path, "%s/step-%08lld/%s", directory, (long long)step, name);
  int64_t bytes;
  char *const data = scratch_read(path, &bytes);
  data[bytes - 1] ^= 1;
  scratch_write(path, data, bytes);
  free(data);
}

static void falls_back_from_damage_of_unchanged_size(void **state) {
  fixture *const f = *state;
  ot_checkpoint_found found;
  for (int64_t step = 1; step <= 3; step++) save(f, f->directory, step);
  flip(f->directory, 3, "model.safetensors");
  flip(f->directory, 2, "optimizer.safetensors");
  assert_int_equal(newest(f, f->directory, &found), OT_OK);
  assert_int_equal(found.manifest->step, 1);
  assert_non_null(strstr(found.note, "step-00000003/model.safetensors differs from its manifest"));
}

static void names_each_checkpoint_when_none_is_whole(void **state) {
  fixture *const f = *state;
  ot_checkpoint_found found;
  for (int64_t step = 1; step <= 12; step++) {
    save(f, f->directory, step);
    flip(f->directory, step, "model.safetensors");
  }
  assert_int_equal(newest(f, f->directory, &found), OT_ENVIRONMENT);
  assert_message_has("none of the checkpoints of ");
  assert_message_has("step-00000012/model.safetensors differs from its manifest");
  assert_message_has("step-00000005/model.safetensors differs from its manifest");
  assert_message_has("and 4 more");
  assert_non_null(strstr(ot_fail_hint_text(), "another `output`"));
}

// Each call to open or close fails in turn: the older checkpoint is never read instead.
static void an_unreadable_file_is_not_damage(void **state) {
  fixture *const f = *state;
  ot_checkpoint_found found;
  int failures = 0;
  for (int64_t step = 1; step <= 2; step++) save(f, f->directory, step);
  for (int call = 1, calls = 1; call <= calls; call++) {
    faults_arm(call, EIO);
    const ot_status status = newest(f, f->directory, &found);
    calls = faults_count() < call ? 0 : call + 1;
    faults_arm(0, 0);
    if (status == OT_OK) {
      assert_int_equal(found.manifest->step, 2);
      continue;
    }
    failures++;
    assert_int_equal(status, OT_ENVIRONMENT);
    assert_message_has("Input/output error");
    assert_non_null(strstr(ot_fail_hint_text(), "step-00000002 elsewhere"));
  }
  assert_true(failures >= 2);
}

static void distinguishes_an_empty_directory_from_a_run(void **state) {
  fixture *const f = *state;
  ot_run_directory *run = NULL;
  for (int i = 0; i < 2; i++) {  // opening alone does not create a run
    assert_int_equal(ot_run_directory_create(f->run, &run), OT_OK);
    assert_int_equal(ot_run_directory_found(run), OT_RUN_EMPTY);
    ot_run_directory_destroy(&run);
  }
  scratch_write(scratch_path(f->run, "letter.txt"), "x", 1);
  assert_int_equal(ot_run_directory_create(f->run, &run), OT_OK);
  assert_int_equal(ot_run_directory_found(run), OT_RUN_FOREIGN);
  save(f, ot_run_directory_checkpoints(run), 1);
  ot_run_directory_destroy(&run);
  assert_int_equal(ot_run_directory_create(f->run, &run), OT_OK);
  assert_int_equal(ot_run_directory_found(run), OT_RUN_PRESENT);
  ot_run_directory_destroy(&run);
}

// A stop during the first write of the settings, or of the mark of the first save.
static void clears_what_an_interrupted_write_left(void **state) {
  fixture *const f = *state;
  ot_run_directory *run = NULL;
  assert_int_equal(ot_disk_make_directory(f->run), OT_OK);
  scratch_write(scratch_path(f->run, "config.yaml.partial"), "x", 1);
  scratch_write(scratch_path(f->run, ".saved.partial"), "x", 1);
  assert_int_equal(ot_run_directory_create(f->run, &run), OT_OK);
  assert_int_equal(ot_run_directory_found(run), OT_RUN_EMPTY);
  assert_false(ot_disk_is_file(scratch_path(f->run, "config.yaml.partial")));
  ot_run_directory_destroy(&run);
}

static void sets_aside_what_is_newer(void **state) {
  fixture *const f = *state;
  ot_run_directory *run = NULL;
  const char *note = NULL;
  assert_int_equal(ot_run_directory_create(f->run, &run), OT_OK);
  const char *const checkpoints = ot_run_directory_checkpoints(run);
  static const char lines[] =
      "{\"step\":1,\"loss\":3}\n{\"step\":2,\"loss\":2}\n{\"step\":3,\"loss\":1}\n{\"ste";
  for (int64_t step = 1; step <= 3; step++) save(f, checkpoints, step);
  scratch_write(ot_run_directory_metrics(run), lines, sizeof lines - 1);
  assert_int_equal(ot_run_directory_rewind(run, 3, &f->arena, &note), OT_OK);
  assert_null(note);
  for (int i = 1; i <= 2; i++) {  // a second time, to another directory
    if (i == 2) save(f, checkpoints, 3);
    assert_int_equal(ot_run_directory_rewind(run, 1, &f->arena, &note), OT_OK);
    assert_non_null(strstr(note, i == 1 ? "aside-1" : "aside-2"));
    const char *const aside = scratch_path(checkpoints, i == 1 ? "aside-1" : "aside-2");
    assert_int_equal(ot_disk_is_directory(scratch_path(aside, "step-00000002")), i == 1);
    assert_true(ot_disk_is_directory(scratch_path(aside, "step-00000003")));
    int64_t bytes;
    char *const copy = scratch_read(scratch_path(aside, "metrics.jsonl"), &bytes);
    assert_int_equal(bytes, 40);
    assert_memory_equal(copy, lines + 20, 40);
    free(copy);
  }
  assert_true(ot_disk_is_directory(scratch_path(checkpoints, "step-00000001")));
  assert_false(ot_disk_is_directory(scratch_path(checkpoints, "step-00000003")));
  ot_run_directory_destroy(&run);
}

static void allows_one_owner_and_names_it(void **state) {
  fixture *const f = *state;
  ot_run_directory *run = NULL, *second = NULL;
  assert_int_equal(ot_run_directory_create(f->run, &run), OT_OK);
  assert_int_equal(ot_run_directory_create(f->run, &second), OT_ENVIRONMENT);
  assert_null(second);
  char holder[64];
  snprintf(holder, sizeof holder, "in use by process %d on ", (int)getpid());
  assert_message_has(holder);
  assert_message_has(f->run);
  ot_run_directory_destroy(&run);
  assert_int_equal(ot_run_directory_create(f->run, &second), OT_OK);
  ot_run_directory_destroy(&second);
}

// The lock ends with the process, however the process ends.
static void frees_the_lock_of_a_killed_process(void **state) {
  fixture *const f = *state;
  const pid_t child = fork();
  if (child == 0) {
    ot_run_directory *run = NULL;
    _exit(ot_run_directory_create(f->run, &run) == OT_OK ? 0 : 1);
  }
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(WEXITSTATUS(status), 0);
  ot_run_directory *run = NULL;
  assert_int_equal(ot_run_directory_create(f->run, &run), OT_OK);
  ot_run_directory_destroy(&run);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(finds_the_newest_whole_checkpoint, set_up, tear_down),
      cmocka_unit_test_setup_teardown(skips_a_checkpoint_named_after_another_step, set_up,
                                      tear_down),
      cmocka_unit_test_setup_teardown(removes_only_old_checkpoints, set_up, tear_down),
      cmocka_unit_test_setup_teardown(clears_what_an_interrupted_save_left, set_up, tear_down),
      cmocka_unit_test_setup_teardown(finds_what_a_user_calls_a_checkpoint, set_up, tear_down),
      cmocka_unit_test_setup_teardown(falls_back_from_damage_of_unchanged_size, set_up, tear_down),
      cmocka_unit_test_setup_teardown(names_each_checkpoint_when_none_is_whole, set_up, tear_down),
      cmocka_unit_test_setup_teardown(an_unreadable_file_is_not_damage, set_up, tear_down),
      cmocka_unit_test_setup_teardown(distinguishes_an_empty_directory_from_a_run, set_up,
                                      tear_down),
      cmocka_unit_test_setup_teardown(clears_what_an_interrupted_write_left, set_up, tear_down),
      cmocka_unit_test_setup_teardown(sets_aside_what_is_newer, set_up, tear_down),
      cmocka_unit_test_setup_teardown(allows_one_owner_and_names_it, set_up, tear_down),
      cmocka_unit_test_setup_teardown(frees_the_lock_of_a_killed_process, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
