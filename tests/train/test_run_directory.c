// SPDX-License-Identifier: Apache-2.0
// run: alone. A run's directory and the list of its checkpoints: one holder at a time, the newest
// whole checkpoint is found past damaged ones, old ones go and no other.
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

#include "device/heap.h"
#include "support/scratch.h"
#include "train/checkpoint.h"
#include "train/checkpoint_list.h"
#include "train/disk.h"
#include "train/run_directory.h"

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
  const ot_manifest manifest = {.step = step, .config = "{}", .mesh = {1, 1, 1, 1, 1, 1, 1, 1}};
  const ot_checkpoint_content content = {.num_model = 1, .model = &model, .manifest = &manifest};
  assert_int_equal(ot_checkpoint_write(ot_checkpoint_path(&f->arena, directory, step), &content),
                   OT_OK);
}

static void finds_the_newest_whole_checkpoint(void **state) {
  fixture *const f = *state;
  ot_checkpoint_found found;
  assert_int_equal(ot_checkpoint_newest(&f->arena, scratch_path(f->directory, "absent"), &found),
                   OT_OK);
  assert_null(found.path);
  const int64_t steps[] = {7, 99999999, 100, 123456789};
  for (int i = 0; i < 4; i++) save(f, f->directory, steps[i]);
  assert_int_equal(ot_disk_make_directory(scratch_path(f->directory, "step-9999999999x")), OT_OK);
  assert_int_equal(ot_disk_make_directory(scratch_path(f->directory, "step-999")), OT_OK);
  assert_int_equal(ot_checkpoint_newest(&f->arena, f->directory, &found), OT_OK);
  assert_int_equal(found.step, 123456789);
  assert_int_equal(found.num_damaged, 0);
  assert_string_equal(ot_disk_base_name(found.path), "step-123456789");
  assert_int_equal(unlink(scratch_path(found.path, "model.safetensors")), 0);
  assert_int_equal(truncate(scratch_path(f->directory, "step-99999999/manifest.json"), 30), 0);
  assert_int_equal(ot_checkpoint_newest(&f->arena, f->directory, &found), OT_OK);
  assert_int_equal(found.step, 100);
  assert_string_equal(ot_disk_base_name(found.path), "step-00000100");
  assert_int_equal(found.num_damaged, 2);
  assert_non_null(strstr(found.damage, "step-123456789/model.safetensors"));
}

static void passes_over_a_checkpoint_under_the_name_of_another_step(void **state) {
  fixture *const f = *state;
  save(f, f->directory, 5);
  save(f, f->directory, 6);
  assert_int_equal(rename(scratch_path(f->directory, "step-00000006"),
                          scratch_path(f->directory, "step-00000009")),
                   0);
  ot_checkpoint_found found;
  assert_int_equal(ot_checkpoint_newest(&f->arena, f->directory, &found), OT_OK);
  assert_int_equal(found.step, 5);
  assert_non_null(strstr(found.damage, "its manifest is of step 6"));
}

static void lets_old_checkpoints_go_and_no_others(void **state) {
  fixture *const f = *state;
  for (int64_t step = 1; step <= 6; step++) save(f, f->directory, step);
  assert_int_equal(ot_checkpoint_prune(&f->arena, f->directory, 0), OT_OK);
  assert_true(ot_disk_is_directory(scratch_path(f->directory, "step-00000001")));
  // A damaged one is not counted among those kept.
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

static void resolves_what_a_user_calls_a_checkpoint(void **state) {
  fixture *const f = *state;
  char *resolved = NULL;
  assert_int_equal(
      ot_checkpoint_resolve(&f->arena, scratch_path(f->directory, "absent"), &resolved),
      OT_ENVIRONMENT);
  assert_message_has("there is no checkpoint, run or HF directory of this name");
  const char *const checkpoints = scratch_path(f->run, "checkpoints");
  assert_int_equal(ot_disk_make_directory(checkpoints), OT_OK);
  assert_int_equal(ot_checkpoint_resolve(&f->arena, f->run, &resolved), OT_ENVIRONMENT);
  assert_message_has("the run has no checkpoint yet");
  save(f, checkpoints, 3);
  assert_int_equal(ot_checkpoint_resolve(&f->arena, f->run, &resolved), OT_OK);
  assert_string_equal(ot_disk_base_name(resolved), "step-00000003");
  char *again = NULL;
  assert_int_equal(ot_checkpoint_resolve(&f->arena, resolved, &again), OT_OK);
  assert_string_equal(again, resolved);
  assert_int_equal(unlink(scratch_path(resolved, "model.safetensors")), 0);
  assert_int_equal(ot_checkpoint_resolve(&f->arena, f->run, &resolved), OT_ENVIRONMENT);
  assert_message_has("the run has no whole checkpoint: cannot read");
}

static void tells_an_empty_directory_from_a_run(void **state) {
  fixture *const f = *state;
  ot_run_directory *run = NULL;
  for (int i = 0; i < 2; i++) {  // opening alone does not make it a run
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

static void admits_one_holder_and_names_it(void **state) {
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

// The lock goes with the process, however that ends.
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
      cmocka_unit_test_setup_teardown(passes_over_a_checkpoint_under_the_name_of_another_step,
                                      set_up, tear_down),
      cmocka_unit_test_setup_teardown(lets_old_checkpoints_go_and_no_others, set_up, tear_down),
      cmocka_unit_test_setup_teardown(clears_what_an_interrupted_save_left, set_up, tear_down),
      cmocka_unit_test_setup_teardown(resolves_what_a_user_calls_a_checkpoint, set_up, tear_down),
      cmocka_unit_test_setup_teardown(tells_an_empty_directory_from_a_run, set_up, tear_down),
      cmocka_unit_test_setup_teardown(admits_one_holder_and_names_it, set_up, tear_down),
      cmocka_unit_test_setup_teardown(frees_the_lock_of_a_killed_process, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
