// SPDX-License-Identifier: Apache-2.0
// run: ranks=1..4 as threads. Records of steps on every kind of layout, which the judge finds clean
// with all their parts compared; faults planted in schedules, which it names; runs whose bits do
// not change; folders that are refused.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "files/config_file.h"
#include "files/disk.h"
#include "judge/judge.h"
#include "support/audit_case.h"
#include "support/directory_fixture.h"
#include "support/faults.h"
#include "support/mutant_tasks.h"
#include "train/step_recording.h"

// ---- recording ----

enum { STEPS = 3 };

typedef struct recording {
  const char *path;             // null: no step is recorded
  int step;                     // that is recorded
  ot_step_report steps[STEPS];  // of the leader
} recording;

static ot_status run_steps(audit_rank *rank) {
  recording *const r = rank->context;
  for (int i = 0; i < STEPS; i++) {
    ot_step_report report;
    const bool recorded = r->path && i + 1 == r->step;
    if (recorded) OT_TRY(ot_step_recording_begin(rank->trainer, r->path));
    ot_status status = audit_step(rank, &report);
    if (recorded) status = ot_step_recording_end(rank->trainer, status, &report);
    OT_TRY(status);
    if (ot_world_is_leader(rank->world)) r->steps[i] = report;
  }
  return OT_OK;
}

// A new folder under `directory`.
static const char *folder(void) {
  static int count;
  return ot_arena_format(&arena, "%s/record%d", directory, count++);
}

static ot_judge_report judge(const char *path) {
  ot_judge_report report;
  const ot_judge_request request = {.record = path, .threads = 1};
  if (ot_judge_record(&request, &arena, &report) != OT_OK) fail_msg("%s", ot_fail_message());
  return report;
}

static ot_judge_report record(const audit_request *request, int step) {
  recording r = {.path = folder(), .step = step};
  if (audit_run(request, run_steps, &r) != OT_OK) fail_msg("%s", ot_fail_message());
  return judge(r.path);
}

// ---- sound steps ----

static audit_request dense(void) {
  return (audit_request){
      .batch = 4, .micro_batch = 1, .model = audit_model(2, false), .documents = true};
}

// `layout` with the settings of dense() and `model`.
static audit_request on(const audit_request *layout, const ot_model *model) {
  audit_request request = *layout;
  request.batch = 4;
  request.micro_batch = 1;
  request.documents = true;
  request.model = *model;
  return request;
}

// A model of tests/fixtures/parity, with room for the ids of the data.
static ot_model family(const char *name) {
  const ot_config_request request = {0};
  ot_config_model read;
  const char *const path =
      ot_arena_format(&arena, OT_SOURCE_DIR "/tests/fixtures/parity/%s/config.json", name);
  if (ot_config_load_model(path, &request, &arena, &read) != OT_OK)
    fail_msg("%s", ot_fail_message());
  read.model.vocab_size = 300;
  return read.model;
}

static const ot_judged_part *part_of(const ot_judge_report *report, const char *name) {
  for (int i = 0; i < report->num_parts; i++)
    if (strcmp(report->parts[i].name, name) == 0) return &report->parts[i];
  fail_msg("no part %s:\n%s", name, ot_judge_report_print(report));
  return NULL;
}

static ot_judge_report assert_clean(const audit_request *request) {
  static const char *const parts[] = {"loss", "gradient", "norm", "update"};
  const ot_judge_report report = record(request, 2);  // moments are not zero
  const char *const text = ot_judge_report_print(&report);
  if (report.verdict != OT_VERDICT_CLEAN) fail_msg("%s:\n%s", audit_describe(request), text);
  for (int i = 0; i < OT_COUNT(parts); i++) assert_true(part_of(&report, parts[i])->agrees);
  return report;
}

static void sound_steps_are_clean_on_every_layout(void **state) {
  (void)state;
  static const struct {
    audit_request layout;
    bool tied, copies;
  } rows[] = {
      {{.pp = 1}, false, false},
      {{.dp_replicate = 2}, true, true},
      {{.dp_shard = 2, .zero = 1}, false, false},
      {{.dp_shard = 2, .zero = 2}, true, false},
      {{.dp_shard = 2, .zero = 3}, false, false},
      {{.tp = 2}, true, true},
      {{.tp = 4}, false, true},
      {{.cp = 2}, false, true},
      {{.pp = 2}, true, true},  // both stages hold the tied table
      {{.dp_replicate = 2, .tp = 2}, false, true},
      {{.dp_shard = 2, .pp = 2, .zero = 3}, true, true},
  };
  for (int i = 0; i < OT_COUNT(rows); i++) {
    const ot_model model = audit_model(2, rows[i].tied);
    const audit_request request = on(&rows[i].layout, &model);
    const ot_judge_report report = assert_clean(&request);
    if (rows[i].copies) assert_non_null(strstr(part_of(&report, "replicas")->words, "same bits"));
    // Two layers of nine tensors, embedding, norm and, untied, head.
    assert_non_null(strstr(part_of(&report, "gradient")->words,
                           rows[i].tied ? "20 tensors of 20" : "21 tensors of 21"));
    assert_non_null(
        strstr(part_of(&report, "update")->words, rows[i].tied ? "20 tensors" : "21 tensors"));
  }
}

// Transposed tensors, stacks, interleaved rows, router biases, latent attention, shared experts.
static void sound_steps_of_many_families_are_clean(void **state) {
  (void)state;
  static const struct {
    const char *family;
    audit_request layout;
  } rows[] = {
      {"gpt2", {.pp = 2, .cp = 2}},
      {"gpt2", {.dp_shard = 2, .zero = 2}},
      {"gpt-oss", {.dp_shard = 2, .tp = 2, .zero = 3, .ep = 2}},
      {"glm4-moe", {.dp_shard = 2, .tp = 2, .zero = 2, .ep = 4}},
      {"deepseek-v3", {.pp = 2}},
      {"mixtral", {.dp_shard = 2, .zero = 1}},
      {"llama-residuals", {.cp = 2}},
  };
  for (int i = 0; i < OT_COUNT(rows); i++) {
    const ot_model model = family(rows[i].family);
    const audit_request request = on(&rows[i].layout, &model);
    const ot_judge_report report = assert_clean(&request);
    if (!strstr(report.step, "fp32") || strstr(report.step, "bf16")) fail_msg("%s", report.step);
  }
}

// Experts are balanced within sequences, of which each batch has two.
static void balancing_losses_of_sequences_are_those_of_config_json(void **state) {
  (void)state;
  audit_request request = audit_moe_request(2, 4);
  request.batch = 4;
  request.micro_batch = 2;
  request.dp_shard = 2;
  request.model.moe.balance = OT_MOE_BALANCE_AUX_LOSS;
  request.model.moe.aux_coefficient = 0.02;
  request.model.moe.z_coefficient = 1e-3;
  const ot_judge_report report = assert_clean(&request);
  assert_true(part_of(&report, "balance_loss_of_sequences")->agrees);
}

static void keep_moments_narrow(ot_run *run, void *context) {
  (void)context;
  run->precision.moments = OT_BF16;
}

static void sound_steps_of_other_types_are_clean(void **state) {
  (void)state;
  for (int i = 0; i < 3; i++) {
    audit_request request = dense();
    request.dp_shard = 2;
    request.zero = 1;
    request.fp64 = i == 0;
    request.bf16 = i > 0;
    if (i == 2) request.settings = keep_moments_narrow;
    (void)assert_clean(&request);
  }
}

// ---- the settings of the optimizer ----

static ot_optimizer_group groups[] = {
    {.pattern = "*embed*", .lr_factor = 1, .lr = 4e-3, .weight_decay = 0},
    {.pattern = "*mlp*", .lr_factor = 0.5, .lr = -1, .weight_decay = -1},
};

static void with_groups(ot_run *run, void *context) {
  (void)context;
  run->optimizer.groups = groups;
  run->optimizer.num_groups = OT_COUNT(groups);
  run->learning_rate.warmup_steps = 4;
}

// Groups beside another optimizer of matrices, whose rate is not that of their tensors.
static void with_muon(ot_run *run, void *context) {
  with_groups(run, context);
  run->optimizer.name = OT_OPTIMIZER_MUON;
  run->optimizer.adamw_lr = 5e-4;
}

static void groups_of_the_optimizer_are_those_of_the_run(void **state) {
  (void)state;
  audit_request request = dense();
  request.settings = with_groups;
  (void)assert_clean(&request);
  request.settings = with_muon;
  const ot_judge_report report = assert_clean(&request);
  // Embedding, head and norms.
  assert_non_null(strstr(part_of(&report, "update")->words, "7 tensors after AdamW"));
}

// ---- faults ----

static void lose_tensor_sums(ot_schedule *s, ot_arena *scratch, void *context) {
  (void)scratch;
  (void)context;
  tasks_drop(s, (task_kind){REDUCE_PHASE, OT_OP_ALL_REDUCE, OT_GROUP_TENSOR_SUM});
}

static void lose_context_sums(ot_schedule *s, ot_arena *scratch, void *context) {
  (void)scratch;
  (void)context;
  tasks_drop(s, (task_kind){REDUCE_PHASE, OT_OP_ALL_REDUCE, OT_GROUP_CONTEXT_SUM});
}

static void lose_replica_sums(ot_schedule *s, ot_arena *scratch, void *context) {
  (void)scratch;
  (void)context;
  tasks_drop(s, (task_kind){REDUCE_PHASE, OT_OP_ALL_REDUCE, OT_GROUP_REPLICATE});
}

static void double_tensor_sums(ot_schedule *s, ot_arena *scratch, void *context) {
  (void)context;
  tasks_repeat(s, scratch, (task_kind){REDUCE_PHASE, OT_OP_ALL_REDUCE, OT_GROUP_TENSOR_SUM});
}

static void double_the_rate(ot_trainer *trainer, void *context) {
  ot_executor *const executor = ot_runtime_executor(ot_trainer_runtime(trainer));
  (void)context;
  ot_executor_set_scalar(executor, OT_SCALAR_LEARNING_RATE,
                         2 * ot_executor_scalar(executor, OT_SCALAR_LEARNING_RATE));
}

static void planted_faults_are_named(void **state) {
  (void)state;
  static const struct {
    ot_trainer_hooks hooks;
    audit_request layout;
    const char *what, *axis, *factor;
  } rows[] = {
      {{.amend = lose_tensor_sums, .unchecked = true}, {.tp = 2}, "missing_reduction", "tp", "sum"},
      {{.amend = lose_context_sums, .unchecked = true},
       {.cp = 2},
       "missing_reduction",
       "cp",
       "sum"},
      {{.amend = lose_replica_sums, .unchecked = true},
       {.dp_replicate = 2, .dp_shard = 2, .zero = 1},
       "missing_reduction",
       "dp_replicate",
       "sum"},
      {{.amend = double_tensor_sums, .unchecked = true}, {.tp = 2}, "factor_on_some", NULL, "tp"},
      {{.before = double_the_rate}, {.dp_shard = 2, .zero = 1}, "update_rate", NULL, "2"},
  };
  for (int i = 0; i < OT_COUNT(rows); i++) {
    const ot_model model = audit_model(2, false);
    audit_request request = on(&rows[i].layout, &model);
    request.hooks = &rows[i].hooks;
    const ot_judge_report report = record(&request, 1);
    const char *const text = ot_judge_report_print(&report);
    if (report.num_findings == 0 || strcmp(report.findings[0].what, rows[i].what) != 0)
      fail_msg("row %d: %s", i, text);
    const ot_judge_finding *const f = &report.findings[0];
    if (rows[i].axis && (!f->axis || strcmp(f->axis, rows[i].axis) != 0)) fail_msg("%s", text);
    if (!f->factor || strcmp(f->factor, rows[i].factor) != 0) fail_msg("%s", text);
  }
}

// Micro-batches have the same tokens on all ranks.
static void repeat_samples(const ot_trainer *trainer, int micro_batch, ot_micro_batch *rows,
                           void *context) {
  (void)trainer;
  (void)context;
  for (int32_t i = 0; i < rows->B * rows->T; i++) {
    rows->tokens[i] = (5 * i + micro_batch) % 256;
    rows->targets[i] = (5 * (i + 1) + micro_batch) % 256;
  }
}

static void samples_that_repeat_are_named(void **state) {
  (void)state;
  const ot_trainer_hooks hooks = {.rows = repeat_samples};
  audit_request request = dense();
  request.documents = false;
  request.dp_shard = 2;
  request.zero = 1;
  request.hooks = &hooks;
  const ot_judge_report report = record(&request, 1);
  const char *const text = ot_judge_report_print(&report);
  if (report.num_findings != 1) fail_msg("%s", text);
  assert_string_equal(report.findings[0].what, "batches_repeat");
  assert_non_null(strstr(text, "2 of 4 sequences repeat another one of the step"));
}

// ---- the bits of the run ----

static void a_recorded_run_has_the_bits_of_any_other(void **state) {
  (void)state;
  audit_request request = dense();
  request.dp_shard = 2;
  request.tp = 2;
  request.zero = 3;
  recording recorded = {.path = folder(), .step = 2}, plain = {0};
  assert_int_equal(audit_run(&request, run_steps, &recorded), OT_OK);
  assert_int_equal(audit_run(&request, run_steps, &plain), OT_OK);
  for (int i = 0; i < STEPS; i++) {
    const ot_step_report *const a = &recorded.steps[i], *const b = &plain.steps[i];
    assert_memory_equal(&a->loss, &b->loss, sizeof a->loss);
    assert_memory_equal(&a->gradient_norm, &b->gradient_norm, sizeof a->gradient_norm);
    assert_true(a->loss > 0 && a->tokens == b->tokens);
  }
}

// ---- folders and disks ----

static void write_file(const char *path) { assert_int_equal(ot_disk_write(path, "x", 1), OT_OK); }

static int count_files(const char *path) {
  ot_disk_names names;
  assert_int_equal(ot_disk_list(&arena, path, &names), OT_OK);
  return (int)names.count;
}

static void folders_that_are_not_free_are_refused(void **state) {
  (void)state;
  const audit_request request = dense();
  recording r = {.path = folder(), .step = 1};
  assert_int_equal(ot_disk_make_directory(r.path), OT_OK);
  write_file(ot_arena_format(&arena, "%s/notes", r.path));
  assert_int_equal(audit_run(&request, run_steps, &r), OT_USAGE);
  assert_non_null(strstr(ot_fail_message(), "not empty"));
  assert_int_equal(count_files(r.path), 1);
  r.path = folder();
  write_file(r.path);
  assert_int_equal(audit_run(&request, run_steps, &r), OT_USAGE);
  assert_non_null(strstr(ot_fail_message(), "folder"));
}

// Fails one call of the system while a step is recorded, on one of two ranks.
static ot_status record_with_fault(audit_rank *rank) {
  const char *const *const path = rank->context;
  ot_step_report report;
  OT_TRY(ot_step_recording_begin(rank->trainer, *path));
  const ot_status status = audit_step(rank, &report);
  return ot_step_recording_end(rank->trainer, status, &report);
}

static void a_full_disk_leaves_no_record(void **state) {
  (void)state;
  static const int calls[] = {2, 3, 4, 5, 8, 40, 150};
  audit_request request = dense();
  request.dp_shard = 2;
  request.zero = 1;
  for (int i = 0; i < OT_COUNT(calls); i++) {
    const char *path = folder();
    assert_int_equal(ot_disk_make_directory(path), OT_OK);
    faults_arm(calls[i], ENOSPC);
    const ot_status status = audit_run(&request, record_with_fault, &path);
    faults_arm(0, 0);
    if (status != OT_ENVIRONMENT) fail_msg("call %d: status %d", calls[i], (int)status);
    assert_int_equal(count_files(path), 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(sound_steps_are_clean_on_every_layout, open_directory,
                                      close_directory),
      cmocka_unit_test_setup_teardown(sound_steps_of_many_families_are_clean, open_directory,
                                      close_directory),
      cmocka_unit_test_setup_teardown(balancing_losses_of_sequences_are_those_of_config_json,
                                      open_directory, close_directory),
      cmocka_unit_test_setup_teardown(sound_steps_of_other_types_are_clean, open_directory,
                                      close_directory),
      cmocka_unit_test_setup_teardown(groups_of_the_optimizer_are_those_of_the_run, open_directory,
                                      close_directory),
      cmocka_unit_test_setup_teardown(planted_faults_are_named, open_directory, close_directory),
      cmocka_unit_test_setup_teardown(samples_that_repeat_are_named, open_directory,
                                      close_directory),
      cmocka_unit_test_setup_teardown(a_recorded_run_has_the_bits_of_any_other, open_directory,
                                      close_directory),
      cmocka_unit_test_setup_teardown(folders_that_are_not_free_are_refused, open_directory,
                                      close_directory),
      cmocka_unit_test_setup_teardown(a_full_disk_leaves_no_record, open_directory,
                                      close_directory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
