// SPDX-License-Identifier: Apache-2.0
// run: alone. Starting in the directory of an earlier run: the resume point if checkpoints are
// damaged or missing, what is rejected, what is set aside; saving does not retain memory.
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/text.h"
#include "checkpoint/manifest.h"
#include "files/config_file.h"
#include "files/disk.h"
#include "support/scratch.h"
#include "support/shards.h"
#include "train/loop.h"

enum { SETS_MAX = 16, SAID_BYTES = 1 << 16, MEASURED = 150 };

typedef struct fixture {
  char directory[SCRATCH_BYTES];
  const char *resume;  // null: auto
  const char *file;    // run.yaml
  char said[SAID_BYTES];
  int num_measured;
  int64_t measured[MEASURED];  // bytes of heap in use at each status
} fixture;

static int set_up(void **state) {
  static const int32_t lengths[] = {150, 100};
  fixture *const f = calloc(1, sizeof *f);
  f->file = "data: {train: train}\n";
  scratch_create(f->directory);
  shard_write(f->directory, "train", lengths, 2, 0);
  *state = f;
  return 0;
}

static int tear_down(void **state) {
  fixture *const f = *state;
  scratch_destroy(f->directory);
  free(f);
  return 0;
}

static void hear(void *context, const ot_loop_event *event) {
  fixture *const f = context;
  const size_t said = strlen(f->said);
  if (event->kind == OT_LOOP_NOTE)
    snprintf(f->said + said, sizeof f->said - said, "%s\n", event->text);
  if (event->kind != OT_LOOP_STATUS || f->num_measured == MEASURED) return;
  const struct mallinfo2 heap = mallinfo2();
  f->measured[f->num_measured++] = (int64_t)(heap.uordblks + heap.hblkhd);
}

// Trains in DIRECTORY/`output` with settings like "steps=5" [null-terminated], in place of those of
// DIRECTORY/run.yaml.
static ot_status train(fixture *f, const char *output, const char *const *settings) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const char *sets[SETS_MAX] = {
      "model={model_type: llama, vocab_size: 257, hidden_size: 8, intermediate_size: 16, "
      "num_hidden_layers: 1, num_attention_heads: 2, max_position_embeddings: 32}",
      ot_arena_format(&arena, "output=%s", scratch_path(f->directory, output)),
      "data.sequence_length=8",
      "batch={global_batch_size: 1, micro_batch_size: 1}",
      "learning_rate={decay: constant, warmup_steps: 0}",
      "threads=1",
  };
  int num_sets = 6;
  while (*settings) sets[num_sets++] = *settings++;
  const char *const file = scratch_path(f->directory, "run.yaml");
  scratch_write(file, f->file, (int64_t)strlen(f->file));
  const ot_config_request request = {.path = file, .sets = sets, .num_sets = num_sets};
  ot_config config;
  if (ot_config_load(&request, &arena, &config) != OT_OK) fail_msg("%s", ot_fail_message());
  f->said[0] = '\0';
  f->num_measured = 0;
  const ot_loop_request run = {.run = &config.run,
                               .settings = config.settings,
                               .resume = f->resume ? OT_RESUME_FROM : OT_RESUME_AUTO,
                               .resume_path = f->resume,
                               .sink = hear,
                               .context = f};
  const ot_status status = ot_loop_run(&run);
  ot_heap_release(&heap);
  return status;
}

#define TRAIN(f, output, ...) train(f, output, (const char *const[]){__VA_ARGS__, NULL})

static void must(ot_status status) {
  if (status != OT_OK) fail_msg("%s", ot_fail_message());
}

// DIRECTORY/OUTPUT/checkpoints/step-STEP/NAME
static const char *path_of(const fixture *f, const char *output, int step, const char *name) {
  char path[OT_PATH_BYTES];
  snprintf(path, sizeof path, "%s/checkpoints/step-%08d/%s", output, step, name);
  return scratch_path(f->directory, path);
}

static bool has_step(const fixture *f, const char *output, int step) {
  return ot_disk_is_directory(path_of(f, output, step, ""));
}

static void flip(const char *path) {
  int64_t bytes;
  char *const data = scratch_read(path, &bytes);
  data[bytes - 100] ^= 1;
  scratch_write(path, data, bytes);
  free(data);
}

static int count_lines(const fixture *f, const char *name) {
  int64_t bytes;
  int lines = 0;
  char *const text = scratch_read(scratch_path(f->directory, name), &bytes);
  for (int64_t i = 0; i < bytes; i++) lines += text[i] == '\n';
  free(text);
  return lines;
}

static void assert_said(const fixture *f, const char *part) {
  if (!strstr(f->said, part)) fail_msg("\"%s\" is not in:\n%s", part, f->said);
}

static void assert_same_state(const fixture *f, int step, const char *a, const char *b) {
  static const char *const names[] = {"model.safetensors", "optimizer.safetensors"};
  for (int i = 0; i < 2; i++)
    assert_files_equal(path_of(f, a, step, names[i]), path_of(f, b, step, names[i]));
}

// ---- damage ----

static void continues_from_the_newest_complete_checkpoint(void **state) {
  fixture *const f = *state;
  must(TRAIN(f, "whole", "steps=8", "checkpoint.every=2"));
  must(TRAIN(f, "run", "steps=6", "checkpoint.every=2"));
  flip(path_of(f, "run", 6, "model.safetensors"));
  must(TRAIN(f, "run", "steps=8", "checkpoint.every=2"));
  assert_said(f, "skipping 1 damaged checkpoint:");
  assert_said(f, "step-00000006/model.safetensors");
  assert_said(f, "resuming from ");
  assert_said(f, "checkpoints/step-00000004\n");
  assert_same_state(f, 8, "whole", "run");
  assert_int_equal(count_lines(f, "run/metrics.jsonl"), 8);
  // Damaged checkpoints are kept for inspection.
  assert_true(
      ot_disk_is_directory(scratch_path(f->directory, "run/checkpoints/aside-1/step-00000006")));
}

// A damaged checkpoint newer than the one just saved does not count towards those to keep.
static void keeps_what_it_saves_after_falling_back(void **state) {
  fixture *const f = *state;
  must(TRAIN(f, "run", "steps=6", "checkpoint.every=2"));
  flip(path_of(f, "run", 6, "optimizer.safetensors"));
  must(TRAIN(f, "run", "steps=5", "checkpoint.every=1", "checkpoint.keep=1"));
  assert_true(has_step(f, "run", 5));
  must(TRAIN(f, "run", "steps=5", "checkpoint.every=1"));
  assert_said(f, "is finished: 5 steps");
}

static void does_not_restart_if_no_checkpoint_is_readable(void **state) {
  fixture *const f = *state;
  static const char *const names[] = {"model.safetensors", "manifest.json"};
  for (int kind = 0; kind < 3; kind++) {
    char run[16];
    snprintf(run, sizeof run, "run%d", kind);
    must(TRAIN(f, run, "steps=3", "checkpoint.every=1"));
    for (int step = 1; step <= 3; step++) {
      if (kind == 0) flip(path_of(f, run, step, names[0]));
      if (kind == 1) assert_int_equal(truncate(path_of(f, run, step, names[0]), 100), 0);
      if (kind == 2) assert_int_equal(unlink(path_of(f, run, step, names[1])), 0);
    }
    assert_int_equal(TRAIN(f, run, "steps=5", "checkpoint.every=1"), OT_ENVIRONMENT);
    assert_message_has("none of the checkpoints of ");
    for (int step = 1; step <= 3; step++) assert_true(has_step(f, run, step));
    assert_non_null(strstr(ot_fail_hint_text(), "another `output`"));
  }
}

static void does_not_restart_if_checkpoints_are_missing(void **state) {
  fixture *const f = *state;
  const char *const checkpoints = scratch_path(f->directory, "run/checkpoints");
  must(TRAIN(f, "run", "steps=3"));
  assert_int_equal(ot_disk_remove(checkpoints), OT_OK);
  assert_int_equal(TRAIN(f, "run", "steps=5"), OT_ENVIRONMENT);
  assert_message_has("has metrics of 3 steps and saved checkpoints, but all are missing");
  assert_int_equal(count_lines(f, "run/metrics.jsonl"), 3);
  // Without the metrics no trace of the run is left.
  assert_int_equal(unlink(scratch_path(f->directory, "run/metrics.jsonl")), 0);
  must(TRAIN(f, "run", "steps=2"));
}

static void restarts_if_stopped_before_the_first_checkpoint(void **state) {
  fixture *const f = *state;
  must(TRAIN(f, "run", "steps=3"));
  assert_int_equal(ot_disk_remove(scratch_path(f->directory, "run/checkpoints")), OT_OK);
  assert_int_equal(unlink(scratch_path(f->directory, "run/.saved")), 0);
  must(TRAIN(f, "run", "steps=4"));
  assert_said(f, "has no checkpoint yet: restarting its 3 steps");
  assert_int_equal(count_lines(f, "run/metrics.jsonl"), 4);
}

// ---- --resume DIR ----

static void returns_to_the_named_checkpoint(void **state) {
  fixture *const f = *state;
  must(TRAIN(f, "run", "steps=6", "checkpoint.every=1", "checkpoint.keep=0"));
  f->resume = path_of(f, "run", 2, "");
  must(TRAIN(f, "run", "steps=5", "checkpoint.every=1", "seed=7"));
  assert_said(f, "resuming from ");
  assert_said(f, "step-00000002");
  assert_said(f, "4 newer checkpoints and the metrics after step 2: now in ");
  assert_int_equal(count_lines(f, "run/metrics.jsonl"), 5);
  assert_int_equal(count_lines(f, "run/checkpoints/aside-1/metrics.jsonl"), 4);
  for (int step = 1; step <= 6; step++) {
    assert_int_equal(has_step(f, "run", step), step >= 3 && step <= 5);
    char aside[64];
    snprintf(aside, sizeof aside, "run/checkpoints/aside-1/step-%08d", step);
    assert_int_equal(ot_disk_is_directory(scratch_path(f->directory, aside)), step >= 3);
  }
}

static void continues_another_run_only_in_an_empty_directory(void **state) {
  fixture *const f = *state;
  must(TRAIN(f, "a", "steps=2"));
  must(TRAIN(f, "b", "steps=3"));
  f->resume = scratch_path(f->directory, "a");
  assert_int_equal(TRAIN(f, "b", "steps=5"), OT_USAGE);
  assert_message_has("holds a run with its own checkpoints, up to step 3");
  assert_true(has_step(f, "b", 3));
  must(TRAIN(f, "c", "steps=3"));
  // The same command continues from its own checkpoints, even if DIR is gone.
  assert_int_equal(rename(scratch_path(f->directory, "a"), scratch_path(f->directory, "x")), 0);
  must(TRAIN(f, "c", "steps=4"));
  assert_said(f, "c/checkpoints/step-00000003");
  assert_int_equal(rename(scratch_path(f->directory, "x"), scratch_path(f->directory, "a")), 0);
  f->resume = NULL;
  must(TRAIN(f, "a", "steps=4"));
  assert_same_state(f, 4, "a", "c");
}

static void refuses_a_named_checkpoint_that_is_damaged(void **state) {
  fixture *const f = *state;
  must(TRAIN(f, "run", "steps=3", "checkpoint.every=1"));
  flip(path_of(f, "run", 2, "model.safetensors"));
  f->resume = path_of(f, "run", 2, "");
  assert_int_equal(TRAIN(f, "run", "steps=5"), OT_ENVIRONMENT);
  assert_message_has("checkpoint is damaged: ");
  assert_true(has_step(f, "run", 3));
}

// ---- moments in bf16 ----

static void moments_in_bf16_continue_bit_for_bit(void **state) {
  fixture *const f = *state;
  static const char narrow[] = "precision={compute: bf16, moments: bf16}";
  must(TRAIN(f, "whole", "steps=6", "checkpoint.every=3", narrow));
  must(TRAIN(f, "run", "steps=3", narrow, "learning_rate.decay=constant"));
  must(TRAIN(f, "run", "steps=6", narrow));
  assert_same_state(f, 6, "whole", "run");
}

// From fp32 they are rounded, which is said; to fp32 nothing is lost and nothing is said.
static void moments_of_another_type_are_converted(void **state) {
  fixture *const f = *state;
  must(TRAIN(f, "wide", "steps=2"));
  f->resume = scratch_path(f->directory, "wide");
  must(TRAIN(f, "narrow", "steps=3", "precision.moments=bf16"));
  assert_said(f, "moments in fp32 are rounded to bf16 (precision.moments)");
  f->resume = scratch_path(f->directory, "narrow");
  must(TRAIN(f, "again", "steps=4", "precision.moments=fp32"));
  assert_null(strstr(f->said, "rounded"));
}

// ---- data ----

static void shards_that_changed_since_the_checkpoint_are_refused(void **state) {
  static const int32_t lengths[] = {150, 100}, longer[] = {150, 80, 25};
  fixture *const f = *state;
  char train_given[OT_PATH_BYTES];
  f->file = "data: {train: train, validation: held}\n";
  shard_write(f->directory, "held", lengths, 2, 0);
  snprintf(train_given, sizeof train_given, "data.train=%s", scratch_path(f->directory, "train"));
  must(TRAIN(f, "run", "steps=2"));
  shard_write(f->directory, "train", lengths, 2, 1);  // as many tokens, others
  assert_int_equal(TRAIN(f, "run", "steps=3"), OT_ENVIRONMENT);
  assert_message_has("train.bin changed since ");
  assert_message_has("step-00000002");
  assert_non_null(strstr(ot_fail_hint_text(), "--set data.train="));
  shard_write(f->directory, "train", longer, 3, 0);
  assert_int_equal(TRAIN(f, "run", "steps=3"), OT_ENVIRONMENT);
  assert_message_has("255 tokens, then");
  must(TRAIN(f, "run", "steps=3", train_given));
  assert_said(f, "train has another content, of which window 2 is next");
  // The index alone: other documents in the same tokens.
  shard_write(f->directory, "train", (const int32_t[]){150, 105}, 2, 0);
  assert_int_equal(TRAIN(f, "run", "steps=4"), OT_ENVIRONMENT);
  shard_write(f->directory, "train", longer, 3, 0);
  shard_write(f->directory, "held", lengths, 2, 1);
  assert_int_equal(TRAIN(f, "run", "steps=4"), OT_ENVIRONMENT);
  assert_message_has("held.bin changed since ");
  shard_write(f->directory, "held", lengths, 2, 0);
  must(TRAIN(f, "run", "steps=4"));
  assert_null(strstr(f->said, "note: the data"));
}

static void a_tokenizer_that_changed_since_the_checkpoint_is_refused(void **state) {
  // Two orders of the same vocabulary.
  const char *const form =
      "{\"decoder\":{\"type\":\"Fuse\"},\"model\":{\"type\":\"BPE\",\"unk_token\":\"u\",\"vocab\":{"
      "\"u\":%d,"
      "\"a\":%d},\"merges\":[]}}";
  char text[256];
  fixture *const f = *state;
  char given[OT_PATH_BYTES];
  const char *const path = scratch_path(f->directory, "tokenizer.json");
  snprintf(given, sizeof given, "data.tokenizer=%s", path);
  f->file = "data: {train: train, tokenizer: tokenizer.json}\n";
  scratch_write(path, text, snprintf(text, sizeof text, form, 0, 1));
  must(TRAIN(f, "run", "steps=2"));
  scratch_write(path, text, snprintf(text, sizeof text, form, 1, 0));
  assert_int_equal(TRAIN(f, "run", "steps=3"), OT_ENVIRONMENT);
  assert_message_has("tokenizer.json changed since ");
  must(TRAIN(f, "run", "steps=3", given));
  assert_said(f, "is another tokenizer");
}

static void windows_that_new_weights_leave_out_or_repeat_are_counted(void **state) {
  static const int32_t lengths[] = {1000};
  fixture *const f = *state;
  char even[OT_PATH_BYTES], other[OT_PATH_BYTES], later[OT_PATH_BYTES];
  const char *const a = scratch_path(f->directory, "a"), *const b = scratch_path(f->directory, "b");
  shard_write(f->directory, "a", lengths, 1, 0);
  shard_write(f->directory, "b", lengths, 1, 0);
  const char *const form = "data.train=[{path: %s, weight: %d}, {path: %s, weight: 1}]";
  snprintf(even, sizeof even, form, a, 1, b);
  snprintf(other, sizeof other, form, a, 3, b);
  snprintf(later, sizeof later,
           "data.mixtures=[{from_step: 8, train: [{path: %s, weight: 3}, {path: %s, weight: 1}]}]",
           a, b);
  const char *const model = "model.vocab_size=1100";
  must(TRAIN(f, "run", "steps=8", even, model));
  must(TRAIN(f, "run", "steps=9", other, model));
  assert_said(f, "a goes on at window 6, of which 4 were read: 2 left out");
  assert_said(f, "b goes on at window 2, of which 4 were read: 2 read again");
  assert_said(f, "data.mixtures changes the weights");
  must(TRAIN(f, "same", "steps=8", even, model));
  must(TRAIN(f, "same", "steps=9", even, later, model));
  assert_null(strstr(f->said, "note: the data"));
  must(TRAIN(f, "same", "steps=10", even, later, model, "seed=2"));
  assert_said(f, "a is read in another order");
}

static void a_learning_rate_that_jumps_is_noted(void **state) {
  fixture *const f = *state;
  const char *const cosine =
      "learning_rate={decay: cosine, warmup_steps: 2, min: 1e-5, decay_steps: 0}";
  must(TRAIN(f, "run", "steps=10", cosine, "optimizer.lr=1e-3"));
  must(TRAIN(f, "run", "steps=11", cosine, "optimizer.lr=1e-3", "learning_rate.decay_steps=8"));
  assert_null(strstr(f->said, "jumps"));
  must(TRAIN(f, "again", "steps=10", cosine, "optimizer.lr=1e-3"));
  must(TRAIN(f, "again", "steps=40", cosine, "optimizer.lr=1e-3"));
  assert_said(f,
              "the learning rate jumps from 4.77e-05 in step 10 to 0.000896 in step 11; the "
              "schedule of the checkpoint continues with 1e-05; "
              "--set learning_rate.decay_steps=8 keeps its decay, and the rate 1e-05 after it");
  const char *const wsd = "learning_rate={decay: wsd, warmup_steps: 0, min: 1e-5, decay_steps: 3}";
  must(TRAIN(f, "wsd", "steps=10", wsd));
  must(TRAIN(f, "wsd", "steps=20", wsd));
  assert_said(f, "from a checkpoint before its decay, which began after step 7 (--resume)");
}

// As an older version wrote it.
static void remove_record(const char *path) {
  int64_t bytes;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_manifest manifest;
  char *const text = scratch_read(path, &bytes);
  must(ot_manifest_build(&arena, path, text, bytes, &manifest));
  assert_non_null(manifest.record);
  manifest.record = NULL;
  const char *const printed = ot_manifest_print(&arena, &manifest);
  scratch_write(path, printed, ot_text_length(printed));
  free(text);
  ot_heap_release(&heap);
}

static void a_checkpoint_without_a_record_of_its_data_is_loaded_with_a_note(void **state) {
  fixture *const f = *state;
  must(TRAIN(f, "run", "steps=2"));
  remove_record(path_of(f, "run", 2, "manifest.json"));
  must(TRAIN(f, "run", "steps=3"));
  assert_said(f, "does not record the content of its token files");
  must(TRAIN(f, "run", "steps=4"));
  assert_null(strstr(f->said, "does not record"));
}

// ---- init ----

static void initial_weights_come_from_a_complete_checkpoint(void **state) {
  fixture *const f = *state;
  char init[OT_PATH_BYTES];
  must(TRAIN(f, "run", "steps=3", "checkpoint.every=1"));
  flip(path_of(f, "run", 3, "model.safetensors"));
  snprintf(init, sizeof init, "init=%s", scratch_path(f->directory, "run"));
  must(TRAIN(f, "a", "steps=1", init));
  assert_said(f, "skipping 1 damaged checkpoint:");
  snprintf(init, sizeof init, "init=%s", path_of(f, "run", 2, ""));
  must(TRAIN(f, "b", "steps=1", init));
  assert_same_state(f, 1, "a", "b");
  snprintf(init, sizeof init, "init=%s", path_of(f, "run", 3, ""));
  assert_int_equal(TRAIN(f, "c", "steps=1", init), OT_ENVIRONMENT);
  assert_message_has("checkpoint is damaged: ");
}

// ---- memory ----

static void saves_any_number_of_times_in_the_same_memory(void **state) {
  fixture *const f = *state;
  must(TRAIN(f, "run", "steps=150", "checkpoint.every=1", "log.every=1", "data.validation_every=1",
             "log.health_every=1"));
  assert_int_equal(f->num_measured, MEASURED);
  const int64_t grown = f->measured[MEASURED - 1] - f->measured[MEASURED / 3];
  if (grown > 2048) fail_msg("%lld more bytes after 100 checkpoints", (long long)grown);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(continues_from_the_newest_complete_checkpoint, set_up,
                                      tear_down),
      cmocka_unit_test_setup_teardown(keeps_what_it_saves_after_falling_back, set_up, tear_down),
      cmocka_unit_test_setup_teardown(does_not_restart_if_no_checkpoint_is_readable, set_up,
                                      tear_down),
      cmocka_unit_test_setup_teardown(does_not_restart_if_checkpoints_are_missing, set_up,
                                      tear_down),
      cmocka_unit_test_setup_teardown(restarts_if_stopped_before_the_first_checkpoint, set_up,
                                      tear_down),
      cmocka_unit_test_setup_teardown(returns_to_the_named_checkpoint, set_up, tear_down),
      cmocka_unit_test_setup_teardown(continues_another_run_only_in_an_empty_directory, set_up,
                                      tear_down),
      cmocka_unit_test_setup_teardown(refuses_a_named_checkpoint_that_is_damaged, set_up,
                                      tear_down),
      cmocka_unit_test_setup_teardown(moments_in_bf16_continue_bit_for_bit, set_up, tear_down),
      cmocka_unit_test_setup_teardown(moments_of_another_type_are_converted, set_up, tear_down),
      cmocka_unit_test_setup_teardown(shards_that_changed_since_the_checkpoint_are_refused, set_up,
                                      tear_down),
      cmocka_unit_test_setup_teardown(a_tokenizer_that_changed_since_the_checkpoint_is_refused,
                                      set_up, tear_down),
      cmocka_unit_test_setup_teardown(windows_that_new_weights_leave_out_or_repeat_are_counted,
                                      set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_learning_rate_that_jumps_is_noted, set_up, tear_down),
      cmocka_unit_test_setup_teardown(
          a_checkpoint_without_a_record_of_its_data_is_loaded_with_a_note, set_up, tear_down),
      cmocka_unit_test_setup_teardown(initial_weights_come_from_a_complete_checkpoint, set_up,
                                      tear_down),
      cmocka_unit_test_setup_teardown(saves_any_number_of_times_in_the_same_memory, set_up,
                                      tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
