// SPDX-License-Identifier: Apache-2.0
// run: any machine. Costs of kernels and collectives from a measured machine's rates, by hand; the
// rates for other numbers of threads or ranks; and the cost of ranks that share cores.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "describe/engine.h"
#include "forecast/prediction.h"
#include "host/heap.h"
#include "ops/operands.h"
#include "simulate/price_measured.h"
#include "support/tiny_model.h"

// linear: 100 GFLOP/s and 10 GB/s per thread, 2 us per call, and 8 us more to wake threads.
static const ot_kernel_rates kernels[] = {
    {"linear", 1, OT_F32, 2e-6, 0, 100e9, 0, 10e9, {1, 0, 0}},
    {"linear", 4, OT_F32, 2e-6, 8e-6, 50e9, 0, 10e9, {1, 0, 0}},
};
static const ot_collective_rates collectives[] = {
    {"all_reduce", 2, 1, 10e-6, 5e9, {1, 0, 0}},
    {"all_reduce", 4, 1, 30e-6, 2e9, {1, 0, 0}},
};

static ot_cluster machine(void) {
  return (ot_cluster){.name = "paper",
                      .num_devices = 4,
                      .device = {.name = "cpu",
                                 .flops = {[OT_F32] = 100e9, [OT_F64] = 50e9},
                                 .other_flops_per_s = 1e9,
                                 .memory_bytes_per_s = 10e9,
                                 .packs = true,
                                 .memory_bytes = 1 << 30,
                                 .threads = 1},
                      .num_levels = 1,
                      .level = {{.name = "memory", .size = 4, .bytes_per_s = 1e9}},
                      .measured = {.cores = 4,
                                   .kernels = kernels,
                                   .num_kernels = OT_COUNT(kernels),
                                   .collectives = collectives,
                                   .num_collectives = OT_COUNT(collectives)}};
}

// y [rows, columns] = x [rows, depth] w^T
static ot_task product(int64_t rows, int64_t columns, int64_t depth, int threads) {
  ot_task task = {.kind = OT_TASK_COMPUTE,
                  .op = OT_OP_LINEAR,
                  .attributes = {.threads = threads, .compute = OT_F32}};
  task.in[0] = (ot_operand){.base = OT_BASE_SCRATCH, .type = ot_type_matrix(OT_F32, rows, depth)};
  task.in[1] = (ot_operand){.base = OT_BASE_WEIGHT, .type = ot_type_matrix(OT_F32, columns, depth)};
  task.out[0] =
      (ot_operand){.base = OT_BASE_SCRATCH, .type = ot_type_matrix(OT_F32, rows, columns)};
  return task;
}

static double price(const ot_cluster *cluster, const ot_task *task) {
  double seconds = 0;
  assert_true(ot_price_measured_kernel(&(ot_simulation){.cluster = cluster}, task, &seconds));
  return seconds;
}

static void expect_near(double seconds, double expected) {
  if (fabs(seconds / expected - 1) > 1e-9) fail_msg("%.12g s, not %.12g", seconds, expected);
}

static void a_gemm_costs_its_call_its_flops_and_its_bytes(void **state) {
  (void)state;
  const ot_cluster cluster = machine();
  const double flops = 2.0 * 512 * 256 * 128, bytes = 4.0 * (512 * 128 + 256 * 128 + 512 * 256);
  ot_task task = product(512, 256, 128, 1);
  expect_near(price(&cluster, &task), 2e-6 + flops / 100e9 + bytes / 10e9);
  // fp64: half the rate.
  task.attributes.compute = OT_F64;
  expect_near(price(&cluster, &task), 2e-6 + flops / 50e9 + bytes / 10e9);
}

static void threads_share_work_worth_waking_them(void **state) {
  (void)state;
  const ot_cluster cluster = machine();
  // 32 Mi multiply-adds: 8 Mi for each of 4 threads.
  const ot_task large = product(1024, 256, 128, 4), small = product(64, 64, 64, 4);
  const double flops = 2.0 * 1024 * 256 * 128;
  const double bytes = 4.0 * (1024 * 128 + 256 * 128 + 1024 * 256);
  expect_near(price(&cluster, &large), 10e-6 + flops / 4 / 50e9 + bytes / 4 / 10e9);
  expect_near(price(&cluster, &small), 2e-6 + 2.0 * 64 * 64 * 64 / 50e9 + 12.0 * 64 * 64 / 10e9);
  // Two threads were not measured: the rate of one thread, halved.
  const ot_task two = product(1024, 256, 128, 2);
  expect_near(price(&cluster, &two), 2e-6 + flops / 2 / 100e9 + bytes / 2 / 10e9);
}

static bool price_group(const ot_cluster *cluster, const char *op, int ranks, double bytes,
                        double *seconds) {
  const ot_group_shape shape = {.size = ranks, .first = 0, .stride = 1};
  return ot_price_measured_collective(cluster, op, &shape, bytes, seconds);
}

// As when a fit to small products says that large ones cost nothing.
static void no_kernel_is_faster_than_the_peak(void **state) {
  (void)state;
  static const ot_kernel_rates rates[] = {{"linear", 1, OT_F32, 1e-6, 0, 0, 0, 0, {1, 0, 0}}};
  ot_cluster cluster = machine();
  cluster.device.flops[OT_F32] = 1e9;
  cluster.measured.kernels = rates;
  cluster.measured.num_kernels = 1;
  const ot_task task = product(1024, 256, 128, 1);
  expect_near(price(&cluster, &task), 2.0 * 1024 * 256 * 128 / 1e9);
}

static void unmeasured_costs_are_not_predicted(void **state) {
  (void)state;
  const ot_cluster cluster = machine();
  ot_task task = product(64, 64, 64, 1);
  task.op = OT_OP_LINEAR_DX;
  double seconds;
  assert_false(ot_price_measured_kernel(&(ot_simulation){.cluster = &cluster}, &task, &seconds));
  assert_false(price_group(&cluster, "all_gather", 2, 100, &seconds));
}

// Through ot_price_task, as schedules are priced. 60 TFLOP/s in bf16 and 20 in fp32 were measured.
static void a_measured_gpu_costs_what_runs_in_the_same_precision_took(void **state) {
  (void)state;
  static const ot_kernel_rates rates[] = {
      {"linear", 1, OT_BF16, 3e-6, 0, 60e12, 0, 2e12, {1, 0, 0}},
      {"linear", 1, OT_F32, 4e-6, 0, 20e12, 0, 1e12, {1, 0, 0}},
  };
  const ot_cluster gpu = {
      .name = "measured",
      .basis = OT_BASIS_MEASURED,
      .num_devices = 1,
      .device = {.name = "gpu",
                 .flops = {[OT_F32] = 25e12, [OT_F64] = 10e12, [OT_BF16] = 80e12},
                 .other_flops_per_s = 25e12,
                 .memory_bytes_per_s = 2e12,
                 .memory_bytes = 1 << 30,
                 .launch_s = 1e-6,
                 .processors = 100},
      .measured = {.kernels = rates, .num_kernels = OT_COUNT(rates)}};
  const ot_kernel_style *const style = ot_engine_style(&ot_engine_orthant, &gpu.device);
  // The threads of a schedule mean nothing there.
  ot_task task = product(512, 256, 128, 4);
  task.attributes.backend = OT_BACKEND_CUDA;
  const double flops = 2.0 * 512 * 256 * 128, bytes = 4.0 * (512 * 128 + 256 * 128 + 512 * 256);
  ot_price bf16, fp32, fp64;
  ot_simulation simulation = ot_simulation_of(&gpu, style, OT_BF16);
  assert_int_equal(ot_price_task(&simulation, (ot_group_shape[OT_GROUP_KINDS]){{0}}, &task, &bf16),
                   OT_OK);
  expect_near(bf16.device_s, 3e-6 + flops / 60e12 + bytes / 2e12);
  expect_near(bf16.host_s, 1e-6);
  // A task that joins another costs its work alone.
  task.joins = true;
  assert_int_equal(ot_price_task(&simulation, (ot_group_shape[OT_GROUP_KINDS]){{0}}, &task, &bf16),
                   OT_OK);
  expect_near(bf16.device_s, flops / 60e12 + bytes / 2e12);
  assert_true(bf16.host_s == 0);
  task.joins = false;
  simulation.products = OT_F32;
  assert_int_equal(ot_price_task(&simulation, (ot_group_shape[OT_GROUP_KINDS]){{0}}, &task, &fp32),
                   OT_OK);
  expect_near(fp32.device_s, 4e-6 + flops / 20e12 + bytes / 1e12);
  // Not measured: the formula of described GPUs, at least the time at the peak rate.
  simulation.products = OT_F64;
  assert_int_equal(ot_price_task(&simulation, (ot_group_shape[OT_GROUP_KINDS]){{0}}, &task, &fp64),
                   OT_OK);
  assert_true(fp64.device_s >= flops / 10e12 && fp64.device_s < 100 * flops / 10e12);
}

static void collectives_are_those_of_as_many_ranks_or_grow_with_them(void **state) {
  (void)state;
  const ot_cluster cluster = machine();
  double seconds;
  assert_true(price_group(&cluster, "all_reduce", 2, 1e6, &seconds));
  expect_near(seconds, 10e-6 + 1e6 / 5e9);
  assert_true(price_group(&cluster, "all_reduce", 3, 1e6, &seconds));
  expect_near(seconds, 1.5 * (10e-6 + 1e6 / 5e9));
  assert_true(price_group(&cluster, "all_reduce", 4, 1e6, &seconds));
  expect_near(seconds, 30e-6 + 1e6 / 2e9);
}

// Two hosts with two ranks each: groups in a host, of one rank and of both ranks of each host.
static void collectives_across_hosts_cost_the_bytes_that_cross(void **state) {
  (void)state;
  static const ot_collective_rates rates[] = {
      {"all_gather", 2, 1, 1e-5, 8e9, {1, 0, 0}}, {"all_gather", 2, 2, 5e-5, 1e8, {1, 0, 0}},
      {"all_gather", 4, 2, 6e-5, 2e8, {1, 0, 0}}, {"message", 2, 1, 1e-5, 8e9, {1, 0, 0}},
      {"message", 2, 2, 7e-5, 0.5e8, {1, 0, 0}},
  };
  ot_cluster c = machine();
  c.host_devices = 2;
  c.measured.collectives = rates;
  c.measured.num_collectives = OT_COUNT(rates);
  const struct {
    const char *op;
    ot_group_shape group;
    double expected;  // of 1e6 bytes
  } rows[] = {
      {"all_gather", {2, 2, 1, 0}, 1e-5 + 1e6 / 8e9},
      {"all_gather", {2, 1, 2, 0}, 5e-5 + 1e6 / 1e8},
      {"all_gather", {4, 0, 1, 0}, 6e-5 + 1e6 / 2e8},
      // Four hosts: 3/4 of the bytes cross in place of 1/2, on twice the hosts.
      {"all_gather", {4, 0, 2, 0}, 2 * 6e-5 + 1.5 * 1e6 / 2e8},
      {"message", {2, 0, 1, 0}, 1e-5 + 1e6 / 8e9},
      {"message", {2, 0, 2, 0}, 7e-5 + 1e6 / 0.5e8},
      // From the last rank of a host to the first of the next: the other rank leaves it the link.
      {"message", {2, 1, 1, 0}, 7e-5 + 0.5 * 1e6 / 0.5e8},
  };
  for (size_t i = 0; i < OT_COUNT(rows); i++) {
    double seconds;
    assert_true(ot_price_measured_collective(&c, rows[i].op, &rows[i].group, 1e6, &seconds));
    expect_near(seconds, rows[i].expected);
  }
}

// ---- shared cores ----

static ot_recompute recompute = OT_RECOMPUTE_NONE;
static bool reshard = true;

static double step_on(const ot_cluster *cluster, int ranks, int pp, int zero) {
  const ot_model model = tiny_llama();
  ot_run run = tiny_run(&model);
  run.model = model;
  run.data.sequence_length = 16;
  run.batch = (ot_run_batch){.global_batch_size = 16, .micro_batch_size = 1};
  run.parallel = (ot_run_parallel){.tp = 1,
                                   .pp = pp,
                                   .vpp = 1,
                                   .cp = 1,
                                   .ep = 1,
                                   .etp = 1,
                                   .dp_replicate = 1,
                                   .zero = zero,
                                   .reshard = &reshard,
                                   .num_reshard = 1,
                                   .pipeline = OT_PIPELINE_1F1B,
                                   .recompute = &recompute,
                                   .num_recompute = 1};
  run.threads = 1;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_mesh mesh;
  ot_prediction prediction;
  assert_int_equal(ot_mesh_build(&run.parallel, ranks, &mesh), OT_OK);
  const ot_prediction_request request = {
      .run = &run, .mesh = &mesh, .cluster = cluster, .threads = 1};
  assert_int_equal(ot_prediction_build(&request, &arena, &prediction), OT_OK);
  const double seconds = prediction.steps[0].expected.step_s;
  ot_heap_release(&heap);
  return seconds;
}

// Seconds of a step on `cores` cores if only GEMMs take time; turns on a core cost `sharing`.
static double step_sharing_s(int ranks, int pp, int cores, double sharing) {
  ot_cluster cluster = machine();
  cluster.device.memory_bytes_per_s = cluster.device.other_flops_per_s = 0x1p200;
  cluster.level[0].bytes_per_s = 0x1p200;
  cluster.measured = (ot_measured_machine){.cores = cores, .sharing = sharing};
  return step_on(&cluster, ranks, pp, 1);
}

static double step_s(int ranks, int pp, int cores) { return step_sharing_s(ranks, pp, cores, 0); }

static void ranks_that_never_wait_share_cores_equally(void **state) {
  (void)state;
  assert_true(fabs(step_s(4, 1, 4) / step_s(4, 1, 8) - 1) < 1e-9);
  assert_true(fabs(step_s(4, 1, 2) / step_s(4, 1, 4) - 2) < 0.01);
  assert_true(fabs(step_s(4, 1, 1) / step_s(4, 1, 4) - 4) < 0.02);
}

static void turns_on_a_core_cost_what_was_measured(void **state) {
  (void)state;
  assert_true(fabs(step_sharing_s(4, 1, 2, 1.25) / step_s(4, 1, 2) - 1.25) < 0.01);
  assert_true(fabs(step_sharing_s(4, 1, 4, 1.25) / step_s(4, 1, 4) - 1) < 1e-9);
  assert_true(fabs(step_sharing_s(4, 1, 2, 0.9) / step_s(4, 1, 2) - 1) < 1e-9);
}

static void an_idle_core_is_used_by_another_stage(void **state) {
  (void)state;
  const double alone = step_s(2, 2, 2), shared = step_s(2, 2, 1);
  assert_true(shared > 1.2 * alone && shared < 1.9 * alone);
  // One core does the work of both stages, and of one rank with both, in the same time.
  assert_true(fabs(shared / step_s(1, 1, 1) - 1) < 0.02);
}

// Two hosts with one rank each, on one machine: no time within a host was measured.
static void ranks_asleep_at_a_slow_link_need_no_core(void **state) {
  (void)state;
  static const ot_collective_rates rates[] = {
      {"all_gather", 2, 2, 1e-5, 1e6, {1, 0, 0}},
      {"reduce_scatter", 2, 2, 1e-5, 1e6, {1, 0, 0}},
      {"all_reduce", 2, 2, 1e-5, 1e6, {1, 0, 0}},
  };
  ot_cluster cluster = machine();
  cluster.host_devices = 1;
  cluster.measured =
      (ot_measured_machine){.collectives = rates, .num_collectives = OT_COUNT(rates), .cores = 1};
  const double shared = step_on(&cluster, 2, 1, 3);
  cluster.measured.cores = 64;
  assert_true(fabs(shared / step_on(&cluster, 2, 1, 3) - 1) < 0.01);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_gemm_costs_its_call_its_flops_and_its_bytes),
      cmocka_unit_test(threads_share_work_worth_waking_them),
      cmocka_unit_test(no_kernel_is_faster_than_the_peak),
      cmocka_unit_test(unmeasured_costs_are_not_predicted),
      cmocka_unit_test(a_measured_gpu_costs_what_runs_in_the_same_precision_took),
      cmocka_unit_test(collectives_are_those_of_as_many_ranks_or_grow_with_them),
      cmocka_unit_test(collectives_across_hosts_cost_the_bytes_that_cross),
      cmocka_unit_test(ranks_that_never_wait_share_cores_equally),
      cmocka_unit_test(turns_on_a_core_cost_what_was_measured),
      cmocka_unit_test(an_idle_core_is_used_by_another_stage),
      cmocka_unit_test(ranks_asleep_at_a_slow_link_need_no_core),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
