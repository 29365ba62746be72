// SPDX-License-Identifier: Apache-2.0
#include "support/cuda_mesh.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

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
