// SPDX-License-Identifier: Apache-2.0
// run: alone. All presets parse and are consistent; capacities as sold; devices of one generation
// share one set of fitted constants; figures without a unit are rejected.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "describe/cluster_keys.h"
#include "files/tree_file.h"
#include "host/heap.h"

static const struct {
  const char *name;
  double memory_gb;
  int generation;  // devices of one generation share their constants; 0: none shared
} presets[] = {
    {"a100-40g", 40, 1},
    {"a100-80g", 80, 1},
    {"a800", 80, 1},
    {"b200", 180, 3},
    {"b300", 288, 3},
    {"gaudi2", 96, 0},
    {"gaudi3", 128, 0},
    {"gb200-nvl72", 186, 3},
    {"gb300-nvl72", 288, 3},
    {"h100", 80, 2},
    {"h20", 96, 2},
    {"h200", 141, 2},
    {"h800", 80, 2},
    {"l40s", 48, 0},
    {"mi250x", 64, 0},
    {"mi300x", 192, 0},
    {"mi325x", 256, 0},
    {"mi350x", 288, 0},
    {"mi355x", 288, 0},
    {"rtx-4090", 24, 0},
    {"rtx-5090", 32, 0},
    {"tpu-v4", 32, 0},
    {"tpu-v5e", 16, 0},
    {"tpu-v5p", 95, 0},
    {"tpu-v6e", 32, 0},
    {"trainium1", 34.359738368, 0},
    {"trainium2", 103.079215104, 0},
    {"v100", 16, 0},
};

enum { PRESETS = (int)(sizeof presets / sizeof *presets) };

static ot_status read_preset(const char *name, ot_arena *arena, ot_cluster *out) {
  ot_node *tree;
  OT_TRY(ot_tree_load(ot_arena_format(arena, "%s/presets/clusters/%s.yaml", OT_SOURCE_DIR, name),
                      arena, &tree));
  return ot_cluster_read(tree, arena, out);
}

static void every_preset_parses_with_its_data_sheet_figures(void **state) {
  (void)state;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  for (int i = 0; i < PRESETS; i++) {
    ot_cluster c;
    if (read_preset(presets[i].name, &arena, &c) != OT_OK) fail_msg("%s", ot_fail_message());
    assert_string_equal(c.name, presets[i].name);
    assert_int_not_equal(c.basis, OT_BASIS_UNKNOWN);
    assert_true((double)c.device.memory_bytes == presets[i].memory_gb * 1e9);
    // Presets without a network are single hosts.
    assert_true(c.num_devices >= (c.num_levels > 1 ? 4096 : 8) && c.device.processors > 0);
    assert_int_not_equal(c.device.vendor, OT_VENDOR_OTHER);
    // What a driver reports is near what is sold, and what a device takes is some 100 W.
    const double usable = (double)ot_device_capacity(&c.device) / (double)c.device.memory_bytes;
    assert_true(usable > 0.95 && usable < 1.1);
    assert_true(c.device.power_w == 0 || (c.device.power_w >= 250 && c.device.power_w <= 1400));
    assert_true(c.device.flops[OT_BF16] > 0 || c.device.flops[OT_F16] > 0);
    ot_cluster other;
    assert_int_equal(ot_cluster_resize(&c, 256, &other), c.num_levels > 1 ? OT_OK : OT_USAGE);
  }
  ot_heap_release(&heap);
}

static void plans_may_fill_what_the_driver_reports(void **state) {
  (void)state;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_cluster c;
  assert_int_equal(read_preset("h100", &arena, &c), OT_OK);
  assert_int_equal(ot_device_capacity(&c.device), (int64_t)81559 << 20);
  assert_int_equal(c.device.memory_bytes, 80000000000);
  c.device.usable_bytes = 0;
  assert_int_equal(ot_device_capacity(&c.device), 80000000000);
  ot_heap_release(&heap);
}

static void presets_that_no_run_calibrated_say_so(void **state) {
  (void)state;
  static const char *const fitted[] = {"a100-40g", "a100-80g",    "b200",        "b300",
                                       "h100",     "gb200-nvl72", "gb300-nvl72", "v100"};
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  for (int i = 0; i < PRESETS; i++) {
    ot_cluster c;
    bool expected = false;
    for (int k = 0; k < (int)(sizeof fitted / sizeof *fitted); k++) {
      expected = expected || strcmp(fitted[k], presets[i].name) == 0;
    }
    assert_int_equal(read_preset(presets[i].name, &arena, &c), OT_OK);
    assert_true((c.basis == OT_BASIS_FITTED) == expected);
  }
  ot_heap_release(&heap);
}

static void devices_of_a_generation_share_their_constants(void **state) {
  (void)state;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_cluster c[PRESETS];
  for (int i = 0; i < PRESETS; i++) {
    if (read_preset(presets[i].name, &arena, &c[i]) != OT_OK) fail_msg("%s", ot_fail_message());
    const ot_device_kind *const a = &c[i].device, *const shared = &c[0].device;
    assert_true(a->half_keys == shared->half_keys && a->contention == shared->contention);
    assert_true(a->host_op_s == shared->host_op_s && a->step_s == shared->step_s);
    assert_true(a->unaligned_efficiency == shared->unaligned_efficiency);
    assert_true(c[i].jitter == c[0].jitter);
    for (int k = 0; k < i; k++) {
      const ot_device_kind *const b = &c[k].device;
      if (presets[i].generation == 0 || presets[i].generation != presets[k].generation) continue;
      assert_true(a->matrix_efficiency == b->matrix_efficiency);
      assert_true(a->memory_efficiency == b->memory_efficiency);
      assert_true(a->attention_efficiency == b->attention_efficiency);
      assert_true(a->attention_1_efficiency == b->attention_1_efficiency);
      assert_true(a->attention_2_efficiency == b->attention_2_efficiency);
    }
  }
  ot_heap_release(&heap);
}

static void expect_refusal(const ot_cluster *cluster, const char *part) {
  assert_int_equal(ot_cluster_check(cluster), OT_USAGE);
  if (!strstr(ot_fail_message(), part)) fail_msg("\"%s\" lacks \"%s\"", ot_fail_message(), part);
}

static void impossible_figures_are_rejected(void **state) {
  (void)state;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_cluster good;
  assert_int_equal(read_preset("h100", &arena, &good), OT_OK);
  ot_cluster c = good;
  c.device.memory_bytes = 80;
  expect_refusal(&c, "memory_bytes: 80 is too small; the unit is that of the name");
  c = good;
  c.device.flops[OT_BF16] = 989.5;
  expect_refusal(&c, "flops_bf16: 989.5 is too small");
  c = good;
  c.level[0].bytes_per_s = 450;
  expect_refusal(&c, "levels.0.bytes_per_s: 450 is too small");
  c = good;
  c.level[1].bytes_per_s = 900e9;
  expect_refusal(
      &c,
      "levels.1.bytes_per_s: network has 9e+11, more than the 4.5e+11 of level nvlink inside it");
  c = good;
  c.device.matrix_efficiency = 1.2;
  expect_refusal(&c, "matrix_efficiency: 1.2 cannot be; allowed: 0.001 to 1");
  c = good;
  c.device.contention = 0.5;
  expect_refusal(&c, "contention: 0.5");
  ot_heap_release(&heap);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_preset_parses_with_its_data_sheet_figures),
      cmocka_unit_test(plans_may_fill_what_the_driver_reports),
      cmocka_unit_test(presets_that_no_run_calibrated_say_so),
      cmocka_unit_test(devices_of_a_generation_share_their_constants),
      cmocka_unit_test(impossible_figures_are_rejected),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
