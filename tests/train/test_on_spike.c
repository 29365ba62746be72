// SPDX-License-Identifier: Apache-2.0
// run: any machine. The answers of a run to an outlier step: faults that come once and faults that
// come back, in the samples and in a weight; one that is not finite; the state and the record of
// the run afterwards; copies in memory of steps that it went back from.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/text.h"
#include "files/config_file.h"
#include "files/disk.h"
#include "record/spike_watch.h"
#include "support/scratch.h"
#include "support/shards.h"
#include "train/loop.h"

enum { STEPS = 30, SAVED = 20, FAULTY = 26, BATCH = 2, SEQUENCE = 8, SAID_BYTES = 1 << 16 };

typedef struct fixture {
  char directory[SCRATCH_BYTES];
  char said[SAID_BYTES];
  int64_t faulty;   // the step, of completed ones, with a fault; 0: none
  int faults;       // times that it still comes
  bool nonfinite;   // the fault is a weight that is not finite; else it is in the tokens
  float kept;       // the weight
  bool broken;      // the weight is not finite now
  int64_t samples;  // first sample of the last step that was taken
  bool copies;      // are made in memory
  int64_t last;     // the process ends in the step after it, once the run went back; 0: at its end
} fixture;

static int set_up(void **state) {
  static const int32_t lengths[] = {150, 100};
  fixture *const f = calloc(1, sizeof *f);
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
  if (event->kind != OT_LOOP_NOTE) return;
  snprintf(f->said + said, sizeof f->said - said, "%s\n", event->text);
}

static bool is_faulty(fixture *f, const ot_trainer *trainer) {
  if (f->faults == 0 || ot_trainer_position(trainer).step + 1 != f->faulty) return false;
  f->faults--;
  return true;
}

// All steps have the same tokens, so that the loss hardly changes; a faulty one has others.
static void set_rows(const ot_trainer *trainer, int micro_batch, ot_micro_batch *rows,
                     void *context) {
  fixture *const f = context;
  f->samples = ot_trainer_position(trainer).next_sample;
  (void)micro_batch;
  const bool faulty = !f->nonfinite && is_faulty(f, trainer);
  for (int64_t i = 0; i < rows->B * rows->T; i++) {
    rows->tokens[i] = faulty ? 250 : (int32_t)(i % 4);
    rows->targets[i] = faulty ? 5 : (int32_t)((i + 1) % 4);
    rows->positions[i] = (int32_t)(i % rows->T);
    rows->doc_starts[i] = 0;
  }
  rows->num_targets = rows->B * rows->T;
}

static void break_weight(ot_trainer *trainer, void *context) {
  fixture *const f = context;
  const ot_runtime *const runtime = ot_trainer_runtime(trainer);
  ot_executor *const executor = ot_runtime_executor(ot_trainer_runtime(trainer));
  const int64_t offset = ot_runtime_held_range(runtime, 0, OT_COPY_WEIGHT).offset;
  const float nothing = NAN;
  const bool repeats = f->last > 0 && strstr(f->said, "back to step");
  if (repeats && ot_trainer_position(trainer).step == f->last) _exit(0);
  if (repeats) usleep(20000);  // until a thread has completed the copies of the step before
  if (f->broken) ot_executor_write(executor, offset, &f->kept, sizeof f->kept);
  f->broken = f->nonfinite && is_faulty(f, trainer);
  if (!f->broken) return;
  ot_executor_read(executor, offset, &f->kept, sizeof f->kept);
  ot_executor_write(executor, offset, &nothing, sizeof nothing);
}

static ot_status train(fixture *f, const char *output, const char *on_spike) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const char *const sets[] = {
      "model={model_type: llama, vocab_size: 257, hidden_size: 8, intermediate_size: 16, "
      "num_hidden_layers: 1, num_attention_heads: 2, max_position_embeddings: 32}",
      ot_arena_format(&arena, "data.train=%s", scratch_path(f->directory, "train")),
      ot_arena_format(&arena, "output=%s", scratch_path(f->directory, output)),
      "data.sequence_length=8",
      "batch={global_batch_size: 2, micro_batch_size: 2}",
      "learning_rate={decay: constant, warmup_steps: 0}",
      "optimizer.lr=1e-5",
      ot_arena_format(&arena, "checkpoint={every: 10, memory: %d, memory_path: %s}", f->copies,
                      scratch_path(f->directory, "memory")),
      "steps=30",
      "threads=1",
      ot_arena_format(&arena, "on_spike=%s", on_spike)};
  const ot_config_request request = {.sets = sets, .num_sets = sizeof sets / sizeof sets[0]};
  ot_config config;
  if (ot_config_load(&request, &arena, &config) != OT_OK) fail_msg("%s", ot_fail_message());
  const ot_trainer_hooks hooks = {.rows = set_rows, .before = break_weight, .context = f};
  f->said[0] = '\0';
  const ot_loop_request run = {.run = &config.run,
                               .settings = config.settings,
                               .resume = OT_RESUME_AUTO,
                               .hooks = &hooks,
                               .sink = hear,
                               .context = f};
  const ot_status status = ot_loop_run(&run);
  ot_heap_release(&heap);
  return status;
}

static void expect_said(const fixture *f, const char *text) {
  if (!strstr(f->said, text)) fail_msg("not said: %s\nbut:\n%s", text, f->said);
}

// The file `name` of a run's last checkpoint.
static void read_file(const fixture *f, const char *output, const char *name, ot_arena *arena,
                      ot_content_record *out) {
  const char *const path = ot_arena_format(arena, "%s/checkpoints/step-000000%d/%s",
                                           scratch_path(f->directory, output), STEPS, name);
  assert_int_equal(ot_content_record_read(arena, path, out), OT_OK);
}

// Both runs ended with the same weights, moments and metrics of losses.
static void expect_same_end(const fixture *f, const char *a, const char *b, bool same) {
  static const char *const names[] = {"model.safetensors", "optimizer.safetensors"};
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  for (int i = 0; i < 2; i++) {
    ot_content_record first, second;
    read_file(f, a, names[i], &arena, &first);
    read_file(f, b, names[i], &arena, &second);
    assert_int_equal(strcmp(first.hash, second.hash) == 0, same);
  }
  ot_heap_release(&heap);
}

// The run's metrics have each step once.
static void expect_whole_record(const fixture *f, const char *output) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  char *text = NULL;
  int64_t bytes = 0, steps = 0;
  const char *const path =
      ot_arena_format(&arena, "%s/metrics.jsonl", scratch_path(f->directory, output));
  assert_int_equal(ot_disk_read(&arena, path, 1 << 20, &text, &bytes), OT_OK);
  for (const char *at = text; (at = strstr(at, "\"loss\":")) != NULL; at++) steps++;
  assert_int_equal(steps, STEPS);
  ot_heap_release(&heap);
}

static void set_fault(fixture *f, int times, bool nonfinite) {
  f->faulty = times > 0 ? FAULTY : 0;
  f->faults = times;
  f->nonfinite = nonfinite;
  f->broken = false;
}

static void a_transient_fault_is_repeated_away(void **state) {
  fixture *const f = *state;
  set_fault(f, 0, false);
  assert_int_equal(train(f, "sound", "rewind"), OT_OK);
  set_fault(f, 1, false);
  assert_int_equal(train(f, "repeated", "rewind"), OT_OK);
  expect_said(f, "step 26: grad_norm is an outlier");
  expect_said(f, "back to step 20; samples 40 to 51 are repeated");
  expect_said(f, "step 26 differs from before although samples and weights are the same");
  expect_same_end(f, "sound", "repeated", true);
  expect_whole_record(f, "repeated");
  set_fault(f, 1, true);
  assert_int_equal(train(f, "finite", "rewind"), OT_OK);
  expect_said(f, "the step is taken again with the same samples");
  expect_said(f, "step 26 differs from before although samples and weights are the same");
  expect_same_end(f, "sound", "finite", true);
  expect_whole_record(f, "finite");
}

// Runs a process that ends in the step after `last`, when the run has gone back to step 20.
static void train_until(fixture *f, const char *output, int64_t last) {
  int status;
  set_fault(f, 1, false);
  f->last = last;
  const pid_t child = fork();
  if (child == 0) {
    (void)train(f, output, "rewind");
    _exit(1);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  f->last = 0;
  set_fault(f, 0, false);
}

static void copies_of_what_a_run_went_back_from_are_not_loaded(void **state) {
  fixture *const f = *state;
  assert_int_equal(mkdir(scratch_path(f->directory, "memory"), 0700), 0);
  set_fault(f, 0, false);
  assert_int_equal(train(f, "sound", "rewind"), OT_OK);
  f->copies = true;
  // No step is complete since: the copies there are have steps 25 and 26.
  train_until(f, "early", SAVED);
  assert_int_equal(train(f, "early", "rewind"), OT_OK);
  expect_said(f, "step-00000020");
  assert_null(strstr(f->said, "the copies in memory"));
  expect_same_end(f, "sound", "early", true);
  expect_whole_record(f, "early");
  // Steps 21 to 25 are complete since.
  train_until(f, "late", FAULTY - 1);
  assert_int_equal(train(f, "late", "rewind"), OT_OK);
  expect_said(f, "resuming from the copies in memory of step 2");
  assert_null(strstr(f->said, "of step 26"));
  expect_same_end(f, "sound", "late", true);
  expect_whole_record(f, "late");
}

static void a_lasting_fault_ends_a_run_that_repeats(void **state) {
  fixture *const f = *state;
  set_fault(f, 2, false);
  assert_int_equal(train(f, "lasting", "rewind"), OT_NUMERIC);
  assert_non_null(strstr(ot_fail_message(), "it repeats with the same bits"));
  set_fault(f, 2, true);
  assert_int_equal(train(f, "nan", "rewind"), OT_NUMERIC);
  assert_non_null(strstr(ot_fail_message(), "step 26: the loss is "));
}

static void its_samples_are_skipped(void **state) {
  fixture *const f = *state;
  set_fault(f, 1, false);
  assert_int_equal(train(f, "skipped", "skip"), OT_OK);
  expect_said(f, "back to step 20; samples 40 to 51 are skipped");
  // 26 steps were taken, then 10 more from sample 52 on.
  assert_int_equal(f->samples, FAULTY * BATCH + (STEPS - SAVED - 1) * BATCH);
  expect_whole_record(f, "skipped");
  set_fault(f, 1, true);
  assert_int_equal(train(f, "nan-skipped", "skip"), OT_OK);
  expect_said(f, "the step is taken again with the next samples");
  assert_int_equal(f->samples, STEPS * BATCH);
  expect_whole_record(f, "nan-skipped");
}

static void a_run_may_stop_or_go_on(void **state) {
  fixture *const f = *state;
  set_fault(f, 1, false);
  assert_int_equal(train(f, "noted", "note"), OT_OK);
  expect_said(f, "step 26: grad_norm is an outlier");
  assert_null(strstr(f->said, "back to step"));
  set_fault(f, 1, false);
  assert_int_equal(train(f, "stopped", "stop"), OT_NUMERIC);
  assert_non_null(strstr(ot_fail_message(), "step 26 is an outlier"));
  set_fault(f, 0, false);
  assert_int_equal(train(f, "stopped", "skip"), OT_OK);
  expect_said(f, "step-00000020");
}

static void a_run_goes_back_five_times_at_most(void **state) {
  fixture *const f = *state;
  set_fault(f, 100, false);
  assert_int_equal(train(f, "endless", "skip"), OT_NUMERIC);
  assert_non_null(strstr(ot_fail_message(), "the run went back five times before"));
  assert_int_equal(100 - f->faults, OT_SPIKE_RETURNS + 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(a_transient_fault_is_repeated_away, set_up, tear_down),
      cmocka_unit_test_setup_teardown(copies_of_what_a_run_went_back_from_are_not_loaded, set_up,
                                      tear_down),
      cmocka_unit_test_setup_teardown(a_lasting_fault_ends_a_run_that_repeats, set_up, tear_down),
      cmocka_unit_test_setup_teardown(its_samples_are_skipped, set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_run_may_stop_or_go_on, set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_run_goes_back_five_times_at_most, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
