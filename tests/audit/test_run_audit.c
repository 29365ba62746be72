// SPDX-License-Identifier: Apache-2.0
// run: ranks=4 as threads. Audits during training: a clean run is not disturbed. One flipped bit on
// one rank ends the run at the next audit, before a save; without a replica, before the next
// update. A run finds what the command finds in a model.
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "audit/audit.h"
#include "audit/replicas.h"
#include "files/config_file.h"
#include "support/audit_case.h"
#include "support/scratch.h"

static const char settings[] =
    "model: {model_type: llama, vocab_size: 300, hidden_size: 32, intermediate_size: 40,\n"
    "  num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2,\n"
    "  max_position_embeddings: 64, tie_word_embeddings: true}\n"
    "data: {train: tokens.bin, sequence_length: 16}\n"
    "batch: {global_batch_size: 4, micro_batch_size: 1}\n"
    "parallel: {tp: 2, watchdog_seconds: 60}\n"
    "checkpoint: {every: 2, keep: 0}\n"
    "audit: {every: 2, checks: [ranks]}\n"
    "log: {tensorboard: false}\n"
    "steps: 8\nthreads: 1\noutput: out\n";

typedef struct training {
  const ot_config *config;
  int damage_step;          // a bit flips on rank 3 before the audit of this step; 0: never
  int weight_step, weight;  // before this step, this element of a weight on rank 3; 0: never
  int position_step;        // before this step a bit of one of the counters, on rank 0; 0: never
  int64_t position[3];      // the bits: step, next sample, tokens
  char notes[4096];
} training;

typedef struct rank_watch {
  const training *t;
  ot_replicas *replicas;
} rank_watch;

static void hear(void *context, const ot_loop_event *event) {
  training *const t = context;
  if (event->kind != OT_LOOP_NOTE) return;
  const size_t used = strlen(t->notes);
  snprintf(t->notes + used, sizeof t->notes - used, "%s\n", event->text);
}

// A norm of the second layer, element 5.
static void damage(ot_trainer *trainer) {
  ot_runtime *const runtime = ot_trainer_runtime(trainer);
  const ot_parameter *const p =
      ot_graph_parameter(ot_runtime_any_graph(runtime), "layers.1.mlp_norm.weight");
  assert_non_null(p);
  const int64_t offset =
      ot_runtime_held_range(runtime, p->block, OT_COPY_WEIGHT).offset + (p->offset + 5) * 4;
  float value;
  ot_executor_read(ot_runtime_executor(runtime), offset, &value, sizeof value);
  value *= 1.0000005f;
  ot_executor_write(ot_runtime_executor(runtime), offset, &value, sizeof value);
}

static ot_status look(void *context, ot_trainer *trainer, ot_arena *arena,
                      ot_loop_findings *findings) {
  rank_watch *const w = context;
  const bool mine = ot_world_rank(ot_trainer_world(trainer)) == 3;
  if (mine && ot_trainer_position(trainer).step == w->t->damage_step) damage(trainer);
  return ot_ranks_check(&w->replicas, trainer, arena, findings);
}

static ot_status train_rank(ot_comm *comm, void *context) {
  training *const t = context;
  ot_loop_request request = {
      .run = &t->config->run, .settings = t->config->settings, .sink = hear, .context = t};
  OT_TRY(ot_world_create(&request.run->parallel, comm, &request.world));
  rank_watch watch = {.t = t};
  const ot_loop_check check = {.run = look, .context = &watch};
  request.checks = &check;
  request.num_checks = 1;
  const ot_status status = ot_loop_run(&request);
  ot_replicas_destroy(&watch.replicas);
  ot_world_destroy(&request.world);
  return status;
}

static ot_status train(const char *directory, training *t) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_config config;
  const ot_config_request request = {.path = scratch_path(directory, "run.yaml")};
  ot_status status = ot_config_load(&request, &arena, &config);
  t->config = &config;
  if (status == OT_OK) status = ot_comm_run_threads(4, train_rank, t);
  ot_heap_release(&heap);
  return status;
}

static void prepare(char *directory) {
  scratch_create(directory);
  audit_write_tokens(directory, false);
  scratch_write(scratch_path(directory, "run.yaml"), settings, (int64_t)strlen(settings));
}

static int count(const char *directory, const char *words) {
  int64_t bytes;
  char *const text = scratch_read(scratch_path(directory, "out/metrics.jsonl"), &bytes);
  char *const all = calloc(1, (size_t)bytes + 1);
  memcpy(all, text, (size_t)bytes);
  int found = 0;
  for (const char *at = all; (at = strstr(at, words)); at++) found++;
  free(text);
  free(all);
  return found;
}

static bool is_saved(const char *directory, const char *step) {
  char path[64];
  snprintf(path, sizeof path, "out/checkpoints/%s/manifest.json", step);
  FILE *const file = fopen(scratch_path(directory, path), "rb");
  if (file) fclose(file);
  return file != NULL;
}

static void a_clean_run_is_audited_and_continues(void **state) {
  (void)state;
  char directory[SCRATCH_BYTES];
  prepare(directory);
  training t = {0};
  if (train(directory, &t) != OT_OK) fail_msg("%s", ot_fail_message());
  assert_int_equal(count(directory, "\"audit_findings/ranks\":0}"), 4);
  assert_true(is_saved(directory, "step-00000008"));
  scratch_destroy(directory);
}

static void a_flipped_bit_ends_the_run_before_a_save(void **state) {
  (void)state;
  char directory[SCRATCH_BYTES];
  prepare(directory);
  training t = {.damage_step = 6};
  assert_int_equal(train(directory, &t), OT_FINDINGS);
  assert_message_has(
      "step 6: the audit of ranks found 1: weights of "
      "model.layers.1.post_attention_layernorm.weight");
  assert_message_has("rank 3 against ranks 0 1 2, first at element 5: ");
  assert_non_null(strstr(ot_fail_hint_text(), "resumes from the checkpoint before it"));
  assert_non_null(strstr(t.notes, "finding 1: weights_differ"));
  assert_int_equal(count(directory, "\"step\":6,\"audit_findings/ranks\":1}"), 1);
  assert_true(is_saved(directory, "step-00000004"));
  assert_false(is_saved(directory, "step-00000006"));

  // The same command continues from step 4.
  training again = {0};
  if (train(directory, &again) != OT_OK) fail_msg("%s", ot_fail_message());
  assert_int_equal(count(directory, "\"audit_findings/ranks\":0}"), 4);
  assert_int_equal(count(directory, "\"audit_findings/ranks\":1}"), 0);
  assert_true(is_saved(directory, "step-00000008"));
  scratch_destroy(directory);
}

// ---- all audits ----

typedef struct damage_watch {
  const training *t;
  ot_world *world;
} damage_watch;

// Flips a low bit of a second moment in a shard that only rank 3 holds.
static ot_status flip(void *context, ot_trainer *trainer, ot_arena *arena,
                      ot_loop_findings *findings) {
  const damage_watch *const w = context;
  (void)arena;
  (void)findings;
  const bool mine = ot_world_rank(w->world) == 3;
  if (!mine || ot_trainer_position(trainer).step != w->t->damage_step) return OT_OK;
  ot_runtime *const runtime = ot_trainer_runtime(trainer);
  const ot_bucket_range held = ot_runtime_held_range(runtime, 1, OT_COPY_MOMENT_2);
  uint32_t word;
  ot_executor_read(ot_runtime_executor(runtime), held.offset + 4 * 7, &word, sizeof word);
  word ^= 1;
  ot_executor_write(ot_runtime_executor(runtime), held.offset + 4 * 7, &word, sizeof word);
  return OT_OK;
}

// The lowest bit of an element of the second layer's gate and up projections.
static void flip_weight(ot_trainer *trainer, int element) {
  ot_runtime *const runtime = ot_trainer_runtime(trainer);
  const ot_bucket_range held = ot_runtime_held_range(runtime, 2, OT_COPY_WEIGHT);
  uint32_t word;
  assert_true(element < held.count);
  ot_executor_read(ot_runtime_executor(runtime), held.offset + 4 * element, &word, sizeof word);
  word ^= 1;
  ot_executor_write(ot_runtime_executor(runtime), held.offset + 4 * element, &word, sizeof word);
}

// The only place of a trainer with the same three counters twice in a row.
static int64_t *find_counters(ot_trainer *trainer) {
  const ot_position now = ot_trainer_position(trainer);
  const int64_t words = (int64_t)malloc_usable_size(trainer) / 8;
  int64_t *const memory = (int64_t *)trainer;
  for (int64_t i = 0; i + 6 <= words; i++) {
    const bool same = memcmp(memory + i, memory + i + 3, sizeof now) == 0;
    if (same && memcmp(memory + i, &now, sizeof now) == 0) return memory + i;
  }
  fail_msg("no counters");
  return NULL;
}

// As a fault of memory does between two steps: with the copies of the counters, one changes.
static void disturb(ot_trainer *trainer, void *context) {
  const training *const t = context;
  const int64_t step = ot_trainer_position(trainer).step + 1;
  const int rank = ot_world_rank(ot_trainer_world(trainer));
  if (rank == 3 && step == t->weight_step) flip_weight(trainer, t->weight);
  if (rank != 0 || step != t->position_step) return;
  // A trainer begins with its counters.
  int64_t *const counters = find_counters(trainer);
  for (int i = 0; i < 3; i++) counters[i] ^= t->position[i];
}

static ot_status train_audited(ot_comm *comm, void *context) {
  training *const t = context;
  const ot_trainer_hooks hooks = {.before = disturb, .context = t};
  ot_loop_request request = {.run = &t->config->run,
                             .settings = t->config->settings,
                             .sink = hear,
                             .context = t,
                             .hooks = &hooks};
  OT_TRY(ot_world_create(&request.run->parallel, comm, &request.world));
  ot_run_audits *audits = NULL;
  ot_loop_check checks[8];
  damage_watch watch = {.t = t, .world = request.world};
  ot_status status = ot_run_audits_create(request.run, request.world, &audits);
  const ot_loop_check *const made = ot_run_audits_checks(audits, &request.num_checks);
  for (int i = 0; i < request.num_checks; i++) checks[i] = made[i];
  checks[request.num_checks++] = (ot_loop_check){.run = flip, .context = &watch};
  request.checks = checks;
  if (status == OT_OK) status = ot_loop_run(&request);
  ot_run_audits_destroy(&audits);
  ot_world_destroy(&request.world);
  return status;
}

static ot_status train_all(const char *directory, training *t, const char **sets, int num_sets) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_config config;
  const ot_config_request request = {
      .path = scratch_path(directory, "run.yaml"), .sets = sets, .num_sets = num_sets};
  ot_status status = ot_config_load(&request, &arena, &config);
  t->config = &config;
  if (status == OT_OK) status = ot_comm_run_threads(4, train_audited, t);
  ot_heap_release(&heap);
  return status;
}

static void every_audit_looks_at_a_clean_run(void **state) {
  (void)state;
  char directory[SCRATCH_BYTES];
  prepare(directory);
  training t = {0};
  const char *sets[] = {"audit={every: 4, checks: [ranks, causality, precision, drift, state]}"};
  if (train_all(directory, &t, sets, 1) != OT_OK) fail_msg("%s", ot_fail_message());
  assert_int_equal(count(directory, "\"audit_findings/ranks\":0}"), 2);
  assert_int_equal(count(directory, "\"audit_findings/causality\":0}"), 2);
  assert_int_equal(count(directory, "\"audit_findings/precision\":0}"), 2);
  assert_int_equal(count(directory, "\"audit_findings/drift\":0}"), 2);
  assert_int_equal(count(directory, "\"step\":5,\"audit_findings/state\":0}"), 1);
  assert_int_equal(count(directory, "\"audit_findings/state\""), 1);
  scratch_destroy(directory);
}

static void audits_change_no_bit_of_a_run(void **state) {
  (void)state;
  char directory[SCRATCH_BYTES];
  char *text[2];
  for (int i = 0; i < 2; i++) {
    int64_t bytes;
    prepare(directory);
    training t = {0};
    const char *sets[] = {i == 0 ? "audit={every: 0}"
                                 : "audit={every: 2, checks: [causality, drift, state]}"};
    if (train_all(directory, &t, sets, 1) != OT_OK) fail_msg("%s", ot_fail_message());
    char *const all = scratch_read(scratch_path(directory, "out/metrics.jsonl"), &bytes);
    text[i] = calloc(1, (size_t)bytes + 1);
    memcpy(text[i], all, (size_t)bytes);
    free(all);
    scratch_destroy(directory);
  }
  double loss[2] = {0};
  for (int i = 0; i < 2; i++) {
    const char *const line = strstr(text[i], "{\"step\":8,\"loss\":");
    assert_non_null(line);
    loss[i] = atof(strstr(line, "loss\":") + 6);
    free(text[i]);
  }
  assert_true(loss[0] == loss[1] && loss[0] > 0);
}

static void a_flipped_bit_without_replica_ends_the_run_after_one_step(void **state) {
  (void)state;
  char directory[SCRATCH_BYTES];
  prepare(directory);
  training t = {.damage_step = 4};
  const char *sets[] = {"audit={every: 2, checks: [ranks, state]}", "parallel.zero=1"};
  assert_int_equal(train_all(directory, &t, sets, 2), OT_FINDINGS);
  assert_message_has("step 5: the audit of state found 1: second moments of model.layers.0.");
  assert_message_has(" on rank 3 changed after the update of step 4 (1 tensor of this rank)");
  assert_non_null(strstr(t.notes, "finding 1: state_changed"));
  assert_int_equal(count(directory, "\"step\":3,\"audit_findings/state\":0}"), 1);
  assert_int_equal(count(directory, "\"step\":5,\"audit_findings/state\":1}"), 1);
  assert_int_equal(count(directory, "\"audit_findings/ranks\":1}"), 0);
  scratch_destroy(directory);
}

static void a_flipped_weight_that_a_gather_replaces_is_found(void **state) {
  (void)state;
  static const int elements[] = {1, 900, 1800, 2700, 3600, 4500, 5400, 6300};
  char directory[SCRATCH_BYTES];
  for (int zero = 0; zero <= 2; zero++) {
    for (int i = 0; i < (zero == 1 ? 8 : 2); i++) {
      char level[32];
      prepare(directory);
      snprintf(level, sizeof level, "parallel.zero=%d", zero);
      training t = {.weight_step = 1 + i % 3, .weight = elements[i]};
      const char *sets[] = {"audit={every: 1, checks: [ranks]}", "parallel.tp=1", level};
      const ot_status status = train_all(directory, &t, sets, 3);
      if (status != OT_FINDINGS) fail_msg("zero %d, element %d: not found", zero, elements[i]);
      assert_message_has("before the update of step");
      assert_message_has(": rank 3 against rank");
      assert_int_equal(count(directory, "\"audit_findings/ranks\":0}"), t.weight_step - 1);
      scratch_destroy(directory);
    }
  }
}

static void counters_that_change_in_memory_end_the_run(void **state) {
  (void)state;
  static const int64_t bits[][3] = {{1LL << 40}, {2}, {0, 4}, {0, 1LL << 33}, {0, 0, 64}};
  char directory[SCRATCH_BYTES];
  for (int i = 0; i < 5; i++) {
    prepare(directory);
    training t = {.position_step = 4};
    memcpy(t.position, bits[i], sizeof t.position);
    const char *sets[] = {"audit={every: 0}"};
    assert_int_equal(train_all(directory, &t, sets, 1), OT_FINDINGS);
    assert_message_has("two copies of the run's counters differ");
    assert_true(is_saved(directory, "step-00000002"));
    assert_false(is_saved(directory, "step-00000004"));
    assert_false(is_saved(directory, "step-00000008"));
    scratch_destroy(directory);
  }
}

static void a_leak_ends_a_run_like_the_command(void **state) {
  (void)state;
  char directory[SCRATCH_BYTES];
  prepare(directory);
  training t = {0};
  const char *sets[] = {"audit={every: 2, checks: [causality]}", "data.document_mask=false"};
  assert_int_equal(train_all(directory, &t, sets, 2), OT_FINDINGS);
  assert_message_has(
      "step 2: the audit of causality found 1: document_mask in layer 0, attention, documents");
  assert_non_null(strstr(t.notes, "finding 1: document_mask  layer 0, attention"));
  assert_false(is_saved(directory, "step-00000002"));
  scratch_destroy(directory);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_clean_run_is_audited_and_continues),
      cmocka_unit_test(a_flipped_bit_ends_the_run_before_a_save),
      cmocka_unit_test(every_audit_looks_at_a_clean_run),
      cmocka_unit_test(audits_change_no_bit_of_a_run),
      cmocka_unit_test(a_flipped_bit_without_replica_ends_the_run_after_one_step),
      cmocka_unit_test(a_flipped_weight_that_a_gather_replaces_is_found),
      cmocka_unit_test(counters_that_change_in_memory_end_the_run),
      cmocka_unit_test(a_leak_ends_a_run_like_the_command),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
