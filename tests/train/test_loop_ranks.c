// SPDX-License-Identifier: Apache-2.0
// ctest: threads
// run: alone. Runs on many ranks of which one fails: all end with its status and message, and
// earlier checkpoints are complete. Ranks are threads, so a read can fail on one alone.
#include <dlfcn.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/text.h"
#include "checkpoint/checkpoint_list.h"
#include "files/config_file.h"
#include "support/scratch.h"
#include "support/shards.h"
#include "train/loop.h"

enum { RANKS = 4, NEVER = 1 << 30 };

// ---- reads and writes that fail ----

static _Thread_local int reads_left = NEVER;  // of this thread, until one fails
static _Thread_local bool stalls;             // delays the read instead of failing it
static _Atomic int writes_left = NEVER;       // of the process

ssize_t pread(int file, void *buffer, size_t bytes, off_t offset) {
  ssize_t (*real)(int, void *, size_t, off_t);
  *(void **)&real = dlsym(RTLD_NEXT, "pread");
  if (reads_left-- > 0) return real(file, buffer, bytes, offset);
  if (stalls) {
    stalls = false;
    nanosleep(&(struct timespec){.tv_sec = 2}, NULL);
    reads_left = NEVER;
    return real(file, buffer, bytes, offset);
  }
  errno = EIO;
  return -1;
}

ssize_t pwrite(int file, const void *buffer, size_t bytes, off_t offset) {
  ssize_t (*real)(int, const void *, size_t, off_t);
  *(void **)&real = dlsym(RTLD_NEXT, "pwrite");
  if (atomic_fetch_sub(&writes_left, 1) > 0) return real(file, buffer, bytes, offset);
  errno = ENOSPC;
  return -1;
}

// ---- a run ----

typedef struct fixture {
  char directory[SCRATCH_BYTES];
  ot_heap heap;
  ot_arena arena;
  ot_config config;
  int failing_rank;  // -1: none
  int reads;         // reads of the failing rank before the failure
  bool stalls;       // delays the read instead of failing it
  int odd_rank;      // the rank with different settings, -1: none
  ot_run odd_run;
} fixture;

static void hear(void *context, const ot_loop_event *event) { (void)context, (void)event; }

static const char *set(fixture *f, const char *key, const char *value) {
  return ot_arena_format(&f->arena, "%s=%s", key, value);
}

static void load(fixture *f) {
  const char *const sets[] = {
      "model={model_type: llama, vocab_size: 257, hidden_size: 24, intermediate_size: 40, "
      "num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, head_dim: 6, "
      "max_position_embeddings: 64}",
      set(f, "data.train", scratch_path(f->directory, "train")),
      set(f, "output", scratch_path(f->directory, "run")),
      "data.sequence_length=16",
      "batch={global_batch_size: 4, micro_batch_size: 1}",
      "steps=5",
      "threads=1",
      "parallel.tp=2",
      "parallel.zero=3",
      "checkpoint.every=2",
  };
  const ot_config_request request = {.sets = sets, .num_sets = OT_COUNT(sets)};
  if (ot_config_load(&request, &f->arena, &f->config) != OT_OK) fail_msg("%s", ot_fail_message());
  f->odd_run = f->config.run;
  f->odd_run.seed++;
}

static void set_up(fixture *f) {
  static const int32_t lengths[] = {120, 80};
  *f = (fixture){.failing_rank = -1, .odd_rank = -1};
  scratch_create(f->directory);
  f->arena = ot_heap_arena_create(&f->heap);
  shard_write(f->directory, "train", lengths, 2, 0);
  load(f);
}

static void tear_down(fixture *f) {
  scratch_destroy(f->directory);
  ot_heap_release(&f->heap);
}

static ot_status run_rank(ot_comm *comm, void *context) {
  const fixture *const f = context;
  const int rank = ot_comm_rank(comm);
  ot_loop_request request = {
      .run = rank == f->odd_rank ? &f->odd_run : &f->config.run,
      .settings = f->config.settings,
      .sink = hear,
  };
  reads_left = rank == f->failing_rank ? f->reads : NEVER;
  stalls = f->stalls;
  OT_TRY(ot_world_create(&request.run->parallel, comm, &request.world));
  const ot_status status = ot_loop_run(&request);
  ot_world_destroy(&request.world);
  reads_left = NEVER;
  stalls = false;
  return status;
}

static ot_status run(fixture *f) { return ot_comm_run_threads(RANKS, run_rank, f); }

// The step of the newest checkpoint, which must be complete; 0 if there is none.
static int64_t saved_step(fixture *f) {
  ot_checkpoint_found found;
  const char *const directory = scratch_path(f->directory, "run/checkpoints");
  assert_int_equal(
      ot_checkpoint_newest(&f->arena, directory,
                           &(ot_checkpoint_search){.hashes = OT_CHECKPOINT_HASH_ALL}, &found),
      OT_OK);
  assert_null(found.note);
  return found.path ? found.manifest->step : 0;
}

// ---- tests ----

static void a_read_that_fails_on_one_rank_ends_all(void **state) {
  (void)state;
  int failures = 0;
  for (int rank = 0; rank < RANKS; rank++) {
    for (int reads = 0; reads < 40; reads += 6) {
      fixture f;
      set_up(&f);
      f.failing_rank = rank;
      f.reads = reads;
      const ot_status status = run(&f);
      char name[32];
      snprintf(name, sizeof name, "rank %d on ", rank);
      if (status != OT_OK) {
        assert_int_equal(status, OT_ENVIRONMENT);
        assert_message_has(name);
        failures++;
      }
      const int64_t saved = saved_step(&f);
      if (status == OT_OK) assert_int_equal(saved, 5);
      tear_down(&f);
    }
  }
  assert_true(failures > 4 * RANKS);
}

static void a_rank_that_does_not_answer_is_named(void **state) {
  (void)state;
  fixture f;
  set_up(&f);
  f.failing_rank = 1;
  f.reads = 30;
  f.stalls = true;
  f.config.run.parallel.watchdog_seconds = 0.4;
  assert_int_equal(run(&f), OT_RANKS);
  assert_message_has("for rank 1");
  tear_down(&f);
}

static void a_full_disk_ends_all_ranks_and_keeps_the_last_checkpoint(void **state) {
  (void)state;
  int failures = 0, kept = 0;
  for (int writes = 0; writes < 1200; writes += 90) {
    fixture f;
    set_up(&f);
    writes_left = writes;
    const ot_status status = run(&f);
    writes_left = NEVER;
    if (status != OT_OK) {
      assert_int_equal(status, OT_ENVIRONMENT);
      assert_message_has("rank ");
      assert_message_has("No space left");
      failures++;
      kept += access(scratch_path(f.directory, "run/checkpoints"), F_OK) == 0 && saved_step(&f) > 0;
      // With free disk space again, the run continues to its end.
      assert_int_equal(run(&f), OT_OK);
    }
    assert_int_equal(saved_step(&f), 5);
    tear_down(&f);
  }
  assert_true(failures > 3 && kept > 1);
}

static void ranks_with_other_settings_do_not_begin(void **state) {
  (void)state;
  fixture f;
  set_up(&f);
  f.odd_rank = 3;
  assert_int_equal(run(&f), OT_RANKS);
  assert_message_has("rank 3");
  assert_message_has("the settings of the run differ from those of rank 0:\n");
  assert_message_has("seed: ");
  assert_message_has(" on rank 0, ");
  assert_int_not_equal(access(scratch_path(f.directory, "run"), F_OK), 0);
  tear_down(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_read_that_fails_on_one_rank_ends_all),
      cmocka_unit_test(a_rank_that_does_not_answer_is_named),
      cmocka_unit_test(a_full_disk_ends_all_ranks_and_keeps_the_last_checkpoint),
      cmocka_unit_test(ranks_with_other_settings_do_not_begin),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
