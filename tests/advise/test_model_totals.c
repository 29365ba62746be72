// SPDX-License-Identifier: Apache-2.0
// run: any machine. Memory breakdowns against published sizes, closed formulas for the work per
// token, and the tasks of the model's own programs.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "advise/model_totals.h"
#include "estimate/estimate.h"
#include "support/paper_job.h"
#include "support/preset_sizes.h"

static ot_model_totals totals_of(const char *preset, int64_t length) {
  paper_job p;
  ot_model_totals totals;
  paper_job_create(preset, 8, 8, length, &p);
  ot_model_totals_build(&p.job, &totals);
  paper_job_destroy(&p);
  return totals;
}

// 7 G x 16 bytes = 112 GB: two devices of 80 GB; 70 G: 14; 405 G: 81. The sizes of the real models
// differ slightly.
static void states_need_sixteen_bytes_per_parameter(void **state) {
  (void)state;
  static const struct {
    const char *preset;
    int64_t parameters, devices;
  } rows[] = {{"llama2-7b", 6738415616, 2},
              {"llama2-70b", 68976648192, 14},
              {"llama3-70b", 70553706496, 15},
              {"llama3.1-405b", 405853388800, 82}};
  for (int i = 0; i < OT_COUNT(rows); i++) {
    const ot_model_totals totals = totals_of(rows[i].preset, 4096);
    assert_int_equal(totals.parameters, rows[i].parameters);
    assert_int_equal(totals.state_bytes, 16 * rows[i].parameters);
    assert_int_equal(totals.min_devices_for_state, rows[i].devices);
    assert_int_equal(totals.weight_bytes, 2 * rows[i].parameters);
    assert_int_equal(totals.gradient_bytes, 2 * rows[i].parameters);
    assert_int_equal(totals.optimizer_bytes, 12 * rows[i].parameters);
  }
}

// 405B: all but the table, the head and the norms are matrices, which keep one moment of 4 bytes.
static void muon_keeps_one_moment_of_matrices(void **state) {
  (void)state;
  paper_job p;
  ot_model_totals adamw, muon;
  paper_job_create("llama3.1-405b", 8, 8, 4096, &p);
  ot_model_totals_build(&p.job, &adamw);
  const ot_run run = {.optimizer = {.name = OT_OPTIMIZER_MUON}};
  p.job.run = &run;
  ot_model_totals_build(&p.job, &muon);
  const int64_t others = 2LL * 128256 * 16384 + 253LL * 16384;
  assert_int_equal(adamw.optimizer_bytes - muon.optimizer_bytes, 4 * (adamw.parameters - others));
  paper_job_destroy(&p);
}

// Llama 3 70B at 8,192 tokens: GEMMs 6 x (parameters without embedding and norms) = 417 G,
// attention 12 L h (s + 1) / 2 = 32.2 G more.
static void work_of_a_token_is_six_times_the_matrices_and_attention(void **state) {
  (void)state;
  const ot_model_totals totals = totals_of("llama3-70b", 8192);
  const double table = 128256.0 * 8192, norms = 161.0 * 8192;
  const double matrices = 70553706496.0 - table - norms;
  assert_true(totals.multiplied == matrices);
  assert_float_equal(totals.flops_per_token, 6 * matrices + 12 * 80.0 * 8192 * 8193 / 2, 1);
  assert_float_equal(totals.flops_per_token, 449.2e9, 0.1e9);
  assert_true(totals.flops_per_token == 3 * totals.forward_flops_per_token);
}

// gemma3-1b: 5 of 6 layers see 512 keys, so a long sequence costs little more.
static void windows_limit_the_keys_of_a_query(void **state) {
  (void)state;
  const ot_model_totals totals = totals_of("gemma3-1b", 4096);
  const double local = (512.0 * 513 / 2 + (4096.0 - 512) * 512) / 4096, global = 4097.0 / 2;
  const double keys = 22 * local + 4 * global;
  assert_float_equal(totals.forward_flops_per_token, 2 * totals.multiplied + 4 * 4.0 * 256 * keys,
                     1);
}

// DeepSeek-V3 (arXiv 2412.19437): 671 B parameters, 37 B of them active.
static void a_token_uses_few_experts(void **state) {
  (void)state;
  const ot_model_totals totals = totals_of("deepseek-v3", 4096);
  assert_float_equal((double)totals.parameters, 671e9, 1e9);
  assert_float_equal((double)totals.active_parameters, 37.5e9, 0.5e9);
  assert_true(totals.multiplied < (double)totals.active_parameters);
  assert_true(totals.multiplied > (double)totals.active_parameters - 1e9);
}

static void every_preset_multiplies_with_all_but_table_norms_and_biases(void **state) {
  (void)state;
  for (int i = 0; i < preset_count; i++) {
    paper_job p;
    ot_model_totals totals;
    paper_job_create(preset_sizes[i].name, 8, 8, 1024, &p);
    ot_model_totals_build(&p.job, &totals);
    const double C = (double)p.model.hidden_size;
    const double table = C * (double)p.model.vocab_size;
    const double positions = p.model.learned_positions ? C * (double)p.model.max_positions : 0;
    // A tied table is also multiplied with, as the head.
    const double looked_up = p.model.tie_word_embeddings ? 0 : table;
    const double rest =
        (double)totals.active_parameters - looked_up - positions - totals.multiplied;
    if (rest <= 0 || rest > 20 * C * (double)(p.model.num_layers + 1)) {
      fail_msg("%s: %.0f elements are left for norms and biases", preset_sizes[i].name, rest);
    }
    paper_job_destroy(&p);
  }
}

// The tasks of the model's programs match the work that the planner counts.
static void the_programs_match_the_planned_work(void **state) {
  (void)state;
  paper_job p;
  ot_model_totals totals;
  ot_estimator *estimator;
  ot_estimate estimate;
  paper_job_create("llama3-8b", 8, 8, 4096, &p);
  const ot_candidate c = {.tp = 8,
                          .pp = 1,
                          .vpp = 1,
                          .cp = 1,
                          .ep = 1,
                          .etp = 1,
                          .dp = 1,
                          .dp_shard = 1,
                          .zero = 1,
                          .micro_batch_size = 1,
                          .micro_batches = 8,
                          .pipeline = OT_PIPELINE_1F1B,
                          .recompute = OT_RECOMPUTE_NONE};
  ot_model_totals_build(&p.job, &totals);
  if (ot_estimator_build(&p.job, &p.arena, &estimator) != OT_OK) fail_msg("%s", ot_fail_message());
  if (ot_estimate_build(estimator, &c, &estimate) != OT_OK) fail_msg("%s", ot_fail_message());
  const double ratio = estimate.model_flops / (totals.flops_per_token * 8 * 4096);
  if (ratio < 0.999999 || ratio > 1.000001) fail_msg("%.9g of the planned work", ratio);
  paper_job_destroy(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(states_need_sixteen_bytes_per_parameter),
      cmocka_unit_test(muon_keeps_one_moment_of_matrices),
      cmocka_unit_test(work_of_a_token_is_six_times_the_matrices_and_attention),
      cmocka_unit_test(windows_limit_the_keys_of_a_query),
      cmocka_unit_test(a_token_uses_few_experts),
      cmocka_unit_test(every_preset_multiplies_with_all_but_table_norms_and_biases),
      cmocka_unit_test(the_programs_match_the_planned_work),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
