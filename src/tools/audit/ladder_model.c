// SPDX-License-Identifier: Apache-2.0
// Shapes of the small models.
#include "audit/ladder_model.h"

#include <math.h>

enum { HEAD_DIM = 16, LEAST_HEADS = 4, MOST_HEADS = 8, LAYERS = 2, EXPERTS = 8, LATENTS = 16 };

const char *const ot_growth_names[] = {
    [OT_GROWTH_WIDTH] = "width", [OT_GROWTH_HEAD_DIM] = "head_dim", [OT_GROWTH_LAYERS] = "layers"};

// `size` in the same proportion to `now` as it is to `of`, a multiple of 4.
static int64_t in_proportion(int64_t size, int64_t of, int64_t now) {
  const int64_t scaled = (int64_t)(((double)size / (double)of * (double)now) / 4 + 0.5) * 4;
  return size == 0 ? 0 : scaled > 4 ? scaled : 4;
}

// Heads that grow begin as half as many of twice the width: scores of few elements are mostly
// noise.
static void set_heads(const ot_model *of, ot_growth growth, int factor, ot_model *m) {
  const int wide = growth == OT_GROWTH_HEAD_DIM ? 2 : 1;
  const int64_t heads_factor = growth == OT_GROWTH_WIDTH ? factor : 1;
  const int64_t head_factor = growth == OT_GROWTH_HEAD_DIM ? 2 * (int64_t)factor : 1;
  const int64_t shared = of->num_heads / of->num_kv_heads;  // query heads of a key head
  int64_t heads = shared > MOST_HEADS ? MOST_HEADS : shared;
  while (heads < LEAST_HEADS / wide) heads += shared;
  m->num_heads = heads * heads_factor;
  m->num_kv_heads = shared > MOST_HEADS ? heads_factor : m->num_heads / shared;
  m->head_dim = HEAD_DIM * head_factor;
  const double rotated = (double)of->rotary_dim / (double)of->head_dim * (double)m->head_dim;
  m->rotary_dim = (int64_t)(rotated / 2) * 2;
  m->attention_scale = of->attention_scale * sqrt((double)of->head_dim / (double)m->head_dim);
  m->hidden_size = m->num_heads * m->head_dim;
  if (of->mla.kv_rank == 0) return;
  m->mla.rope_dim = m->mla.nope_dim = m->head_dim / 2;
  m->mla.v_dim = m->head_dim;
  m->rotary_dim = m->mla.rope_dim;
  m->mla.kv_rank = LATENTS;
  if (of->mla.q_rank > 0) m->mla.q_rank = LATENTS;
}

static void set_experts(const ot_model *of, ot_model *m) {
  if (of->moe.num_experts == 0) return;
  if (m->moe.num_experts > EXPERTS) m->moe.num_experts = EXPERTS;
  const double share = (double)of->moe.experts_per_token / (double)of->moe.num_experts;
  const int64_t chosen = (int64_t)(share * (double)m->moe.num_experts + 0.5);
  m->moe.experts_per_token = chosen > 1 ? chosen : 1;
  m->moe.num_groups = m->moe.groups_per_token = 1;
  m->moe.expert_size = in_proportion(of->moe.expert_size, of->hidden_size, m->hidden_size);
  m->moe.shared_size = in_proportion(of->moe.shared_size, of->hidden_size, m->hidden_size);
}

static void keep_layers(const ot_model *of, int count, ot_model *m) {
  int layers[OT_MAX_LAYERS] = {0};
  // The kinds of the first, the last and the layers between, in their proportions.
  for (int i = 0; i < count; i++) layers[i] = (int)((int64_t)i * of->num_layers / count);
  ot_model_take_layers(of, layers, count, m);
  if (m->residuals.block_size == 0) return;
  m->residuals.sublayers = 2 * (int64_t)count;
  for (int i = 0; i < count; i++) m->residuals.place[i] = 2 * i;
}

ot_model ot_ladder_model(const ot_model *of, ot_growth growth, int factor, int64_t tokens) {
  ot_model m;
  keep_layers(of, growth == OT_GROWTH_LAYERS ? LAYERS * factor : LAYERS, &m);
  set_heads(of, growth, factor, &m);
  set_experts(of, &m);
  m.intermediate_size = in_proportion(of->intermediate_size, of->hidden_size, m.hidden_size);
  if (of->embedding_scale != 1) m.embedding_scale = sqrt((double)m.hidden_size);
  if (m.vocab_size > OT_LADDER_VOCABULARY) m.vocab_size = OT_LADDER_VOCABULARY;
  m.max_positions = tokens;
  m.bos_id = m.pad_id = -1;
  m.num_eos = 0;
  m.embedding_dropout = m.attention_dropout = m.residual_dropout = 0;
  return m;
}

int64_t ot_ladder_size(const ot_model *model, ot_growth growth) {
  return growth == OT_GROWTH_LAYERS ? model->num_layers : model->hidden_size;
}
