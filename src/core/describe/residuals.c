// SPDX-License-Identifier: Apache-2.0
// Positions of layers among blocks of sub-layers.
#include "describe/residuals.h"

ot_residual_position ot_residual_position_of(const ot_model *model, int64_t layer) {
  const ot_attention_residuals *const r = &model->residuals;
  const bool head = layer >= model->num_layers;
  const int64_t place = head ? r->sublayers : r->place[layer];
  if (r->block_size == 0) return (ot_residual_position){0};
  return (ot_residual_position){.finished = 1 + place / r->block_size,
                                .begun = place % r->block_size > 0,
                                .attention_ends = !head && (place + 1) % r->block_size == 0,
                                .mlp_ends = !head && (place + 2) % r->block_size == 0};
}

ot_status ot_residuals_check(const ot_model *model) {
  const ot_attention_residuals *const r = &model->residuals;
  if (r->block_size == 0) return OT_OK;
  OT_CHECK(
      r->block_size <= r->sublayers, OT_USAGE,
      "model: attention_residual_block_size=%lld, but the model has %lld sub-layers (attention "
      "and MLP of each layer); allowed: 1 to %lld",
      (long long)r->block_size, (long long)r->sublayers, (long long)r->sublayers);
  return OT_OK;
}

int64_t ot_residual_elements(const ot_model *model, int64_t layers) {
  return model->residuals.block_size == 0 ? 0 : 2 * layers * model->hidden_size;
}

int64_t ot_residual_default_size(int64_t layers) {
  enum { BLOCKS = 8 };
  return (2 * layers + BLOCKS - 1) / BLOCKS;
}
