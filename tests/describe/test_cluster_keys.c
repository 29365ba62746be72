// SPDX-License-Identifier: Apache-2.0
// run: serial. Cluster files: output reads back unchanged, errors are named.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "describe/cluster_keys.h"
#include "describe/measured_keys.h"
#include "files/tree_file.h"
#include "host/heap.h"

static const char good[] =
    "name: two-nodes\nnum_devices: 16\ndevice: h100\nbasis: guessed\n"
    "flops_bf16: 989e12\nflops_fp32: 67e12\nmemory_bytes_per_s: 3.35e12\nmemory_bytes: "
    "80G\nlaunch_s: 5e-6\nthreads: 3\n"
    "levels:\n  - {name: nvlink, size: 8, bytes_per_s: 450e9, latency_s: 2e-6}\n"
    "  - {name: network, size: 16, bytes_per_s: 50e9, latency_s: 5e-6}\n";

static ot_status read(const char *text, ot_arena *arena, ot_cluster *out) {
  const ot_tree_origin origin = {.name = "cluster.yaml"};
  ot_node *tree;
  OT_TRY(ot_tree_parse_yaml(&origin, text, (int64_t)strlen(text), arena, &tree));
  return ot_cluster_read(tree, arena, out);
}

static void written_data_reads_back(void **state) {
  (void)state;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_cluster first, second;
  assert_int_equal(read(good, &arena, &first), OT_OK);
  assert_int_equal(first.num_levels, 2);
  assert_int_equal(first.level[1].size, 16);
  assert_int_equal(first.device.memory_bytes, 80000000000);
  assert_true(first.device.flops[OT_BF16] == 989e12);
  assert_int_equal(ot_cluster_read(ot_cluster_write(&first, &arena), &arena, &second), OT_OK);
  assert_int_equal(ot_cluster_hash(&first), ot_cluster_hash(&second));
  assert_true(first.device.launch_s == second.device.launch_s);
  assert_int_equal(second.device.threads, 3);
  assert_int_equal(second.basis, OT_BASIS_GUESSED);
  assert_string_equal(ot_cluster_basis_name(second.basis), "guessed");
  ot_heap_release(&heap);
}

static void expect(const char *text, const char *part) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_cluster cluster;
  assert_int_equal(read(text, &arena, &cluster), OT_USAGE);
  if (!strstr(ot_fail_message(), part)) fail_msg("\"%s\" lacks \"%s\"", ot_fail_message(), part);
  ot_heap_release(&heap);
}

static void errors_are_named(void **state) {
  (void)state;
  expect("name: x\nnum_devices: 0\nmemory_bytes: 1G\n", "num_devices");
  expect("name: x\nnum_devices: 1\nmemory_bytes: 1G\nflops: 3\n", "flops");
  expect("name: x\nnum_devices: 1\nbasis: sure\n",
         "one of unknown, fitted, extrapolated, guessed, measured, quick, calibrated");
  expect("name: x\nnum_devices: 1\nmemory_bytes: 1G\nmemory_bytes_per_s: 1e9\n", "no flops");
  expect(
      "name: x\nnum_devices: 4\nmemory_bytes: 1G\nmemory_bytes_per_s: 1e9\nflops_fp32: 1e9\n"
      "levels: [{name: a, size: 2, bytes_per_s: 1e9}]\n",
      "joins 2 of 4");
}

static const char described[] =
    "name: x\nnum_devices: 16\nflops_bf16: 155e12\nmemory_bytes: 48e9\nmemory_bytes_per_s: 768e9\n"
    "levels:\n  - {name: pcie, size: 8, bytes_per_s: 32e9}\n"
    "  - {name: network, size: 16, bytes_per_s: 12e9, efficiency: 0.9}\n";

static void what_a_file_does_not_state_is_that_of_guessed_devices(void **state) {
  (void)state;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_cluster c, guessed;
  assert_int_equal(read(described, &arena, &c), OT_OK);
  assert_true(c.device.matrix_efficiency == 0.6 && c.device.memory_efficiency == 0.78);
  assert_true(c.device.attention_efficiency == 0.3 && c.device.processors == 128);
  assert_true(c.level[0].efficiency == 0.7 && c.level[1].efficiency == 0.9);
  assert_true(c.device.other_flops_per_s > 0);
  assert_int_equal(c.basis, OT_BASIS_GUESSED);
  assert_string_equal(c.assumed,
                      "matrix_efficiency 0.6, memory_efficiency 0.78, attention_efficiency 0.3, "
                      "levels.0.efficiency 0.7, processors 128");
  // Zeros state nothing, whatever the file claims of their origin.
  const char *const zeros = ot_arena_format(
      &arena, "%sbasis: fitted\nmatrix_efficiency: 0\nmemory_efficiency: 0.5\n", described);
  assert_int_equal(read(zeros, &arena, &guessed), OT_OK);
  assert_true(guessed.device.matrix_efficiency == 0.6 && guessed.device.memory_efficiency == 0.5);
  assert_int_equal(guessed.basis, OT_BASIS_GUESSED);
  // The rates of a measured machine are those that it reached.
  const char *const measured = ot_arena_format(
      &arena,
      "%sbasis: quick\nmatrix_efficiency: 0\nmemory_efficiency: 0\nattention_efficiency: 0.4\n"
      "processors: 84\n",
      described);
  assert_int_equal(read(measured, &arena, &c), OT_OK);
  assert_true(c.device.matrix_efficiency == 0 && c.device.attention_efficiency == 0.4);
  ot_heap_release(&heap);
}

static void expect_file(const char *lines, const char *message, const char *hint) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_cluster cluster;
  const char *const text = ot_arena_format(&arena, "%s%s", described, lines);
  assert_int_equal(read(text, &arena, &cluster), OT_USAGE);
  assert_string_equal(ot_fail_message(), message);
  if (!strstr(ot_fail_hint_text(), hint))
    fail_msg("\"%s\" lacks \"%s\"", ot_fail_hint_text(), hint);
  ot_heap_release(&heap);
}

static void impossible_figures_are_refused_where_they_stand(void **state) {
  (void)state;
  expect_file("matrix_efficiency: 5.6e-05\n",
              "matrix_efficiency: 5.6e-05 cannot be; allowed: 0.001 to 1, or 0 (not known) "
              "(cluster.yaml:9:20)",
              "without --quick");
  expect_file("attention_efficiency: 1.3\n",
              "attention_efficiency: 1.3 is out of range; allowed: 0 to 1 (cluster.yaml:9:23)",
              "orthant presets --keys");
  expect_file(
      "usable_memory_bytes: 46\n",
      "usable_memory_bytes: 46 is too small; the unit is that of the name, without a prefix "
      "(cluster.yaml:9:22)",
      "try 46e9 or 46e12");
  expect_file("contention: 0.5\n",
              "contention: 0.5; allowed: 1 or more, or 0 (not known) (cluster.yaml:9:13)",
              "--keys");
  expect_file("flops_fp8: 1e12\n",
              "flops_fp8: 1e+12 is less than flops_bf16, 1.55e+14 (cluster.yaml:9:12)", "--keys");
  expect_file(
      "measured: {products: [{rows: 8, columns: 8, depth: 8, dtype: bf16, flops_per_s: "
      "200e12}]}\n",
      "measured.products.0.flops_per_s: 2e+14 is above the peak of the device, flops_bf16 "
      "1.55e+14 (cluster.yaml:9:81)",
      "without --quick");
  expect_file("gpus: 8\n", "unknown key \"gpus\" (cluster.yaml:9:7)", "num_devices");
  expect("name: x\nnum_devices: 8\nflops_bf16: 1e14\nmemory_bytes: 8e9\n",
         "memory_bytes_per_s is needed (cluster.yaml:1:1)");
  expect(
      "name: m\nbetween: {bytes_per_s: 1e9}\npools:\n"
      "  - {name: a, num_devices: 1, flops_bf16: 1e14, memory_bytes: 8e9, memory_bytes_per_s: "
      "1e12}\n"
      "  - {name: b, num_devices: 1, flops_bf16: 1, memory_bytes: 8e9, memory_bytes_per_s: 1e12}\n",
      "pools.1.flops_bf16: 1 is too small");
  expect(
      "name: m\nbetween: {bytes_per_s: 1e9, efficiency: 1e-5}\npools:\n"
      "  - {name: a, num_devices: 1, flops_bf16: 1e14, memory_bytes: 8e9, memory_bytes_per_s: "
      "1e12}\n",
      "between.efficiency: 1e-05 cannot be; allowed: 0.001 to 1, or 0 (not known) "
      "(cluster.yaml:2:41)");
}

// As on a busy machine: timings of one call vary widely, or no formula fits them.
static void bad_measurements_are_doubted(void **state) {
  (void)state;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_kernel_rates kernels[] = {{.op = "linear", .fit = {8, 0.1, 0.05}},
                               {.op = "rope", .fit = {8, 0.3, 0.2}}};
  const ot_cluster cluster = {.name = "mine", .measured = {.kernels = kernels, .num_kernels = 2}};
  assert_null(ot_measured_warning(&cluster, &arena));
  assert_false(ot_measured_is_doubtful(&cluster));
  kernels[1].fit.spread = 6.5;
  assert_non_null(strstr(ot_measured_warning(&cluster, &arena), "timings of rope varied by 650%"));
  assert_true(ot_measured_is_doubtful(&cluster));
  kernels[1].fit.spread = 0;
  kernels[0].fit.residual = 0.9;
  assert_non_null(strstr(ot_measured_warning(&cluster, &arena), "the fit of linear misses"));
  ot_heap_release(&heap);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(written_data_reads_back),
      cmocka_unit_test(errors_are_named),
      cmocka_unit_test(what_a_file_does_not_state_is_that_of_guessed_devices),
      cmocka_unit_test(impossible_figures_are_refused_where_they_stand),
      cmocka_unit_test(bad_measurements_are_doubted),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
