// SPDX-License-Identifier: Apache-2.0
// run: alone. A power failure at any moment of a run of four ranks, with any loss of what was not
// synced: the newest checkpoint is whole, has the bytes of its step, and is not older than the last
// save that the run has told. OT_TESTS=full: 100,000 states.
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/checkpoint_list.h"
#include "files/config_file.h"
#include "files/disk.h"
#include "support/crash_states.h"
#include "support/faults.h"
#include "support/rank_case.h"
#include "support/scratch.h"
#include "support/shards.h"
#include "train/loop.h"

enum { RANKS = 4, STEPS = 8, SAVES = STEPS / 2 };

typedef struct fixture {
  char directory[SCRATCH_BYTES];
  ot_heap heap;
  ot_arena arena;
  ot_config config;
} fixture;

static void hear(void *context, const ot_loop_event *event) {
  (void)context;
  (void)event;
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

static void train(fixture *f, const char *output, const char *checkpoint) {
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
      ot_arena_format(&f->arena, "checkpoint={%s}", checkpoint),
  };
  const ot_config_request request = {.sets = sets, .num_sets = OT_COUNT(sets)};
  if (ot_config_load(&request, &f->arena, &f->config) != OT_OK) fail_msg("%s", ot_fail_message());
  if (ot_comm_run_threads(RANKS, run_rank, f) != OT_OK) fail_msg("%s", ot_fail_message());
}

static int set_up(void **state) {
  static const int32_t lengths[] = {150, 100};
  fixture *const f = calloc(1, sizeof *f);
  scratch_create(f->directory);
  f->arena = ot_heap_arena_create(&f->heap);
  shard_write(f->directory, "train", lengths, 2, 0);
  train(f, "whole", "every: 1, keep: 0");  // a late save may be that of any step
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

// ---- what a state must hold ----

// The saves that the run told of, and how many events the record then had: when the line in
// events.jsonl was synced, as each line is.
typedef struct saves_told {
  int count, at[SAVES], step[SAVES];
} saves_told;

static saves_told find_told(const fixture *f, const faults_event *events, int count) {
  char path[SCRATCH_BYTES + 32];
  snprintf(path, sizeof path, "%s/run/events.jsonl", f->directory);
  saves_told result = {0};
  int64_t bytes;
  char *const data = scratch_read(path, &bytes), *const text = strndup(data, (size_t)bytes);
  const char *line = text;
  for (int i = 0; i < count; i++) {
    if (events[i].kind != FAULTS_SYNC || strcmp(events[i].path, path) != 0) continue;
    const char *const end = memchr(line, '\n', (size_t)(text + bytes - line));
    const char *const save = strstr(line, "\"event\":\"save\"");
    if (save != NULL && save < end) {
      assert_true(result.count < SAVES);
      assert_non_null(strstr(save, "\"step\":"));
      result.step[result.count] = atoi(strstr(save, "\"step\":") + strlen("\"step\":"));
      result.at[result.count++] = i + 1;
    }
    line = end + 1;
  }
  free(text);
  free(data);
  assert_true(result.count >= SAVES / 2);  // a save may be due before the last one has ended
  return result;
}

static bool has_bytes_of_its_step(const fixture *f, const char *checkpoint, int step) {
  static const char *const files[] = {"model.safetensors", "optimizer.safetensors"};
  bool equal = true;
  for (int i = 0; i < 2; i++) {
    char path[2 * SCRATCH_BYTES];
    int64_t bytes, whole_bytes;
    snprintf(path, sizeof path, "%s/%s", checkpoint, files[i]);
    char *const data = scratch_read(path, &bytes);
    snprintf(path, sizeof path, "%s/whole/checkpoints/step-%08d/%s", f->directory, step, files[i]);
    char *const whole = scratch_read(path, &whole_bytes);
    equal = equal && bytes == whole_bytes && memcmp(data, whole, (size_t)bytes) == 0;
    free(data);
    free(whole);
  }
  return equal;
}

// The step of the newest checkpoint, 0 without one; -1 if one is damaged or has other bytes.
static int newest(const fixture *f, ot_arena *arena, const char *directory) {
  static const ot_checkpoint_search all = {.hashes = OT_CHECKPOINT_HASH_ALL};
  ot_checkpoint_found found;
  if (ot_checkpoint_newest(arena, directory, &all, &found) != OT_OK || found.note) return -1;
  if (found.path == NULL) return 0;
  const int step = (int)found.manifest->step;
  return has_bytes_of_its_step(f, found.path, step) ? step : -1;
}

typedef struct state_tally {
  int wrong;               // states that break a promise
  int by_step[STEPS + 1];  // states by their newest checkpoint
} state_tally;

static void check_state(const fixture *f, const char *directory, int promised, state_tally *tally) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const int step = newest(f, &arena, directory);
  const bool cleaned = ot_checkpoint_clean(&arena, directory) == OT_OK;
  if (step < promised || !cleaned || newest(f, &arena, directory) != step) tally->wrong++;
  if (step >= 0) tally->by_step[step]++;
  assert_int_equal(ot_disk_remove(directory), OT_OK);
  ot_heap_release(&heap);
}

static state_tally check_states(const fixture *f, const crash_disk *disk, const saves_told *told,
                                int states) {
  state_tally result = {0};
  const int calls = crash_disk_calls(disk);
  const char *const directory = scratch_path(f->directory, "state");
  for (int i = 0; i < states; i++) {
    const uint64_t mixed = (uint64_t)(i + 1) * 0x9e3779b97f4a7c15u >> 32;
    const int at = (int)(mixed * (uint64_t)(calls + 1) >> 32);
    int promised = 0;
    for (int k = 0; k < told->count; k++)
      if (crash_disk_calls_among(disk, told->at[k]) <= at) promised = told->step[k];
    crash_disk_write(disk, at, (crash_loss)(i % CRASH_LOSSES), mixed, directory);
    check_state(f, directory, promised, &result);
  }
  return result;
}

static const faults_event *record(fixture *f, const char *checkpoint, int *count) {
  assert_int_equal(ot_disk_remove(scratch_path(f->directory, "run")), OT_OK);
  assert_int_equal(ot_disk_make_directory(scratch_path(f->directory, "run/checkpoints")), OT_OK);
  faults_watch();
  train(f, "run", checkpoint);
  return faults_events(count);
}

static void check_run(void **state, const char *checkpoint, int states) {
  fixture *const f = *state;
  int count;
  const faults_event *const events = record(f, checkpoint, &count);
  const saves_told told = find_told(f, events, count);
  crash_disk *const disk =
      crash_disk_create(scratch_path(f->directory, "run/checkpoints"), events, count);
  const state_tally tally = check_states(f, disk, &told, states);
  assert_int_equal(tally.wrong, 0);
  assert_true(tally.by_step[0] > 0 && tally.by_step[STEPS] > 0);
  for (int k = 0; k < told.count; k++) assert_true(tally.by_step[told.step[k]] > 0);
  crash_disk_destroy(disk);
}

static int some(int few, int many) { return rank_full() ? many : few; }

static void no_power_failure_spoils_a_checkpoint(void **state) {
  check_run(state, "every: 2, keep: 1", some(400, 40000));
  check_run(state, "every: 2, keep: 2", some(200, 30000));
}

static void nor_while_training_goes_on(void **state) {
  check_run(state, "every: 2, keep: 2, async: true", some(400, 30000));
}

// ---- the same without one kind of sync ----

typedef bool (*which)(const faults_event *event);

static bool ends_with(const char *text, const char *end) {
  const size_t length = strlen(text), end_length = strlen(end);
  return length >= end_length && strcmp(text + length - end_length, end) == 0;
}
static bool of_tensors(const faults_event *event) { return ends_with(event->path, ".safetensors"); }
static bool of_manifest(const faults_event *event) { return ends_with(event->path, ".json"); }
static bool of_new_directory(const faults_event *event) {
  return ends_with(event->path, ".partial");
}
static bool of_parent(const faults_event *event) { return ends_with(event->path, "/checkpoints"); }

static void each_sync_is_needed(void **state) {
  static const which kinds[] = {of_tensors, of_manifest, of_new_directory, of_parent};
  fixture *const f = *state;
  int count;
  const faults_event *const events = record(f, "every: 2, keep: 1", &count);
  const saves_told told = find_told(f, events, count);
  faults_event *const fewer = malloc((size_t)count * sizeof *fewer);
  for (int i = 0; i < 4; i++) {
    memcpy(fewer, events, (size_t)count * sizeof *fewer);
    for (int k = 0; k < count; k++)
      if (fewer[k].kind == FAULTS_SYNC && kinds[i](&fewer[k])) fewer[k].covered = 0;
    crash_disk *const disk =
        crash_disk_create(scratch_path(f->directory, "run/checkpoints"), fewer, count);
    if (check_states(f, disk, &told, 100).wrong == 0)
      fail_msg("the lack of sync %d is not seen", i);
    crash_disk_destroy(disk);
  }
  free(fewer);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(no_power_failure_spoils_a_checkpoint, set_up, tear_down),
      cmocka_unit_test_setup_teardown(nor_while_training_goes_on, set_up, tear_down),
      cmocka_unit_test_setup_teardown(each_sync_is_needed, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
