// SPDX-License-Identifier: Apache-2.0
// Bytes of a rank, class by class.
#include "plan/estimator.h"

ot_status ot_memory_estimate_build(const ot_play_request *request, int stage, ot_arena *arena,
                                   ot_memory_estimate *out) {
  (void)arena;
  const ot_estimator *const e = request->estimator;
  const ot_recipe *const recipe = &e->job.recipe;
  const ot_prices *const prices = request->prices;
  const ot_candidate *const c = request->candidate;
  *out = (ot_memory_estimate){.stage = stage, .capacity = e->cluster.device.memory_bytes};
  const double shard = c->zero > 0 ? c->dp_shard * (e->own ? 1 : c->cp) : 1;
  double elements = 0, activations = 0;
  for (int i = 0; i < e->num_blocks; i++) {
    const int chunk = ot_stages_chunk(request->stages, i);
    if (request->stages->rank_of[chunk] != stage) continue;
    const ot_block_price *const price = &prices->kind[e->kind_of[i]];
    const ot_storage *const storage = prices->phases.blocks[e->kind_of[i]].storage;
    elements += (double)price->elements;
    activations += (double)(storage->slot_bytes[0] * request->walk->ring[0][chunk] +
                            storage->slot_bytes[1] * request->walk->ring[1][chunk] +
                            storage->slot_bytes[2] * request->walk->ring[2][chunk] +
                            prices->hidden_bytes * request->walk->ring[0][chunk]);
  }
  out->weights = (int64_t)(elements * recipe->weight_bytes / (c->zero == 3 ? shard : 1));
  out->gradients = (int64_t)(elements * recipe->gradient_bytes / (c->zero >= 2 ? shard : 1));
  out->optimizer = (int64_t)(elements * (recipe->master_bytes + recipe->moment_bytes) / shard);
  out->activations = (int64_t)activations;
  out->buffers = prices->phases.scratch_bytes + prices->phases.staging_bytes;
  out->peak = out->weights + out->gradients + out->optimizer + out->activations + out->gathered +
              out->buffers;
  out->reserved = (int64_t)((double)out->peak * (1 + e->job.engine->allocator_slack));
  out->context = e->job.engine->context_bytes;
  return OT_OK;
}
