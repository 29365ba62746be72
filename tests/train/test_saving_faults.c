// SPDX-License-Identifier: Apache-2.0
// run: alone. Runs of four ranks that end, or whose calls fail, at some point of a save, and runs
// whose checkpoints are damaged: what is left is never a mixture, and the run ends with the bits of
// an undisturbed one. Each run is a process of its own. OT_TESTS=full: more points.
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

#include "base/text.h"
#include "checkpoint/checkpoint_list.h"
#include "files/config_file.h"
#include "files/disk.h"
#include "support/faults.h"
#include "support/rank_case.h"
#include "support/scratch.h"
#include "support/shards.h"
#include "train/loop.h"

enum { RANKS = 4, STEPS = 4, EVERY = 2 };

typedef struct fixture {
  char directory[SCRATCH_BYTES];
  ot_heap heap;
  ot_arena arena;
  ot_config config;
  const char *said;  // file of the notes of the last run
} fixture;

static void hear(void *context, const ot_loop_event *event) {
  const fixture *const f = context;
  if (event->kind != OT_LOOP_NOTE) return;
  FILE *const file = fopen(f->said, "a");
  fprintf(file, "%s\n", event->text);
  fclose(file);
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

static void load(fixture *f, const char *output) {
  const char *const sets[] = {
      "model={model_type: llama, vocab_size: 257, hidden_size: 16, intermediate_size: 24, "
      "num_hidden_layers: 1, num_attention_heads: 4, num_key_value_heads: 2, head_dim: 4, "
      "max_position_embeddings: 64}",
      ot_arena_format(&f->arena, "data.train=%s", scratch_path(f->directory, "train")),
      ot_arena_format(&f->arena, "output=%s/%s", f->directory, output),
      "data.sequence_length=16",
      "batch={global_batch_size: 4, micro_batch_size: 1}",
      ot_arena_format(&f->arena, "steps=%d", STEPS),
      "threads=1",
      "log.tensorboard=false",
      "parallel={pp: 1, zero: 2}",
      ot_arena_format(&f->arena, "checkpoint={every: %d, keep: 0}", EVERY),
  };
  const ot_config_request request = {.sets = sets, .num_sets = OT_COUNT(sets)};
  if (ot_config_load(&request, &f->arena, &f->config) != OT_OK) fail_msg("%s", ot_fail_message());
}

// Trains in a process in which call `call` fails with `error`; 0: the process ends there; call 0:
// nothing happens. Returns its status, and in *calls how many calls it made.
static ot_status train(fixture *f, const char *output, int call, int error, int *calls) {
  int ends[2], status = 0, made = 0;
  load(f, output);
  (void)unlink(f->said);
  assert_int_equal(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    faults_arm(call, error);
    const ot_status result = ot_comm_run_threads(RANKS, run_rank, f);
    const int count = faults_count();
    faults_arm(0, 0);
    if (write(ends[1], &count, sizeof count) != sizeof count) _exit(99);
    _exit((int)result);
  }
  close(ends[1]);
  if (read(ends[0], &made, sizeof made) != sizeof made) made = 0;
  close(ends[0]);
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  if (calls) *calls = made;
  return (ot_status)WEXITSTATUS(status);
}

static void set_up(fixture *f) {
  static const int32_t lengths[] = {150, 100};
  *f = (fixture){0};
  scratch_create(f->directory);
  f->arena = ot_heap_arena_create(&f->heap);
  f->said = ot_arena_format(&f->arena, "%s/said", f->directory);
  shard_write(f->directory, "train", lengths, 2, 0);
}

static void tear_down(fixture *f) {
  scratch_destroy(f->directory);
  ot_heap_release(&f->heap);
}

static const char *file_of(fixture *f, const char *output, int step, const char *name) {
  return ot_arena_format(&f->arena, "%s/%s/checkpoints/step-%08d/%s", f->directory, output, step,
                         name);
}

static const char *const tensor_files[] = {"model.safetensors", "optimizer.safetensors"};

static void check_step(fixture *f, const char *output, int step) {
  for (int i = 0; i < 2; i++)
    assert_files_equal(file_of(f, output, step, tensor_files[i]),
                       file_of(f, "whole", step, tensor_files[i]));
}

// What is left is whole and is the state of its step.
static void check_left(fixture *f, const char *output) {
  static const ot_checkpoint_search all = {.hashes = OT_CHECKPOINT_HASH_ALL};
  ot_checkpoint_found found;
  const char *const directory =
      ot_arena_format(&f->arena, "%s/%s/checkpoints", f->directory, output);
  if (ot_checkpoint_newest(&f->arena, directory, &all, &found) != OT_OK)
    fail_msg("%s", ot_fail_message());
  if (found.note) fail_msg("%s", found.note);
  if (found.path) check_step(f, output, (int)found.manifest->step);
}

// Disturbs runs at `points` calls, evenly spread.
static void disturb(int error, int points) {
  fixture f;
  int calls = 0, ended = 0;
  set_up(&f);
  assert_int_equal(train(&f, "whole", 0, 0, &calls), OT_OK);
  assert_true(calls > 60);
  for (int i = 0; i < points; i++) {
    const char *const output = ot_arena_format(&f.arena, "run-%d", i);
    const int call = 1 + (int)((int64_t)i * calls / points);
    int made = 0;
    const ot_status status = train(&f, output, call, error, &made);
    const bool stopped = error == 0 ? made == 0 : status == OT_ENVIRONMENT;
    if (!stopped && status != OT_OK) fail_msg("call %d: status %d", call, (int)status);
    ended += stopped;
    check_left(&f, output);
    if (stopped) assert_int_equal(train(&f, output, 0, 0, NULL), OT_OK);
    check_step(&f, output, STEPS);
    assert_int_equal(ot_disk_remove(ot_arena_format(&f.arena, "%s/%s", f.directory, output)),
                     OT_OK);
  }
  if (error == 0) assert_true(ended >= points - 1);
  tear_down(&f);
}

static int some(int few, int many) { return rank_full() ? many : few; }

static void a_process_that_ends_in_a_save_leaves_one_state_or_the_other(void **state) {
  (void)state;
  disturb(0, some(8, 400));
}

static void a_call_that_fails_spoils_no_checkpoint(void **state) {
  (void)state;
  disturb(ENOSPC, some(4, 200));
  disturb(EIO, some(3, 200));
}

static void a_signal_in_a_call_spoils_no_checkpoint(void **state) {
  (void)state;
  disturb(EINTR, some(3, 200));
}

// ---- damage ----

static uint32_t drawn = 1;

static int64_t draw(int64_t below) {
  drawn = drawn * 1664525u + 1013904223u;
  return (int64_t)((uint64_t)drawn * (uint64_t)below >> 32);
}

static void damage(fixture *f, const char *path, const char *older, int kind) {
  int64_t bytes = 0;
  if (kind == 3) {  // the same file of another step: same size, same format
    path = ot_arena_format(&f->arena, "%s", path);
    char *const other = scratch_read(older, &bytes);
    scratch_write(path, other, bytes);
    free(other);
    return;
  }
  char *const data = scratch_read(path, &bytes);
  const int64_t at = draw(bytes);
  if (kind == 0) data[at] = (char)(data[at] ^ 1 << draw(8));
  if (kind == 1) memset(data + at, 0xa5, (size_t)(bytes - at < 512 ? bytes - at : 512));
  scratch_write(path, data, kind == 2 ? at : bytes);
  free(data);
}

static void damage_leads_to_the_checkpoint_before(void **state) {
  (void)state;
  fixture f;
  set_up(&f);
  assert_int_equal(train(&f, "whole", 0, 0, NULL), OT_OK);
  for (int i = 0; i < some(8, 300); i++) {
    const char *const name = tensor_files[i % 2];
    const char *const output = ot_arena_format(&f.arena, "run-%d", i);
    assert_int_equal(train(&f, output, 0, 0, NULL), OT_OK);
    damage(&f, file_of(&f, output, STEPS, name), file_of(&f, output, EVERY, name), i / 2 % 4);
    assert_int_equal(train(&f, output, 0, 0, NULL), OT_OK);
    int64_t bytes;
    char *const said = scratch_read(f.said, &bytes);
    said[bytes - 1] = '\0';
    assert_non_null(strstr(said, "skipping 1 damaged checkpoint:"));
    assert_non_null(strstr(said, name));
    assert_non_null(strstr(said, "2 steps are lost"));
    free(said);
    check_step(&f, output, STEPS);
    assert_int_equal(ot_disk_remove(ot_arena_format(&f.arena, "%s/%s", f.directory, output)),
                     OT_OK);
  }
  tear_down(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_process_that_ends_in_a_save_leaves_one_state_or_the_other),
      cmocka_unit_test(a_call_that_fails_spoils_no_checkpoint),
      cmocka_unit_test(a_signal_in_a_call_spoils_no_checkpoint),
      cmocka_unit_test(damage_leads_to_the_checkpoint_before),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
