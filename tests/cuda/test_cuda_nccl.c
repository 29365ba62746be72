// SPDX-License-Identifier: Apache-2.0
// ctest: first
// run: any machine; in builds without CUDA on emulated GPUs, else with four. Ranks with a GPU each,
// by NCCL: training on every axis equals one rank on the CPU, and has the bits of the same mesh on
// one GPU, in whatever order streams run and bytes arrive. With OT_TESTS=full all meshes.
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

enum { GPUS = 4, SKIPPED = 77 };

// The meshes that fit: a sample of them, all with OT_TESTS=full in the environment.
static int num_meshes(void) { return rank_full() ? CUDA_MESHES : CUDA_SAMPLE; }

static bool fits(const rank_request *request) { return rank_count(request) <= GPUS; }

static void every_axis_equals_one_rank_on_the_cpu(void **state) {
  (void)state;
  rank_verdict verdict = {0};
  for (int i = 0; i < num_meshes(); i++) {
    const rank_request wide = cuda_mesh_request(&cuda_meshes[i], OT_F64);
    if (fits(&wide)) rank_try(&wide, &verdict);
  }
  rank_conclude(&verdict, "meshes on several GPUs");
}

// The bits of one GPU, whose ranks read each other's memory.
static void bits_are_those_of_one_gpu_in_any_order(void **state) {
  (void)state;
  for (int i = 0; i < num_meshes(); i++) {
    const rank_request request = cuda_mesh_request(&cuda_meshes[i], OT_F32);
    if (!fits(&request)) continue;
    if (op_device_set_count(1) != 1) skip();
    const uint64_t bits = cuda_mesh_bits(&request);
    op_device_set_count(GPUS);
    for (int seed = 0; seed < 2; seed++) {  // ascending, random
      op_device_set_order(seed);
      const bool equal = cuda_mesh_bits(&request) == bits;
      op_device_set_order(0);
      if (equal) continue;
      char text[RANK_TEXT];
      fail_msg("other bits in order %d: %s", seed, rank_describe(&request, text));
    }
  }
}

int main(void) {
  setenv("OT_TEST_DEVICE", "cuda", 1);
  if (op_device_set_count(GPUS) < GPUS) return SKIPPED;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_axis_equals_one_rank_on_the_cpu),
      cmocka_unit_test(bits_are_those_of_one_gpu_in_any_order),
  };
  return cmocka_run_group_tests(tests, NULL, rank_references_release);
}
