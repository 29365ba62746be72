// SPDX-License-Identifier: Apache-2.0
#include "support/cuda_mesh.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

const cuda_mesh cuda_meshes[CUDA_MESHES] = {
    {RANK_LLAMA, 1, 1, 1, 2, 1, 1, 3, OT_ACCUMULATE_SHARDED, OT_PIPELINE_1F1B, OT_CONTEXT_RING, 1,
     1},
    {RANK_GPT2, 2, 1, 1, 1, 1, 2, 0, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, OT_CONTEXT_RING, 1, 1},
    {RANK_MOE, 1, 1, 1, 2, 1, 1, 1, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, OT_CONTEXT_RING, 2, 1},
    {RANK_QWEN, 1, 1, 1, 1, 2, 1, 0, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, OT_CONTEXT_RING, 1, 1},
    {RANK_GPT2, 1, 1, 2, 2, 1, 1, 2, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, OT_CONTEXT_RING, 1, 1},
    {RANK_GEMMA2, 1, 1, 1, 1, 1, 4, 0, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, OT_CONTEXT_RING, 1,
     1},
    {RANK_DROPOUT, 2, 1, 1, 2, 1, 2, 3, OT_ACCUMULATE_SHARDED, OT_PIPELINE_1F1B, OT_CONTEXT_RING, 1,
     1},
    {RANK_QWEN, 2, 2, 1, 1, 1, 1, 0, OT_ACCUMULATE_WHOLE, OT_PIPELINE_INTERLEAVED, OT_CONTEXT_RING,
     1, 1},
    {RANK_GPT2, 3, 1, 1, 1, 1, 1, 0, OT_ACCUMULATE_WHOLE, OT_PIPELINE_ZB_V, OT_CONTEXT_RING, 1, 1},
    {RANK_LLAMA, 1, 1, 1, 1, 2, 1, 0, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, OT_CONTEXT_ULYSSES, 1,
     1},
    {RANK_LATENT, 2, 1, 1, 1, 1, 1, 0, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, OT_CONTEXT_RING, 1,
     1},
    {RANK_MOE, 1, 1, 1, 2, 1, 2, 1, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, OT_CONTEXT_RING, 2, 2},
    {RANK_GPT_OSS, 2, 1, 1, 2, 1, 1, 1, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, OT_CONTEXT_RING, 2,
     1},
    {RANK_RESIDUALS, 1, 1, 1, 2, 1, 1, 1, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, OT_CONTEXT_RING, 1,
     1},
    {RANK_RESIDUALS, 2, 1, 1, 2, 1, 1, 1, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, OT_CONTEXT_RING, 1,
     1},
};

rank_request cuda_mesh_request(const cuda_mesh *m, ot_dtype dtype) {
  rank_request request = {.backend = OT_BACKEND_CUDA,
                          .model = m->model,
                          .dtype = dtype,
                          .layers = 3,
                          .length = 16,
                          .batch = 4,
                          .micro_batch = 1,
                          .steps = 1,
                          .pp = m->pp,
                          .vpp = m->vpp,
                          .dp_replicate = m->dp_replicate,
                          .dp_shard = m->dp_shard,
                          .cp = m->cp,
                          .tp = m->tp,
                          .zero = m->zero,
                          .prefetch = m->zero == 3,
                          .accumulate = m->accumulate,
                          .pipeline = m->pipeline,
                          .context = m->context,
                          .ep = m->ep,
                          .etp = m->etp,
                          .overlap = true,
                          .timeout_s = 60};
  if (m->pp > 1) request.layers = 6;  // two parts a stage
  return request;
}

uint64_t cuda_mesh_bits(const rank_request *request) {
  rank_result result;
  if (rank_run(request, &result) != OT_OK) fail_msg("%s", ot_fail_message());
  const uint64_t bits = result.bits;
  rank_release(&result);
  return bits;
}
