// SPDX-License-Identifier: Apache-2.0
// run: backends=cpu
// Clusters: rejected descriptions, the level that two devices share, hashes.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "describe/cluster.h"

static ot_cluster two_nodes(void) {
  ot_cluster cluster = {
      .name = "two",
      .num_devices = 16,
      .device = {.name = "h100", .memory_bytes_per_s = 3.35e12, .memory_bytes = 80000000000},
      .num_levels = 2,
      .level = {{.name = "nvlink", .size = 8, .bytes_per_s = 450e9, .latency_s = 2e-6},
                {.name = "network", .size = 16, .bytes_per_s = 50e9, .latency_s = 5e-6}},
  };
  cluster.device.flops[OT_BF16] = 989e12;
  return cluster;
}

static void devices_share_the_innermost_level(void **state) {
  (void)state;
  const ot_cluster cluster = two_nodes();
  assert_int_equal(ot_cluster_check(&cluster), OT_OK);
  assert_int_equal(ot_cluster_level(&cluster, 3, 3), -1);
  assert_int_equal(ot_cluster_level(&cluster, 0, 7), 0);
  assert_int_equal(ot_cluster_level(&cluster, 7, 8), 1);
}

static void impossible_clusters_are_refused(void **state) {
  (void)state;
  ot_cluster cluster = two_nodes();
  cluster.level[1].size = 12;
  assert_int_equal(ot_cluster_check(&cluster), OT_USAGE);
  assert_non_null(strstr(ot_fail_message(), "not a multiple of the 8"));
  cluster = two_nodes();
  cluster.num_devices = 17;
  assert_int_equal(ot_cluster_check(&cluster), OT_USAGE);
  assert_non_null(strstr(ot_fail_message(), "16 of 17"));
  cluster = two_nodes();
  cluster.device.flops[OT_BF16] = 0;
  assert_int_equal(ot_cluster_check(&cluster), OT_USAGE);
}

static void hash_sees_every_figure(void **state) {
  (void)state;
  const ot_cluster a = two_nodes();
  ot_cluster b = a;
  b.level[1].latency_s = 6e-6;
  assert_false(ot_cluster_hash(&a) == ot_cluster_hash(&b));
  b = a;
  b.device.flops[OT_F32] = 1;
  assert_false(ot_cluster_hash(&a) == ot_cluster_hash(&b));
}

// Two ranks of two threads each on one machine of four cores.
static ot_cluster measured_machine(void) {
  ot_cluster cluster = {
      .name = "machine",
      .num_devices = 2,
      .device = {.name = "cpu",
                 .other_flops_per_s = 40,
                 .memory_bytes_per_s = 80,
                 .memory_bytes = 1000,
                 .threads = 2},
      .num_levels = 1,
      .level = {{.name = "memory", .size = 2, .bytes_per_s = 16, .latency_s = 1e-6}}};
  cluster.device.flops[OT_F32] = 100;
  return cluster;
}

static void ranks_share_the_machine_that_was_measured(void **state) {
  (void)state;
  const ot_cluster measured = measured_machine();
  const struct {
    int ranks, threads;
    double rate, link;  // relative to the measured figures
  } rows[] = {{2, 2, 1, 1},   {1, 4, 2, 1},       {1, 2, 1, 1}, {4, 1, 0.5, 0.5},
              {2, 1, 0.5, 1}, {8, 1, 0.25, 0.25}, {2, 4, 1, 1}, {1, 8, 2, 1}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    ot_cluster c;
    assert_int_equal(ot_cluster_share(&measured, rows[i].ranks, rows[i].threads, &c), OT_OK);
    assert_int_equal(c.num_devices, rows[i].ranks);
    assert_int_equal(c.level[0].size, rows[i].ranks);
    assert_true(c.device.flops[OT_F32] == 100 * rows[i].rate);
    assert_true(c.device.other_flops_per_s == 40 * rows[i].rate);
    assert_true(c.device.memory_bytes_per_s == 80 * rows[i].rate);
    assert_int_equal(c.device.memory_bytes, 2000 / rows[i].ranks);
    assert_true(c.level[0].bytes_per_s == 16 * rows[i].link);
  }
}

// Two hosts of two ranks with one core for each.
static void measured_hosts_come_one_by_one(void **state) {
  (void)state;
  ot_cluster hosts = measured_machine(), c;
  hosts.num_devices = 4;
  hosts.host_devices = 2;
  hosts.measured.cores = 4;
  hosts.device.threads = 1;
  hosts.num_levels = 2;
  hosts.level[0].size = 2;
  hosts.level[1] = hosts.level[0];
  hosts.level[1].size = 4;
  const struct {
    int ranks, cores;
    double threads_per_core;
  } rows[] = {{4, 4, 0}, {8, 8, 0}, {2, 2, 0}, {1, 2, 0}, {6, 6, 0}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    assert_int_equal(ot_cluster_threads(&hosts, rows[i].ranks, 0), 1);
    assert_int_equal(ot_cluster_share(&hosts, rows[i].ranks, 1, &c), OT_OK);
    assert_int_equal(c.num_devices, rows[i].ranks);
    assert_int_equal(c.measured.cores, rows[i].cores);
    assert_true(c.threads_per_core == rows[i].threads_per_core);
    assert_int_equal(c.level[0].size, 2);
    assert_true(c.device.memory_bytes == hosts.device.memory_bytes);
    assert_true(c.device.flops[OT_F32] == hosts.device.flops[OT_F32]);
  }
  hosts.measured.cores = 2;  // two hosts on two cores
  assert_int_equal(ot_cluster_share(&hosts, 4, 1, &c), OT_OK);
  assert_true(c.threads_per_core == 2);
}

static void described_devices_are_not_shared(void **state) {
  (void)state;
  const ot_cluster cluster = two_nodes();
  ot_cluster shared;
  assert_int_equal(ot_cluster_share(&cluster, 16, 1, &shared), OT_OK);
  assert_int_equal(ot_cluster_hash(&cluster), ot_cluster_hash(&shared));
  assert_int_equal(ot_cluster_share(&cluster, 17, 1, &shared), OT_USAGE);
  assert_non_null(strstr(ot_fail_message(), "two has 16 devices, the run 17 ranks"));
}

// 8 devices per node: 20 devices are three nodes, 4 devices half a node.
static void a_cluster_grows_over_its_outermost_links(void **state) {
  (void)state;
  ot_cluster out;
  ot_cluster cluster = {.name = "paper",
                        .num_devices = 16,
                        .device = {.name = "d", .memory_bytes_per_s = 1, .memory_bytes = 1},
                        .num_levels = 2,
                        .level = {{.name = "node", .size = 8, .bytes_per_s = 2},
                                  {.name = "net", .size = 16, .bytes_per_s = 1}}};
  cluster.device.flops[OT_F32] = 1;
  assert_int_equal(ot_cluster_resize(&cluster, 20, &out), OT_OK);
  assert_int_equal(out.num_devices, 20);
  assert_int_equal(out.level[0].size, 8);
  assert_int_equal(out.level[1].size, 24);
  assert_int_equal(ot_cluster_resize(&cluster, 4, &out), OT_OK);
  assert_int_equal(out.num_devices, 4);
  assert_int_equal(out.level[1].size, 16);
  cluster.num_levels = 1;
  cluster.num_devices = 8;
  assert_int_equal(ot_cluster_resize(&cluster, 9, &out), OT_USAGE);
  assert_string_equal(ot_fail_message(),
                      "cluster paper joins 8 devices by node and has no links beyond; 9 asked for");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(devices_share_the_innermost_level),
      cmocka_unit_test(impossible_clusters_are_refused),
      cmocka_unit_test(hash_sees_every_figure),
      cmocka_unit_test(ranks_share_the_machine_that_was_measured),
      cmocka_unit_test(measured_hosts_come_one_by_one),
      cmocka_unit_test(described_devices_are_not_shared),
      cmocka_unit_test(a_cluster_grows_over_its_outermost_links),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
