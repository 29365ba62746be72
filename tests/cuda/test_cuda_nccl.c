// SPDX-License-Identifier: Apache-2.0
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

enum { GPUS = 4, SAMPLE = 4, SKIPPED = 77 };

static const cuda_mesh meshes[] = {
    {RANK_LLAMA, 1, 1, 1, 2, 1, 1, 3, OT_ACCUMULATE_SHARDED, OT_PIPELINE_1F1B, OT_CONTEXT_RING, 1,
     1},
    {RANK_GPT2, 2, 1, 1, 1, 1, 2, 0, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, OT_CONTEXT_RING, 1, 1},
    {RANK_MOE, 1, 1, 1, 2, 1, 1, 1, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, OT_CONTEXT_RING, 2, 1},
    {RANK_QWEN, 1, 1, 1, 1, 2, 1, 0, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, OT_CONTEXT_RING, 1, 1},
    // The others: with OT_TESTS=full.
    {RANK_LLAMA, 1, 1, 1, 1, 2, 1, 0, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, OT_CONTEXT_ULYSSES, 1,
     1},
    {RANK_GPT2, 1, 1, 2, 2, 1, 1, 2, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, OT_CONTEXT_RING, 1, 1},
    {RANK_GEMMA2, 1, 1, 1, 1, 1, 4, 0, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, OT_CONTEXT_RING, 1,
     1},
    {RANK_QWEN, 2, 2, 1, 1, 1, 1, 0, OT_ACCUMULATE_WHOLE, OT_PIPELINE_INTERLEAVED, OT_CONTEXT_RING,
     1, 1},
    {RANK_GPT2, 3, 1, 1, 1, 1, 1, 0, OT_ACCUMULATE_WHOLE, OT_PIPELINE_ZB_V, OT_CONTEXT_RING, 1, 1},
    {RANK_MOE, 1, 1, 1, 2, 1, 2, 1, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, OT_CONTEXT_RING, 2, 2},
    {RANK_GPT_OSS, 2, 1, 1, 2, 1, 1, 1, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, OT_CONTEXT_RING, 2,
     1},
    {RANK_RESIDUALS, 2, 1, 1, 2, 1, 1, 1, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, OT_CONTEXT_RING, 1,
     1},
};

static int num_meshes(void) {
  const char *const all = getenv("OT_TESTS");
  return all && strcmp(all, "full") == 0 ? OT_COUNT(meshes) : SAMPLE;
}

static void every_axis_equals_one_rank_on_the_cpu(void **state) {
  (void)state;
  rank_verdict verdict = {0};
  for (int i = 0; i < num_meshes(); i++) {
    const rank_request wide = cuda_mesh_request(&meshes[i], OT_F64);
    rank_try(&wide, &verdict);
  }
  rank_conclude(&verdict, "meshes on several GPUs");
}

// The bits of one GPU, whose ranks read each other's memory.
static void bits_are_those_of_one_gpu_in_any_order(void **state) {
  (void)state;
  for (int i = 0; i < num_meshes(); i++) {
    const rank_request request = cuda_mesh_request(&meshes[i], OT_F32);
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
