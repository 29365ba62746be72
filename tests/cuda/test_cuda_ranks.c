// SPDX-License-Identifier: Apache-2.0
// ctest: first
// run: any machine; in builds without CUDA on an emulated GPU. Ranks that are threads share a GPU:
// training on every axis equals one rank on the CPU, with the same bits in whatever order the
// streams of all ranks run. Every second mesh; all with OT_TESTS=full in the environment.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/cuda_mesh.h"
#include "support/op_device.h"
#include "support/rank_case_verdict.h"

static void every_axis_equals_one_rank_on_the_cpu(void **state) {
  (void)state;
  rank_verdict verdict = {0};
  for (int i = 0; i < CUDA_MESHES; i += rank_full() ? 1 : 2) {
    const rank_request wide = cuda_mesh_request(&cuda_meshes[i], OT_F64);
    rank_try(&wide, &verdict);
  }
  rank_conclude(&verdict, "meshes on a GPU");
}

static void bits_do_not_depend_on_the_order_of_streams(void **state) {
  (void)state;
  static const int some[] = {0, 6};  // ZeRO 3; three axes
  for (int i = 0; i < OT_COUNT(some); i++) {
    rank_request request = cuda_mesh_request(&cuda_meshes[some[i]], OT_F32);
    request.overlap = false;
    const uint64_t bits = cuda_mesh_bits(&request);
    request.overlap = true;
    for (int seed = 1; seed <= 2; seed++) {
      op_device_set_order(seed);
      const bool equal = cuda_mesh_bits(&request) == bits;
      op_device_set_order(0);
      if (!equal) {
        char text[RANK_TEXT];
        fail_msg("other bits in order %d: %s", seed, rank_describe(&request, text));
      }
    }
  }
}

int main(void) {
  setenv("OT_TEST_DEVICE", "cuda", 1);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_axis_equals_one_rank_on_the_cpu),
      cmocka_unit_test(bits_do_not_depend_on_the_order_of_streams),
  };
  return cmocka_run_group_tests(tests, NULL, rank_references_release);
}
