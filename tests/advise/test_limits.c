// SPDX-License-Identifier: Apache-2.0
// run: any machine. Limits against worked examples: devices of 600 achieved TFLOP/s, eight per
// node, 50 GB/s each to other nodes, so that C / (d BW) is 1,500 tokens.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "advise/limits.h"
#include "base/math.h"
#include "describe/pipeline_rules.h"
#include "support/paper_job.h"

static const double node_bytes_per_s = 8 * 50e9;

// All parameters are gathered, and all take part in GEMMs.
static ot_gather_traffic traffic_of(double gather_bytes, double reduce_bytes) {
  return (ot_gather_traffic){.flops_per_s = 600e12,
                             .forward_flops = 2 * 70e9,
                             .parameters = 70e9,
                             .gather_bytes = gather_bytes,
                             .reduce_bytes = reduce_bytes,
                             .regathered = true};
}

static ot_cluster cluster_of(void) {
  return (ot_cluster){.name = "paper",
                      .num_devices = 1 << 20,
                      .num_levels = 2,
                      .level = {{.name = "nvlink", .size = 8, .bytes_per_s = 450e9},
                                {.name = "net", .size = 1 << 20, .bytes_per_s = 50e9}}};
}

static void floors_are_those_of_the_worked_example(void **state) {
  (void)state;
  const ot_gather_traffic narrow = traffic_of(2, 2), wide = traffic_of(2, 4);
  const ot_token_floor bf16 = ot_token_floor_of(&narrow, node_bytes_per_s);
  const ot_token_floor fp32 = ot_token_floor_of(&wide, node_bytes_per_s);
  assert_float_equal(bf16.forward, 1500, 1e-9);
  assert_float_equal(bf16.backward, 1500, 1e-9);
  assert_float_equal(fp32.forward, 1500, 1e-9);
  assert_float_equal(fp32.backward, 2250, 1e-9);
}

// 70.6B at 450 TFLOP/s: 1,125 forward, 1,687.5 backward with fp32 reductions; 1.73 M tokens for
// 1,024 devices, and 16 M tokens for about 9,500.
static void seventy_billion_on_1024_devices(void **state) {
  (void)state;
  ot_gather_traffic t = traffic_of(2, 4);
  t.flops_per_s = 450e12;
  const ot_token_floor floor = ot_token_floor_of(&t, node_bytes_per_s);
  assert_float_equal(floor.forward, 1125, 1e-9);
  assert_float_equal(floor.backward, 1687.5, 1e-9);
  const ot_cluster cluster = cluster_of();
  assert_float_equal(ot_crossover_devices(&t, &cluster, 1024 * 1687.5, false), 1024, 1e-6);
  assert_float_equal(ot_crossover_devices(&t, &cluster, 16e6, false), 16e6 / 1687.5, 1e-6);
}

static void weights_that_stay_gathered_save_half_of_the_backward(void **state) {
  (void)state;
  ot_gather_traffic t = traffic_of(2, 2);
  t.regathered = false;
  assert_float_equal(ot_token_floor_of(&t, node_bytes_per_s).backward, 750, 1e-9);
}

static void a_larger_batch_moves_the_crossover_right(void **state) {
  (void)state;
  const ot_gather_traffic t = traffic_of(2, 2);
  const ot_cluster cluster = cluster_of();
  assert_float_equal(ot_crossover_devices(&t, &cluster, 4e6, false), 4e6 / 1500, 1e-6);
  assert_float_equal(ot_crossover_devices(&t, &cluster, 8e6, false), 8e6 / 1500, 1e-6);
}

// Each device uses only its own link: an eighth.
static void hierarchical_collectives_move_the_crossover_right(void **state) {
  (void)state;
  const ot_gather_traffic t = traffic_of(2, 2);
  const ot_cluster cluster = cluster_of();
  assert_float_equal(ot_crossover_devices(&t, &cluster, 8e6, true), 1e6 / 1500, 1e-6);
}

// 671 of 37: gathers 18 times the parameters that a token uses.
static void sparsity_moves_the_crossover_left(void **state) {
  (void)state;
  ot_gather_traffic t = traffic_of(2, 2);
  const ot_cluster cluster = cluster_of();
  t.parameters = 671e9;
  t.forward_flops = 2 * 37e9;
  assert_float_equal(ot_token_floor_of(&t, node_bytes_per_s).forward, 1500 * 671.0 / 37, 1e-6);
  assert_float_equal(ot_crossover_devices(&t, &cluster, 8e6, false), 8e6 / 1500 * 37 / 671, 1e-6);
}

// A batch too small for the links between nodes still saturates one node: inside it the minimum is
// 600 TFLOP/s x 2 / (2 x 450 GB/s) = 1,333 tokens.
static void a_small_batch_stays_inside_a_node(void **state) {
  (void)state;
  const ot_gather_traffic t = traffic_of(2, 2);
  const ot_cluster cluster = cluster_of();
  assert_float_equal(ot_crossover_devices(&t, &cluster, 4000, false), 3, 1e-9);
  assert_float_equal(ot_crossover_devices(&t, &cluster, 11000, false), 8, 1e-9);
  assert_float_equal(ot_crossover_devices(&t, &cluster, 100, false), 1, 1e-9);
}

// A machine with one kind of link has as many devices as those links join.
static void single_level_links_have_a_limit(void **state) {
  (void)state;
  const ot_gather_traffic t = traffic_of(2, 2);
  ot_cluster cluster = cluster_of();
  cluster.num_levels = 1;
  assert_float_equal(ot_crossover_devices(&t, &cluster, 1e9, false), 8, 1e-9);
}

// The measured efficiency of a link is used, not its nominal rate.
static void links_use_their_attained_rate(void **state) {
  (void)state;
  const ot_gather_traffic t = traffic_of(2, 2);
  ot_cluster cluster = cluster_of();
  cluster.level[1].efficiency = 0.5;
  assert_float_equal(ot_crossover_devices(&t, &cluster, 8e6, false), 8e6 / 3000, 1e-6);
}

static void a_critical_batch_of_ten_million_tokens_feeds_a_thousand_devices(void **state) {
  (void)state;
  paper_job p;
  ot_model_totals totals;
  ot_limits limits;
  paper_job_create("llama3-8b", 1024, 1024, 10000, &p);
  ot_model_totals_build(&p.job, &totals);
  const ot_limits_request request = {&p.job, &totals, 600e12, 10e6, 0};
  ot_limits_build(&request, &limits);
  assert_int_equal(limits.batch_floor_devices, 1000);
  assert_true(limits.critical_batch_tokens == 10e6);
  paper_job_destroy(&p);
}

// B = 22.91 D^0.47 sequences of 512 tokens: 27.7 M tokens for 15 T, and 2^0.47 for twice the data.
static void the_critical_batch_grows_with_the_length_of_the_run(void **state) {
  (void)state;
  assert_float_equal(ot_critical_batch_tokens(15e12), 27.7e6, 0.1e6);
  const double ratio = ot_critical_batch_tokens(2e12) / ot_critical_batch_tokens(1e12);
  assert_float_equal(ratio, ot_pow(2, 0.47), 1e-12);
  assert_true(ot_critical_batch_tokens(0) == 0);
}

static void bubbles_are_idle_over_the_whole_step(void **state) {
  (void)state;
  assert_float_equal(ot_pipeline_bubble(OT_PIPELINE_1F1B, 8, 1, 16), 7.0 / 23, 1e-15);
  assert_float_equal(ot_pipeline_bubble(OT_PIPELINE_1F1B, 8, 1, 32), 7.0 / 39, 1e-15);
  assert_float_equal(ot_pipeline_bubble(OT_PIPELINE_INTERLEAVED, 8, 4, 16), 7.0 / 71, 1e-15);
  assert_true(ot_pipeline_bubble(OT_PIPELINE_1F1B, 1, 1, 1) == 0);
}

// t <= F BW / C: 28,672 x 450 GB/s / 600 TFLOP/s.
static void tp_is_limited_by_the_gemms_that_hide_it(void **state) {
  (void)state;
  paper_job p;
  ot_model_totals totals;
  ot_limits limits;
  paper_job_create("llama3-70b", 1024, 2048, 8192, &p);
  ot_model_totals_build(&p.job, &totals);
  const ot_limits_request request = {&p.job, &totals, 600e12, 0, 0};
  ot_limits_build(&request, &limits);
  assert_float_equal(limits.tensor_ways, 28672 * 450e9 / 600e12, 1e-9);
  // Attention is work, too: slightly below the minimum for GEMMs alone.
  const double ratio = 2 * (double)totals.parameters / totals.forward_flops_per_token;
  assert_float_equal(limits.floor.forward, 1500 * ratio, 1e-6);
  assert_int_equal(limits.crossover_devices, (int64_t)(2048 * 8192 / (1500 * ratio)));
  // Whole weights on each device: 2 x 2 bytes once, overlapped with the backward pass.
  assert_int_equal(limits.crossover_replicated_devices, limits.crossover_devices);
  assert_true(limits.crossover_flat_devices < limits.crossover_devices);
  paper_job_destroy(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(floors_are_those_of_the_worked_example),
      cmocka_unit_test(seventy_billion_on_1024_devices),
      cmocka_unit_test(weights_that_stay_gathered_save_half_of_the_backward),
      cmocka_unit_test(a_larger_batch_moves_the_crossover_right),
      cmocka_unit_test(hierarchical_collectives_move_the_crossover_right),
      cmocka_unit_test(sparsity_moves_the_crossover_left),
      cmocka_unit_test(a_small_batch_stays_inside_a_node),
      cmocka_unit_test(single_level_links_have_a_limit),
      cmocka_unit_test(links_use_their_attained_rate),
      cmocka_unit_test(a_critical_batch_of_ten_million_tokens_feeds_a_thousand_devices),
      cmocka_unit_test(the_critical_batch_grows_with_the_length_of_the_run),
      cmocka_unit_test(bubbles_are_idle_over_the_whole_step),
      cmocka_unit_test(tp_is_limited_by_the_gemms_that_hide_it),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
