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
         "one of unknown, fitted, extrapolated, guessed, measured");
  expect("name: x\nnum_devices: 1\nmemory_bytes: 1G\nmemory_bytes_per_s: 1e9\n", "no flops");
  expect(
      "name: x\nnum_devices: 4\nmemory_bytes: 1G\nmemory_bytes_per_s: 1e9\nflops_fp32: 1e9\n"
      "levels: [{name: a, size: 2, bytes_per_s: 1e9}]\n",
      "joins 2 of 4");
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
  kernels[1].fit.spread = 6.5;
  assert_non_null(strstr(ot_measured_warning(&cluster, &arena), "timings of rope varied by 650%"));
  kernels[1].fit.spread = 0;
  kernels[0].fit.residual = 0.9;
  assert_non_null(strstr(ot_measured_warning(&cluster, &arena), "the fit of linear misses"));
  ot_heap_release(&heap);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(written_data_reads_back),
      cmocka_unit_test(errors_are_named),
      cmocka_unit_test(bad_measurements_are_doubted),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
