// SPDX-License-Identifier: Apache-2.0
// The attention branch: packed q|k|v, their norms and rotation, attention, output projection.
// Context parallelism shards each sequence over cp. Attention then uses a ring of keys and values
// (Liu et al. 2023; a composite attention op that expand.h lowers) or an all-to-all from sequence
// shards to head shards (Ulysses: Jacobs et al. 2023).
#include "graph/decoder_parts.h"
#include "ops/decode.h"
#include "ops/head_norm.h"
#include "ops/operands.h"

static ot_op_attributes head_attributes(const ot_builder *b) {
  ot_op_attributes attributes = ot_builder_attributes(b);
  attributes.num_heads = ot_share_of(b)->heads;
  attributes.num_kv_heads = ot_share_of(b)->kv_heads;
  attributes.head_dim = ot_model_of(b)->head_dim;
  return attributes;
}

// Positions and the rope table of a layer; -1 where the layer does not rotate.
typedef struct rotation {
  int positions, table;
} rotation;

static rotation rotation_of(ot_builder *b, int layer) {
  const ot_model *const model = ot_model_of(b);
  if (model->rotary_dim == 0 || model->no_rope[layer]) return (rotation){-1, -1};
  // With one rope for all layers there is one table.
  const int constant = model->window[layer] > 0 ? b->graph->num_constants - 1 : 0;
  const int table = ot_builder_constant(b, constant, "rope");
  return (rotation){ot_builder_batch(b, OT_BATCH_POSITIONS), table};
}

// Norms of q and k, and in the same op, where that is possible, their rotation.
static int qk_norm(ot_builder *b, int qkv, rotation *r) {
  const ot_model *const model = ot_model_of(b);
  if (model->qk_norm == OT_QK_NORM_NONE) return qkv;
  const bool per_head = model->qk_norm == OT_QK_NORM_HEAD;
  const bool rotates = per_head && r->table >= 0 && model->head_dim <= OT_ROTATED_HEAD;
  const int64_t D = model->head_dim;
  const int64_t q_width = per_head ? D : ot_share_of(b)->heads * D;
  const int64_t k_width = per_head ? D : ot_share_of(b)->kv_heads * D;
  const ot_role q_role = per_head ? OT_ROLE_Q_NORM : OT_ROLE_Q_ROW_NORM;
  const ot_role k_role = per_head ? OT_ROLE_K_NORM : OT_ROLE_K_ROW_NORM;
  const int q = ot_decoder_vector(b, q_role, "attention.q_norm", "weight", q_width);
  const int k = ot_decoder_vector(b, k_role, "attention.k_norm", "weight", k_width);
  ot_op_attributes attributes = head_attributes(b);
  if (!per_head && ot_share_of(b)->tp > 1) ot_builder_set_group(b, OT_GROUP_TENSOR, &attributes);
  attributes.epsilon = model->norm_epsilon;
  attributes.norm_offset = model->norm_offset;
  attributes.norm_width = per_head ? D : 0;
  ot_op_description norm = {OT_OP_HEAD_NORM, &attributes, "attention.normed", 3, {qkv, q, k}, NULL};
  if (rotates) {
    attributes.rotary_dim = model->rotary_dim;
    norm = (ot_op_description){OT_OP_HEAD_NORM,
                               &attributes,
                               "attention.rotated",
                               6,
                               {qkv, q, k, -1, r->positions, r->table},
                               NULL};
    *r = (rotation){-1, -1};
  }
  return ot_builder_op(b, &norm);
}

static int rope(ot_builder *b, int qkv, rotation r) {
  if (r.table < 0) return qkv;
  ot_op_attributes attributes = head_attributes(b);
  attributes.rotary_dim = ot_model_of(b)->rotary_dim;
  return ot_builder_op(
      b, &(ot_op_description){
             OT_OP_ROPE, &attributes, "attention.rotated", 3, {qkv, r.positions, r.table}, NULL});
}

// ---- against a cache ----

static void append_to_cache(ot_builder *b, int qkv, int *cache) {
  const ot_graph_request *const request = &b->graph->request;
  const ot_op_attributes attributes = head_attributes(b);
  const ot_tensor_type type = {
      .dtype = request->storage,
      .rank = 3,
      .dim = {request->cache.pages, OT_PAGE_SLOTS,
              2 * attributes.num_kv_heads * attributes.head_dim},
  };
  *cache = ot_builder_own(b, OT_VALUE_CACHE, 0, "cache", type);
  const int in[] = {ot_builder_batch(b, OT_BATCH_SEQUENCES),
                    ot_builder_batch(b, OT_BATCH_POSITIONS), ot_builder_batch(b, OT_BATCH_PAGES)};
  int out[OT_MAX_OUTPUTS] = {*cache, -1, -1, -1, -1};
  ot_builder_op(b, &(ot_op_description){
                       OT_OP_APPEND_KV, &attributes, "cache", 4, {qkv, in[0], in[1], in[2]}, out});
}

// One attention sink per query head, or -1.
static int sinks(ot_builder *b) {
  if (!ot_model_of(b)->sinks) return -1;
  return ot_decoder_vector(b, OT_ROLE_SINKS, "attention", "sinks", ot_share_of(b)->heads);
}

static int attend_to_cache(ot_builder *b, int qkv, int cache, const ot_op_attributes *attributes) {
  const int in[] = {ot_builder_batch(b, OT_BATCH_SEQUENCES),
                    ot_builder_batch(b, OT_BATCH_POSITIONS), ot_builder_batch(b, OT_BATCH_PAGES),
                    sinks(b)};
  return ot_builder_op(b, &(ot_op_description){OT_OP_ATTENTION_DECODE,
                                               attributes,
                                               "attention.heads",
                                               6,
                                               {qkv, cache, in[0], in[1], in[2], in[3]},
                                               NULL});
}

// ---- training ----

static ot_op_attributes attention_attributes(const ot_builder *b, int layer) {
  const ot_model *const model = ot_model_of(b);
  ot_op_attributes attributes = head_attributes(b);
  attributes.window = model->window[layer];
  attributes.scale = model->attention_scale;
  attributes.soft_cap = model->score_soft_cap;
  attributes.value_dim = model->mla.v_dim;
  attributes.first_head = ot_share_of(b)->first_head;
  if (ot_builder_trains(b) && model->attention_dropout > 0) {
    attributes.dropout = model->attention_dropout;
    attributes.seed = b->graph->request.seed;
    attributes.rng_stream = ot_decoder_rng_stream(b, "attention");
  }
  return attributes;
}

static int max_logit(ot_builder *b) {
  if (!ot_builder_trains(b)) return -1;
  return ot_builder_statistic(b, OT_STATISTIC_MAX_LOGIT, "max_logit");
}

static int attend(ot_builder *b, int qkv, const ot_op_attributes *attributes) {
  const int out[OT_MAX_OUTPUTS] = {-1, -1, max_logit(b), -1, -1};
  const int in[] = {qkv, ot_builder_batch(b, OT_BATCH_DOC_STARTS),
                    ot_builder_batch(b, OT_BATCH_SAMPLE_IDS), sinks(b)};
  return ot_builder_op(
      b, &(ot_op_description){
             OT_OP_ATTENTION, attributes, "attention.heads", 4, {in[0], in[1], in[2], in[3]}, out});
}

static int attend_by_ring(ot_builder *b, int qkv, ot_op_attributes attributes) {
  ot_builder_set_context(b, &attributes);
  ot_builder_set_group(b, OT_GROUP_CONTEXT, &attributes);
  return attend(b, qkv, &attributes);
}

static int rearrange(ot_builder *b, ot_op_kind kind, const ot_op_attributes *attributes, int x,
                     const char *name) {
  return ot_builder_op(b, &(ot_op_description){kind, attributes, name, 1, {x}, NULL});
}

static int attend_by_exchange(ot_builder *b, int qkv, ot_op_attributes attributes) {
  const ot_local_shape *const share = ot_share_of(b);
  ot_op_attributes copies = head_attributes(b);
  ot_op_attributes exchange = ot_builder_attributes(b);
  ot_builder_set_context(b, &copies);
  ot_builder_set_group(b, OT_GROUP_CONTEXT, &exchange);
  attributes.num_heads /= share->cp;
  attributes.num_kv_heads /= share->cp;
  attributes.first_head += share->cp_index * attributes.num_heads;
  attributes.sequence_length *= share->cp;
  attributes.first_sink = share->cp_index * attributes.num_heads;

  int x = rearrange(b, OT_OP_HEADS_SCATTER, &copies, qkv, "attention.shares");
  x = rearrange(b, OT_OP_ALL_TO_ALL, &exchange, x, "attention.pieces");
  x = rearrange(b, OT_OP_SEQUENCE_JOIN, &copies, x, "attention.sequences");
  x = attend(b, x, &attributes);
  copies.num_kv_heads = 0;  // from here on every head is distinct
  x = rearrange(b, OT_OP_SEQUENCE_SPLIT, &copies, x, "attention.head_pieces");
  x = rearrange(b, OT_OP_ALL_TO_ALL, &exchange, x, "attention.head_shares");
  return rearrange(b, OT_OP_HEADS_GATHER, &copies, x, "attention.all_heads");
}

int ot_decoder_attend(ot_builder *b, int layer, int qkv) {
  const ot_local_shape *const share = ot_share_of(b);
  const ot_op_attributes attributes = attention_attributes(b, layer);
  const ot_module_set before = ot_builder_enter(b, OT_MODULE_CORE_ATTN);
  const int y = share->cp == 1   ? attend(b, qkv, &attributes)
                : share->ulysses ? attend_by_exchange(b, qkv, attributes)
                                 : attend_by_ring(b, qkv, attributes);
  ot_builder_leave(b, before);
  return y;
}

static int heads(ot_builder *b, int layer, int qkv) {
  if (!ot_mode_is_cached(b->graph->request.mode)) return ot_decoder_attend(b, layer, qkv);
  const ot_op_attributes attributes = attention_attributes(b, layer);
  int cache = -1;
  append_to_cache(b, qkv, &cache);
  return attend_to_cache(b, qkv, cache, &attributes);
}

int ot_decoder_attention(ot_builder *b, int layer, int x, int sum) {
  const ot_model *const model = ot_model_of(b);
  const ot_local_shape *const share = ot_share_of(b);
  const int64_t q_width = share->heads * model->head_dim;
  const int64_t kv_width = share->kv_heads * model->head_dim;
  const int normed = model->norm_placement == OT_NORM_POST
                         ? x
                         : ot_decoder_norm(b, OT_ROLE_ATTENTION_NORM, "attention_norm", x);
  const ot_projection qkv = {OT_ROLE_QKV,        "attention.qkv", q_width + 2 * kv_width,
                             model->hidden_size, model->qkv_bias, -1};
  const int wide = ot_decoder_into(b, normed, &qkv);
  rotation r = rotation_of(b, layer);
  const int heads_in = qk_norm(b, wide, &r);
  const int packed = rope(b, heads_in, r);
  const ot_projection output = {OT_ROLE_ATTENTION_OUTPUT, "attention.output",
                                model->hidden_size,       q_width,
                                model->output_bias,       -1};
  return ot_decoder_join(b, heads(b, layer, packed), sum, output, OT_ROLE_ATTENTION_POST_NORM);
}
