// SPDX-License-Identifier: Apache-2.0
// run: alone. Kernels on a described device against hand-counted waves, bytes and FLOPs; shares of
// the peak within published measurements.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "simulate/price.h"
#include "simulate/price_gemm.h"

enum { PROCESSORS = 100 };

// 1 TFLOP/s per processor, 1 TB/s, both fully attainable.
static ot_cluster plain(void) {
  ot_cluster cluster = {.name = "paper",
                        .num_devices = 1,
                        .device = {.name = "abacus",
                                   .memory_bytes_per_s = 1e12,
                                   .memory_bytes = 80000000000,
                                   .processors = PROCESSORS,
                                   .host_op_s = 1e-5}};
  cluster.device.flops[OT_BF16] = 1e14;
  cluster.device.flops[OT_F8] = 2e14;
  return cluster;
}

static ot_kernel_style compiled(void) {
  return (ot_kernel_style){.attention = OT_ATTENTION_FLASH_2,
                           .pass_factor = 1,
                           .host_ops = 1,
                           .host_ahead = true,
                           .fused_sums = true,
                           .fused_accumulation = true};
}

static ot_operand matrix(int64_t rows, int64_t columns) {
  return (ot_operand){.base = OT_BASE_SCRATCH,
                      .type = {.dtype = OT_BF16, .rank = 2, .dim = {rows, columns}}};
}

static ot_task linear(int64_t rows, int64_t outputs, int64_t inputs) {
  return (ot_task){.op = OT_OP_LINEAR,
                   .in = {matrix(rows, inputs), matrix(outputs, inputs)},
                   .out = {matrix(rows, outputs)}};
}

static ot_price price(const ot_cluster *cluster, const ot_kernel_style *style, ot_dtype products,
                      const ot_task *task) {
  const ot_simulation simulation = {
      .cluster = cluster, .other_flops_per_s = 1e12, .style = style, .products = products};
  static const ot_group_shape alone[OT_GROUP_KINDS];
  ot_price out;
  if (ot_price_task(&simulation, alone, task, &out) != OT_OK) fail_msg("%s", ot_fail_message());
  return out;
}

static double seconds(const ot_task *task) {
  const ot_cluster cluster = plain();
  const ot_kernel_style style = compiled();
  return price(&cluster, &style, OT_BF16, task).device_s;
}

// 2 m n k at the full rate, plus the time to fill the tiles' pipelines: 32 of k.
static double ideal_s(double m, double n, double k) { return 2 * m * n * (k + 32) / 1e14; }

static void expect_near(double value, double by_hand, double within) {
  if (fabs(value / by_hand - 1) > within) fail_msg("%.9g, by hand %.9g", value, by_hand);
}

// 100 tiles of 256 x 128 on 100 processors: one full wave.
static void a_gemm_of_full_waves_has_the_full_rate(void **state) {
  (void)state;
  const ot_task task = linear(2560, 1280, 4096);
  expect_near(seconds(&task), ideal_s(2560, 1280, 4096), 1e-12);
}

// 101 tiles cost as much as 200 if there is one more column of tiles: the last wave counts in full,
// unless smaller tiles or split-K are better. The loss is never more than two waves.
static void the_last_wave_is_counted_whole(void **state) {
  (void)state;
  const ot_task full = linear(2560, 1280, 480), more = linear(2560, 1288, 480);
  const double extra = seconds(&more) / seconds(&full);
  assert_true(extra > 1.1 && extra <= 2);
}

static void rows_that_are_no_whole_16_bytes_are_slow(void **state) {
  (void)state;
  ot_cluster cluster = plain();
  const ot_kernel_style style = compiled();
  cluster.device.unaligned_efficiency = 0.25;
  const ot_task even = linear(2560, 1280, 4096), odd = linear(2560, 1280, 4092);
  const double a = price(&cluster, &style, OT_BF16, &even).device_s;
  const double b = price(&cluster, &style, OT_BF16, &odd).device_s;
  expect_near(b / a, 4, 0.01);
}

static void a_thin_gemm_is_bound_by_reading_its_weights(void **state) {
  (void)state;
  ot_cluster cluster = plain();
  const ot_kernel_style style = compiled();
  const ot_task task = linear(8, 8192, 8192);
  const double bytes = 2.0 * (8192.0 * 8192 + 2 * 8.0 * 8192);
  cluster.device.memory_bytes_per_s = 1e11;
  expect_near(price(&cluster, &style, OT_BF16, &task).device_s, bytes / 1e11, 1e-12);
}

// dx is [rows, inputs] = dy w, dw is [outputs, inputs] = dy^T x: each has the FLOPs of the forward.
static void gradients_of_a_layer_have_their_own_gemm_shapes(void **state) {
  (void)state;
  const ot_task dx = {.op = OT_OP_LINEAR_DX,
                      .in = {matrix(2560, 4096), matrix(4096, 1280)},
                      .out = {matrix(2560, 1280)}};
  const ot_task dw = {.op = OT_OP_LINEAR_DW,
                      .in = {matrix(4096, 2560), matrix(4096, 1280)},
                      .out = {matrix(2560, 1280)}};
  expect_near(seconds(&dx), ideal_s(2560, 1280, 4096), 1e-12);
  expect_near(seconds(&dw), ideal_s(2560, 1280, 4096), 1e-12);
}

static void sums_outside_the_gemm_are_separate_passes(void **state) {
  (void)state;
  const ot_cluster cluster = plain();
  ot_kernel_style style = compiled();
  ot_task task = linear(2560, 1280, 4096);
  task.in[3] = matrix(2560, 1280);
  const double fused = price(&cluster, &style, OT_BF16, &task).device_s;
  style.fused_sums = false;
  const double apart = price(&cluster, &style, OT_BF16, &task).device_s;
  expect_near(apart - fused, 3 * 2 * 2560.0 * 1280 / 1e12, 1e-9);
}

static void fp8_multiplies_at_its_own_rate_and_casts(void **state) {
  (void)state;
  const ot_cluster cluster = plain();
  ot_kernel_style style = compiled();
  const ot_task task = linear(2560, 1280, 4096);
  expect_near(price(&cluster, &style, OT_F8, &task).device_s, ideal_s(2560, 1280, 4096) / 2, 1e-12);
  style.cast_bytes = 4;
  const double casts = 4 * 2560.0 * 4096 / 1e12;
  expect_near(price(&cluster, &style, OT_F8, &task).device_s, ideal_s(2560, 1280, 4096) / 2 + casts,
              1e-12);
}

static void an_unsupported_dtype_is_rejected(void **state) {
  (void)state;
  ot_cluster cluster = plain();
  cluster.device.flops[OT_F8] = 0;
  const ot_kernel_style style = compiled();
  const ot_simulation simulation = {
      .cluster = &cluster, .other_flops_per_s = 1, .style = &style, .products = OT_F8};
  static const ot_group_shape alone[OT_GROUP_KINDS];
  const ot_task task = linear(8, 8, 8);
  ot_price out;
  assert_int_equal(ot_price_task(&simulation, alone, &task, &out), OT_USAGE);
  assert_non_null(strstr(ot_fail_message(), "abacus has no flops of fp8"));
}

// ---- experts ----

enum { GROUPS = 4, EXPERT = 1024, WIDE = 2048 };

static ot_operand offsets(void) {
  return (ot_operand){.base = OT_BASE_SCRATCH,
                      .type = {.dtype = OT_I32, .rank = 1, .dim = {GROUPS + 1}}};
}

static ot_task grouped(int64_t rows) {
  return (ot_task){.op = OT_OP_GROUPED_LINEAR,
                   .attributes = {.num_experts = GROUPS, .experts_per_token = 1},
                   .in = {matrix(rows, WIDE), matrix(GROUPS * EXPERT, WIDE), offsets()},
                   .out = {matrix(rows, EXPERT)}};
}

// With ep, buffers can hold more tokens than a balanced load has; only received ones are
// multiplied.
static void unused_rows_are_not_multiplied(void **state) {
  (void)state;
  const ot_cluster cluster = plain();
  const ot_kernel_style style = compiled();
  const ot_task all = grouped(4096);
  ot_task roomy = grouped(3 * 4096);
  roomy.attributes.num_experts = 3 * GROUPS;
  roomy.attributes.held_experts = GROUPS;
  roomy.attributes.exchange_rows = 3 * 4096;
  roomy.attributes.copy_rows = 2048;
  roomy.attributes.expert_copies = 2;
  expect_near(price(&cluster, &style, OT_BF16, &roomy).device_s,
              price(&cluster, &style, OT_BF16, &all).device_s, 1e-12);
}

// The depth of the weight-gradient GEMM is the number of tokens of an expert, which is no multiple
// of 16 bytes: padding makes it one.
static void rows_of_an_expert_are_padded_to_whole_blocks(void **state) {
  (void)state;
  ot_cluster cluster = plain();
  const ot_kernel_style style = compiled();
  cluster.device.unaligned_efficiency = 0.1;
  ot_task odd = {.op = OT_OP_GROUPED_LINEAR_DW,
                 .attributes = {.num_experts = GROUPS, .experts_per_token = 1},
                 .in = {matrix(GROUPS * 4067, EXPERT), matrix(GROUPS * 4067, WIDE), offsets()},
                 .out = {matrix(GROUPS * EXPERT, WIDE)}};
  ot_task even = odd;
  even.in[0] = matrix(GROUPS * 4096, EXPERT);
  even.in[1] = matrix(GROUPS * 4096, WIDE);
  expect_near(price(&cluster, &style, OT_F8, &odd).device_s,
              price(&cluster, &style, OT_F8, &even).device_s, 1e-12);
}

// Few tokens for each expert: the weight gradient is bound by its own bytes. A GEMM that
// accumulates reads and writes it in its own type; otherwise a pass reads both and writes the sum.
static void weight_gradients_of_experts_are_read_and_written(void **state) {
  (void)state;
  enum { ROWS = GROUPS * 32 };
  const ot_cluster cluster = plain();
  ot_kernel_style style = compiled();
  ot_task task = {.op = OT_OP_GROUPED_LINEAR_DW,
                  .attributes = {.num_experts = GROUPS, .experts_per_token = 1},
                  .in = {matrix(ROWS, EXPERT), matrix(ROWS, WIDE), offsets()},
                  .out = {matrix(GROUPS * EXPERT, WIDE)}};
  const double elements = GROUPS * EXPERT * (double)WIDE, operands = ROWS * (EXPERT + (double)WIDE);
  task.out[0].type.dtype = OT_F32;
  task.attributes.accumulate = true;
  style.fused_accumulation = true;
  expect_near(price(&cluster, &style, OT_F8, &task).device_s, (8 * elements + operands) / 1e12,
              1e-9);
  task.attributes.accumulate = false;
  expect_near(price(&cluster, &style, OT_F8, &task).device_s, (4 * elements + operands) / 1e12,
              1e-9);
  style.fused_accumulation = false;
  const double alone_s = price(&cluster, &style, OT_F8, &task).device_s;
  task.attributes.accumulate = true;
  expect_near(price(&cluster, &style, OT_F8, &task).device_s - alone_s, 3 * 2 * elements / 1e12,
              1e-9);
}

// The op that produces tokens for grouped GEMMs casts them; the GEMMs do not.
static void rows_of_experts_are_cast_once(void **state) {
  (void)state;
  const ot_cluster cluster = plain();
  ot_kernel_style style = compiled();
  const ot_task product = grouped(4096);
  const ot_task activation = {.op = OT_OP_GLU,
                              .in = {matrix(4096, 2 * EXPERT), matrix(4096, 1)},
                              .out = {matrix(4096, EXPERT)}};
  const double product_s = price(&cluster, &style, OT_F8, &product).device_s;
  const double activation_s = price(&cluster, &style, OT_F8, &activation).device_s;
  style.cast_bytes = 4;
  expect_near(price(&cluster, &style, OT_F8, &product).device_s, product_s, 1e-12);
  expect_near(price(&cluster, &style, OT_F8, &activation).device_s - activation_s,
              4 * 4096.0 * EXPERT / 1e12, 1e-9);
}

// The input of a fused kernel is still on the chip; a dense MLP is unaffected.
static void fused_experts_only_write_what_is_between_them(void **state) {
  (void)state;
  const ot_cluster cluster = plain();
  ot_kernel_style style = compiled();
  ot_task activation = {.op = OT_OP_GLU,
                        .in = {matrix(4096, 2 * EXPERT), matrix(4096, 1)},
                        .out = {matrix(4096, EXPERT)}};
  style.cast_bytes = 4;
  style.fused_experts = true;
  const ot_price fused = price(&cluster, &style, OT_F8, &activation);
  expect_near(fused.device_s, 2 * 4096.0 * EXPERT / 1e12, 1e-9);
  assert_true(fused.host_s == 0);
  activation.in[1] = (ot_operand){0};
  expect_near(price(&cluster, &style, OT_F8, &activation).device_s, 3 * 2 * 4096.0 * EXPERT / 1e12,
              1e-9);
}

// For each expert of the rank: its quantizers or its bias.
static void the_host_works_for_each_expert_in_8_bits_or_with_a_bias(void **state) {
  (void)state;
  const ot_cluster cluster = plain();
  ot_kernel_style style = compiled();
  style.expert_ops = 2;
  style.group_ops = 3;
  ot_simulation simulation = {.cluster = &cluster,
                              .other_flops_per_s = 1e12,
                              .style = &style,
                              .products = OT_BF16,
                              .expert_ranks = 2};
  static const ot_group_shape alone[OT_GROUP_KINDS];
  const ot_task task = grouped(4096);
  ot_price out;
  assert_int_equal(ot_price_task(&simulation, alone, &task, &out), OT_OK);
  expect_near(out.host_s, 2e-5, 1e-12);
  simulation.expert_biases = true;
  assert_int_equal(ot_price_task(&simulation, alone, &task, &out), OT_OK);
  expect_near(out.host_s, (2 + 3.0 * GROUPS / 2) * 1e-5, 1e-12);
  simulation.expert_biases = false;
  simulation.products = OT_F8;
  assert_int_equal(ot_price_task(&simulation, alone, &task, &out), OT_OK);
  expect_near(out.host_s, (2 + 3.0 * GROUPS / 2) * 1e-5, 1e-12);
}

// ---- attention ----

enum { T = 2048, HEADS = 16, HEAD = 128 };

static ot_task attention(void) {
  return (ot_task){.op = OT_OP_ATTENTION,
                   .attributes = {.sequence_length = T,
                                  .num_heads = HEADS,
                                  .num_kv_heads = HEADS,
                                  .head_dim = HEAD,
                                  .compute = OT_F32},
                   .in = {matrix(T, 3 * HEADS * HEAD)},
                   .out = {matrix(T, HEADS * HEAD), matrix(T, HEADS)}};
}

// Two GEMMs over the lower triangle: 4 T (T+1)/2 d per head.
static void fused_attention_takes_its_visible_flops_at_its_share(void **state) {
  (void)state;
  ot_cluster cluster = plain();
  const ot_kernel_style style = compiled();
  const ot_task task = attention();
  const double flops = 4 * HEADS * (T * (T + 1.0) / 2) * HEAD;
  cluster.device.attention_efficiency = 0.5;
  expect_near(price(&cluster, &style, OT_BF16, &task).device_s, flops / 0.5e14, 1e-9);
  cluster.device.half_keys = T;
  expect_near(price(&cluster, &style, OT_BF16, &task).device_s, flops / 0.25e14, 1e-9);
}

static void older_flash_attention_has_shares_of_its_own(void **state) {
  (void)state;
  ot_cluster cluster = plain();
  ot_kernel_style style = compiled();
  const ot_task task = attention();
  style.attention = OT_ATTENTION_FLASH_3;
  cluster.device.attention_efficiency = 0.6;
  cluster.device.attention_1_efficiency = 0.3;
  const double newest = price(&cluster, &style, OT_BF16, &task).device_s;
  style.attention = OT_ATTENTION_FLASH_2;
  expect_near(price(&cluster, &style, OT_BF16, &task).device_s, newest, 1e-9);
  cluster.device.attention_2_efficiency = 0.2;
  expect_near(price(&cluster, &style, OT_BF16, &task).device_s, 3 * newest, 1e-9);
  style.attention = OT_ATTENTION_FLASH_1;
  expect_near(price(&cluster, &style, OT_BF16, &task).device_s, 2 * newest, 1e-9);
}

// Software that may run either kernel: their geometric mean, where both are common.
static void attention_of_unknown_software_is_between_two_kernels(void **state) {
  (void)state;
  ot_cluster cluster = plain();
  ot_kernel_style style = compiled();
  const ot_task task = attention();
  style.attention = OT_ATTENTION_FLASH_3;
  cluster.device.attention_efficiency = 0.8;
  cluster.device.attention_2_efficiency = 0.2;
  const double newest = price(&cluster, &style, OT_BF16, &task).device_s;
  style.attention = OT_ATTENTION_FLASH;
  expect_near(price(&cluster, &style, OT_BF16, &task).device_s, newest, 1e-9);
  cluster.device.attention_2_common = true;
  expect_near(price(&cluster, &style, OT_BF16, &task).device_s, 2 * newest, 1e-9);
}

// The first block of a ring runs like one call, later ones are merged with it.
static void later_blocks_of_a_ring_are_slower(void **state) {
  (void)state;
  const ot_cluster cluster = plain();
  ot_kernel_style style = compiled();
  ot_task task = attention();
  task.op = OT_OP_ATTENTION_BLOCK;
  task.in[1] = task.in[0];
  task.attributes.context_size = 2;
  style.merged_share = 0.5;
  const double first = price(&cluster, &style, OT_BF16, &task).device_s;
  task.in[4] = task.out[0];
  task.in[4].base = OT_BASE_SCRATCH;
  expect_near(price(&cluster, &style, OT_BF16, &task).device_s, 2 * first, 1e-9);
  style.merged_share = 0;
  expect_near(price(&cluster, &style, OT_BF16, &task).device_s, first, 1e-9);
}

// (500 / 700)^0.6 of the clock.
static void a_power_limit_slows_attention_and_products(void **state) {
  (void)state;
  ot_cluster cluster = plain();
  const ot_kernel_style style = compiled();
  const ot_task task = attention();
  const double whole = price(&cluster, &style, OT_BF16, &task).device_s;
  cluster.device.power_share = 500.0 / 700;
  expect_near(price(&cluster, &style, OT_BF16, &task).device_s, whole / 0.81719, 1e-4);
  const ot_gemm_shape product = {1, 4096, 4096, 4096, OT_BF16, 0};
  const double limited = ot_gemm_s(&cluster.device, &product);
  cluster.device.power_share = 0;
  expect_near(limited, ot_gemm_s(&cluster.device, &product) / 0.81719, 1e-4);
}

// All pairs are multiplied, and T x T scores of 2 bytes cross memory score_passes times.
static void unfused_attention_moves_its_scores(void **state) {
  (void)state;
  const ot_cluster cluster = plain();
  ot_kernel_style style = compiled();
  const ot_task task = attention();
  style.attention = OT_ATTENTION_UNFUSED;
  const double without = price(&cluster, &style, OT_BF16, &task).device_s;
  style.score_passes = 4;
  const double with = price(&cluster, &style, OT_BF16, &task).device_s;
  expect_near(with - without, 4 * 2.0 * HEADS * T * T / 1e12, 1e-9);
  assert_true(without > 4.0 * HEADS * T * T * HEAD / 1e14);
}

// ---- other ops ----

static void elementwise_passes_run_at_the_attained_bandwidth(void **state) {
  (void)state;
  ot_cluster cluster = plain();
  ot_kernel_style style = compiled();
  const ot_task task = {
      .op = OT_OP_ADD, .in = {matrix(1024, 1024), matrix(1024, 1024)}, .out = {matrix(1024, 1024)}};
  cluster.device.memory_efficiency = 0.5;
  style.pass_factor = 2;
  const ot_price one = price(&cluster, &style, OT_BF16, &task);
  expect_near(one.device_s, 2 * 3 * 2.0 * 1024 * 1024 / 0.5e12, 1e-12);
  expect_near(one.host_s, 1e-5, 1e-12);
}

static void a_host_running_ahead_overlaps_the_device(void **state) {
  (void)state;
  const ot_cluster cluster = plain();
  ot_kernel_style style = compiled();
  const ot_simulation simulation = {.cluster = &cluster, .style = &style};
  expect_near(ot_price_total_s(&simulation, (ot_price){.device_s = 3, .host_s = 2}), cbrt(35),
              1e-12);
  expect_near(ot_price_total_s(&simulation, (ot_price){.device_s = 2, .host_s = 3}), cbrt(35),
              1e-12);
  expect_near(ot_price_total_s(&simulation, (ot_price){.device_s = 1, .host_s = 100}), 100, 1e-6);
  assert_true(ot_price_total_s(&simulation, (ot_price){.device_s = 2, .host_s = 0}) == 2);
  style.host_ahead = false;
  assert_true(ot_price_total_s(&simulation, (ot_price){.device_s = 2, .host_s = 3}) == 5);
}

static void overlapped_traffic_slows_kernels_at_most_by_its_time(void **state) {
  (void)state;
  ot_cluster cluster = plain();
  const ot_kernel_style style = compiled();
  const ot_simulation simulation = {.cluster = &cluster, .style = &style};
  assert_true(ot_price_overlap_slowdown_s(&simulation, 10, 4) == 0);
  cluster.device.contention = 1.5;
  assert_true(ot_price_overlap_slowdown_s(&simulation, 10, 4) == 2);
  assert_true(ot_price_overlap_slowdown_s(&simulation, 4, 10) == 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_gemm_of_full_waves_has_the_full_rate),
      cmocka_unit_test(the_last_wave_is_counted_whole),
      cmocka_unit_test(rows_that_are_no_whole_16_bytes_are_slow),
      cmocka_unit_test(a_thin_gemm_is_bound_by_reading_its_weights),
      cmocka_unit_test(gradients_of_a_layer_have_their_own_gemm_shapes),
      cmocka_unit_test(sums_outside_the_gemm_are_separate_passes),
      cmocka_unit_test(fp8_multiplies_at_its_own_rate_and_casts),
      cmocka_unit_test(an_unsupported_dtype_is_rejected),
      cmocka_unit_test(unused_rows_are_not_multiplied),
      cmocka_unit_test(rows_of_an_expert_are_padded_to_whole_blocks),
      cmocka_unit_test(weight_gradients_of_experts_are_read_and_written),
      cmocka_unit_test(rows_of_experts_are_cast_once),
      cmocka_unit_test(fused_experts_only_write_what_is_between_them),
      cmocka_unit_test(the_host_works_for_each_expert_in_8_bits_or_with_a_bias),
      cmocka_unit_test(fused_attention_takes_its_visible_flops_at_its_share),
      cmocka_unit_test(older_flash_attention_has_shares_of_its_own),
      cmocka_unit_test(attention_of_unknown_software_is_between_two_kernels),
      cmocka_unit_test(later_blocks_of_a_ring_are_slower),
      cmocka_unit_test(a_power_limit_slows_attention_and_products),
      cmocka_unit_test(unfused_attention_moves_its_scores),
      cmocka_unit_test(elementwise_passes_run_at_the_attained_bandwidth),
      cmocka_unit_test(a_host_running_ahead_overlaps_the_device),
      cmocka_unit_test(overlapped_traffic_slows_kernels_at_most_by_its_time),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
