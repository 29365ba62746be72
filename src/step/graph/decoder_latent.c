// SPDX-License-Identifier: Apache-2.0
// The MLA attention branch (ops/latent.h). Training and prefill over a micro-batch materialise keys
// and values of all heads and run ordinary attention, with values padded to the width of keys.
// Decoding against a cache, which holds only latents, absorbs the up-projections into the query and
// the output.
//
//   normed +-> q_down -> norm -> q_up ---------------------+
//          +-> kv_down -> split +-> norm -> kv_up ---------+-> heads -> attention -> trim -> output
//                               +-> rotary ----------------+
//
// Over tp a rank computes the latents of its own tokens. Latents are narrow and are all-gathered;
// each rank then up-projects its own heads. Each keeps the cache of all latents.
#include "graph/decoder_parts.h"
#include "ops/decode.h"
#include "ops/operands.h"

// The latents of the tokens.
typedef struct latents {
  int q;       // [R, H*D] of this rank's heads
  int latent;  // [own_rows, K] normalised
  int rotary;  // [R, P], not rotated yet
  ot_op_attributes attributes;
} latents;

// Down projection: `width` numbers per token of this rank.
static int make_narrow(ot_builder *b, int normed, ot_role role, const char *name, int64_t width) {
  const ot_model *const model = ot_model_of(b);
  const ot_op_attributes attributes = ot_builder_attributes(b);
  const int weight = ot_decoder_matrix(b, role, name, width, model->hidden_size);
  const int bias = model->output_bias ? ot_decoder_vector(b, role, name, "bias", width) : -1;
  return ot_builder_op(b, &(ot_op_description){OT_OP_LINEAR,
                                               &attributes,
                                               ot_arena_format(b->arena, "%s.out", name),
                                               3,
                                               {normed, weight, bias},
                                               NULL});
}

// The latent norms ignore rms_norm_eps in transformers' modeling_deepseek_v3.py (q_a_layernorm and
// kv_a_layernorm of DeepseekV3Attention): they use the default epsilon of the class.
static int latent_norm(ot_builder *b, ot_role role, const char *name, int x, int64_t width) {
  ot_op_attributes attributes = ot_builder_attributes(b);
  attributes.epsilon = 1e-6;
  const int weight = ot_decoder_vector(b, role, name, "weight", width);
  return ot_builder_op(b, &(ot_op_description){OT_OP_RMSNORM,
                                               &attributes,
                                               ot_arena_format(b->arena, "%s.out", name),
                                               2,
                                               {x, weight},
                                               NULL});
}

static int queries(ot_builder *b, int normed) {
  const ot_model *const model = ot_model_of(b);
  const int64_t rank = model->mla.q_rank;
  const int64_t width = ot_share_of(b)->heads * model->head_dim;
  if (rank == 0) {
    return ot_decoder_into(
        b, normed,
        &(ot_projection){OT_ROLE_Q_UP, "attention.q", width, model->hidden_size, false, -1});
  }
  const int down = make_narrow(b, normed, OT_ROLE_Q_DOWN, "attention.q_down", rank);
  const ot_module_set before = ot_builder_enter(b, OT_MODULE_MLA_UP_PROJ);
  const int latent = latent_norm(b, OT_ROLE_Q_LATENT_NORM, "attention.q_latent_norm", down, rank);
  const int q = ot_decoder_into(
      b, latent, &(ot_projection){OT_ROLE_Q_UP, "attention.q_up", width, rank, false, -1});
  ot_builder_leave(b, before);
  return q;
}

static latents make_latents(ot_builder *b, int normed) {
  const ot_model *const model = ot_model_of(b);
  const ot_mla *const mla = &model->mla;
  latents l = {.q = queries(b, normed), .attributes = ot_builder_attributes(b)};
  l.attributes.num_heads = ot_share_of(b)->heads;
  l.attributes.head_dim = model->head_dim;
  l.attributes.rotary_dim = mla->rope_dim;
  l.attributes.value_dim = mla->v_dim;
  l.attributes.interleaved = mla->interleaved;
  const int down =
      make_narrow(b, normed, OT_ROLE_KV_DOWN, "attention.kv_down", mla->kv_rank + mla->rope_dim);
  ot_op made;
  const int raw = ot_builder_emit(
      b,
      &(ot_op_description){OT_OP_LATENT_SPLIT, &l.attributes, "attention.latent", 1, {down}, NULL},
      &made);
  l.rotary = ot_builder_gather(b, made.out[1], "attention.rotary");
  const ot_module_set before = ot_builder_enter(b, OT_MODULE_MLA_UP_PROJ);
  l.latent = latent_norm(b, OT_ROLE_KV_LATENT_NORM, "attention.kv_latent_norm", raw, mla->kv_rank);
  ot_builder_leave(b, before);
  return l;
}

static int cos_sin(ot_builder *b) { return ot_builder_constant(b, 0, "rope"); }

// ---- training ----

static int attend_to_rows(ot_builder *b, int layer, const latents *l) {
  const ot_mla *const mla = &ot_model_of(b)->mla;
  const int64_t wide = l->attributes.num_heads * (mla->nope_dim + mla->v_dim);
  const ot_module_set before = ot_builder_enter(b, OT_MODULE_MLA_UP_PROJ);
  const int kv = ot_decoder_into(
      b, l->latent,
      &(ot_projection){OT_ROLE_KV_UP, "attention.kv_up", wide, mla->kv_rank, false, -1});
  const int positions = ot_builder_batch(b, OT_BATCH_POSITIONS);
  const int qkv =
      ot_builder_op(b, &(ot_op_description){OT_OP_LATENT_HEADS,
                                            &l->attributes,
                                            "attention.packed",
                                            5,
                                            {l->q, kv, l->rotary, positions, cos_sin(b)},
                                            NULL});
  ot_builder_leave(b, before);
  const int heads = ot_decoder_attend(b, layer, qkv);
  return ot_builder_op(
      b,
      &(ot_op_description){OT_OP_VALUE_TRIM, &l->attributes, "attention.values", 1, {heads}, NULL});
}

// ---- against a cache ----

static int append(ot_builder *b, const latents *l) {
  const ot_graph_request *const request = &b->graph->request;
  const ot_mla *const mla = &request->model->mla;
  const ot_tensor_type type = {
      .dtype = request->storage,
      .rank = 3,
      .dim = {request->cache.pages, OT_PAGE_SLOTS, mla->kv_rank + mla->rope_dim}};
  const int cache = ot_builder_own(b, OT_VALUE_CACHE, 0, "cache", type);
  const int in[] = {ot_builder_batch(b, OT_BATCH_POSITIONS), cos_sin(b),
                    ot_builder_batch(b, OT_BATCH_SEQUENCES), ot_builder_batch(b, OT_BATCH_PAGES)};
  const int latent = ot_builder_gather(b, l->latent, "attention.latents");
  const int out[OT_MAX_OUTPUTS] = {cache, -1, -1, -1, -1};
  ot_builder_op(b, &(ot_op_description){OT_OP_APPEND_LATENT,
                                        &l->attributes,
                                        "cache",
                                        6,
                                        {latent, l->rotary, in[0], in[1], in[2], in[3]},
                                        out});
  return cache;
}

static int attend_to_cache(ot_builder *b, const latents *l, int cache) {
  const ot_model *const model = ot_model_of(b);
  ot_op_attributes attributes = l->attributes;
  attributes.scale = model->attention_scale;
  const int64_t wide = attributes.num_heads * (model->mla.nope_dim + model->mla.v_dim);
  const int weight =
      ot_decoder_matrix(b, OT_ROLE_KV_UP, "attention.kv_up", wide, model->mla.kv_rank);
  const int in[] = {ot_builder_batch(b, OT_BATCH_POSITIONS), cos_sin(b),
                    ot_builder_batch(b, OT_BATCH_SEQUENCES), ot_builder_batch(b, OT_BATCH_PAGES)};
  return ot_builder_op(b, &(ot_op_description){OT_OP_LATENT_DECODE,
                                               &attributes,
                                               "attention.values",
                                               7,
                                               {l->q, weight, cache, in[0], in[1], in[2], in[3]},
                                               NULL});
}

int ot_decoder_latent_attention(ot_builder *b, int layer, int x, int sum) {
  const ot_model *const model = ot_model_of(b);
  const int normed = ot_decoder_norm(b, OT_ROLE_ATTENTION_NORM, "attention_norm", x);
  const latents l = make_latents(b, normed);
  const bool cached = ot_mode_is_cached(b->graph->request.mode);
  const int heads = cached ? attend_to_cache(b, &l, append(b, &l)) : attend_to_rows(b, layer, &l);
  const ot_projection output = {OT_ROLE_ATTENTION_OUTPUT, "attention.output",
                                model->hidden_size,       ot_share_of(b)->heads * model->mla.v_dim,
                                model->output_bias,       -1};
  return ot_decoder_join(b, heads, sum, output, OT_ROLE_ATTENTION_POST_NORM);
}
