// SPDX-License-Identifier: Apache-2.0
// run: backends=cpu
// Meshes: atoms shared by both views, ranks and coordinates, groups, rejected meshes.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "describe/mesh.h"

static const ot_run_parallel one = {
    .tp = 1, .pp = 1, .vpp = 1, .cp = 1, .ep = 1, .etp = 1, .dp_replicate = 1, .zero = 1};

static void experts_span_tp_and_cp(void **state) {
  (void)state;
  ot_run_parallel parallel = one;
  parallel.tp = 2;
  parallel.cp = 2;
  parallel.ep = 4;
  ot_mesh mesh;
  assert_int_equal(ot_mesh_build(&parallel, 8, &mesh), OT_OK);
  assert_int_equal(mesh.ranks, 8);
  assert_int_equal(mesh.degree[OT_AXIS_DP_SHARD], 2);
  assert_int_equal(mesh.degree[OT_AXIS_EDP], 2);
  int group[4];
  ot_mesh_group(&mesh, 6, OT_AXIS_EP, group);
  for (int i = 0; i < 4; i++) assert_int_equal(group[i], 4 + i);
  ot_mesh_group(&mesh, 6, OT_AXIS_EDP, group);
  assert_int_equal(group[0], 2);
  assert_int_equal(group[1], 6);
}

static void experts_are_sharded_across_a_dense_axis(void **state) {
  (void)state;
  ot_run_parallel parallel = one;
  parallel.tp = 2;
  parallel.ep = 4;
  ot_mesh mesh;
  assert_int_equal(ot_mesh_build(&parallel, 16, &mesh), OT_OK);
  int group[4];
  ot_mesh_group(&mesh, 5, OT_AXIS_EP, group);
  for (int i = 0; i < 4; i++) assert_int_equal(group[i], 4 + i);
  ot_mesh_group(&mesh, 5, OT_AXIS_EDP, group);
  for (int i = 0; i < 4; i++) assert_int_equal(group[i], 1 + 4 * i);
}

static void degrees_without_common_factors_are_refused_with_the_nearest(void **state) {
  (void)state;
  ot_run_parallel parallel = one;
  parallel.tp = 2;
  parallel.ep = 3;
  ot_mesh mesh;
  assert_int_equal(ot_mesh_build(&parallel, 6, &mesh), OT_USAGE);
  assert_non_null(strstr(ot_fail_message(), "etp=1 x ep=3"));
  assert_string_equal(ot_fail_hint_text(), "try ep=2 or ep=6");
  parallel.ep = 5;
  assert_int_equal(ot_mesh_build(&parallel, 8, &mesh), OT_USAGE);
  assert_string_equal(ot_fail_hint_text(), "try ep=4 or ep=8");
  parallel.ep = 16;
  assert_int_equal(ot_mesh_build(&parallel, 8, &mesh), OT_USAGE);
  assert_string_equal(ot_fail_hint_text(), "try ep=8");
}

static void ranks_that_do_not_fill_the_axes_are_refused(void **state) {
  (void)state;
  ot_run_parallel parallel = one;
  parallel.tp = 2;
  parallel.pp = 3;
  ot_mesh mesh;
  assert_int_equal(ot_mesh_build(&parallel, 8, &mesh), OT_RANKS);
  assert_string_equal(ot_fail_hint_text(), "--ranks 6 or 12, or mpirun -n with as many");
  assert_int_equal(ot_mesh_build(&parallel, 4, &mesh), OT_RANKS);
  assert_string_equal(ot_fail_hint_text(), "--ranks 6, or mpirun -n 6");
  parallel.dp = 4;
  assert_int_equal(ot_mesh_build(&parallel, 12, &mesh), OT_RANKS);
  assert_non_null(strstr(ot_fail_message(), "is 24 ranks, but there are 12"));
  assert_string_equal(ot_fail_hint_text(), "--ranks 24, or mpirun -n 24");
  assert_int_equal(ot_mesh_build(&parallel, 1, &mesh), OT_RANKS);
  assert_non_null(strstr(ot_fail_message(), "mesh: 1 rank is not a multiple of pp=3"));
  parallel.dp = 0;
  parallel.dp_replicate = 4;
  assert_int_equal(ot_mesh_build(&parallel, 12, &mesh), OT_RANKS);
}

static void zero_0_replicates_over_all_of_dp(void **state) {
  (void)state;
  ot_run_parallel parallel = one;
  ot_mesh mesh;
  parallel.zero = 0;
  assert_int_equal(ot_mesh_build(&parallel, 6, &mesh), OT_OK);
  assert_int_equal(mesh.degree[OT_AXIS_DP_REPLICATE], 6);
  assert_int_equal(mesh.degree[OT_AXIS_DP_SHARD], 1);
  parallel.zero = 3;
  parallel.dp_replicate = 2;
  assert_int_equal(ot_mesh_build(&parallel, 6, &mesh), OT_OK);
  assert_int_equal(mesh.degree[OT_AXIS_DP_SHARD], 3);
}

// Groups partition the ranks and list each rank at its coordinate.
static void check_groups(const ot_mesh *mesh) {
  int group[64];
  int same[64];
  for (int axis = OT_AXIS_TP; axis <= OT_AXIS_PP; axis++) {
    for (int rank = 0; rank < mesh->ranks; rank++) {
      ot_mesh_group(mesh, rank, (ot_axis)axis, group);
      assert_int_equal(group[ot_mesh_coordinate(mesh, rank, (ot_axis)axis)], rank);
      for (int i = 0; i < mesh->degree[axis]; i++) {
        ot_mesh_group(mesh, group[i], (ot_axis)axis, same);
        assert_memory_equal(group, same, (size_t)mesh->degree[axis] * sizeof(int));
      }
    }
  }
}

static void check_coordinates(const ot_mesh *mesh) {
  for (int rank = 0; rank < mesh->ranks; rank++) {
    int coordinates[4];
    for (int axis = 0; axis < 4; axis++) {
      coordinates[axis] = ot_mesh_coordinate(mesh, rank, (ot_axis)axis);
    }
    const int pp = ot_mesh_coordinate(mesh, rank, OT_AXIS_PP);
    assert_int_equal(ot_mesh_rank(mesh, coordinates, pp), rank);
  }
}

static void all_small_meshes_hold_together(void **state) {
  (void)state;
  int built = 0;
  for (int i = 0; i < 2 * 3 * 3 * 5 * 3 * 6; i++) {
    ot_run_parallel parallel = one;
    parallel.pp = 1 + i % 2;
    parallel.tp = 1 + i / 2 % 3;
    parallel.cp = 1 + i / 6 % 3;
    parallel.dp = 1 + i / 18 % 5;
    parallel.etp = 1 + i / 90 % 3;
    parallel.ep = 1 + i / 270 % 6;
    ot_mesh mesh;
    const int ranks = parallel.pp * parallel.tp * parallel.cp * parallel.dp;
    const ot_status status = ot_mesh_build(&parallel, ranks, &mesh);
    if (status == OT_USAGE) continue;
    assert_int_equal(status, OT_OK);
    built++;
    check_groups(&mesh);
    check_coordinates(&mesh);
  }
  assert_in_range(built, 300, 1000);
}

static void hash_distinguishes_meshes(void **state) {
  (void)state;
  ot_run_parallel parallel = one;
  ot_mesh a;
  ot_mesh b;
  assert_int_equal(ot_mesh_build(&parallel, 4, &a), OT_OK);
  parallel.tp = 2;
  assert_int_equal(ot_mesh_build(&parallel, 4, &b), OT_OK);
  assert_false(ot_mesh_hash(&a) == ot_mesh_hash(&b));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(experts_span_tp_and_cp),
      cmocka_unit_test(experts_are_sharded_across_a_dense_axis),
      cmocka_unit_test(degrees_without_common_factors_are_refused_with_the_nearest),
      cmocka_unit_test(ranks_that_do_not_fill_the_axes_are_refused),
      cmocka_unit_test(zero_0_replicates_over_all_of_dp),
      cmocka_unit_test(all_small_meshes_hold_together),
      cmocka_unit_test(hash_distinguishes_meshes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
