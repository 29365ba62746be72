// SPDX-License-Identifier: Apache-2.0
// The blocks except the head. Between tensor-parallel regions, and so between blocks, tokens are
// sharded over tp (sequence parallelism).
#include "graph/decoder.h"

#include "describe/residuals.h"
#include "graph/decoder_parts.h"

// ---- MLP ----

static int mlp(ot_builder *b, int x, int sum) {
  const ot_model *const model = ot_model_of(b);
  const int64_t F = ot_share_of(b)->columns;
  const int normed = model->norm_placement == OT_NORM_POST
                         ? x
                         : ot_decoder_norm(b, OT_ROLE_MLP_NORM, "mlp_norm", x);
  const ot_module_set before = ot_builder_enter(b, OT_MODULE_MLP);
  const ot_projection up = {OT_ROLE_GATE_UP,
                            model->gated_mlp ? "mlp.gate_up" : "mlp.up",
                            model->gated_mlp ? 2 * F : F,
                            model->hidden_size,
                            model->mlp_bias,
                            -1};
  const int wide = ot_decoder_into(b, normed, &up);
  ot_op_attributes attributes = ot_builder_attributes(b);
  ot_decoder_set_activation(b, &attributes);
  const ot_op_kind kind = model->gated_mlp ? OT_OP_GLU : OT_OP_ACTIVATION;
  const int active =
      ot_builder_op(b, &(ot_op_description){kind, &attributes, "mlp.active", 1, {wide}, NULL});
  const ot_projection down = {
      OT_ROLE_DOWN, "mlp.down", model->hidden_size, F, model->mlp_bias, -1,
  };
  const int y = ot_decoder_join(b, active, sum, down, OT_ROLE_MLP_POST_NORM);
  ot_builder_leave(b, before);
  return y;
}

// ---- blocks ----

// Records the largest |x| that leaves the block, for the health metrics of training.
static void watch(ot_builder *b, int x) {
  if (!ot_builder_trains(b)) return;
  const int statistic = ot_builder_statistic(b, OT_STATISTIC_MAX_ACTIVATION, "max_activation");
  const ot_op_attributes attributes = ot_builder_attributes(b);
  const int out[OT_MAX_OUTPUTS] = {statistic, -1, -1, -1, -1};
  ot_builder_op(b, &(ot_op_description){OT_OP_ABSMAX, &attributes, "max_activation", 1, {x}, out});
}

static int find_embedding(ot_builder *b, const char *name, const ot_op_attributes *attributes,
                          const int in[4]) {
  return ot_builder_op(
      b, &(ot_op_description){
             OT_OP_EMBEDDING, attributes, name, 4, {in[0], in[1], in[2], in[3]}, NULL});
}

// Vocabulary rows are reduced over tp; positions are looked up for this rank's tokens only.
static int embed_own_rows(ot_builder *b, int tokens, int table, ot_op_attributes attributes) {
  const ot_local_shape *const share = ot_share_of(b);
  const ot_op_attributes plain = ot_builder_attributes(b);
  ot_builder_set_group(b, OT_GROUP_TENSOR, &attributes);
  attributes.first_vocab = share->first_vocab;
  const int part = find_embedding(b, "embedded.part", &attributes, (int[]){tokens, table, -1, -1});
  const int rows = ot_builder_scatter(b, part, "embedded.rows");
  if (!ot_model_of(b)->learned_positions) return rows;
  const int positions =
      ot_builder_batch_rows(b, OT_BATCH_POSITIONS, share->first_row, share->own_rows);
  const int places =
      ot_decoder_table(b, OT_ROLE_POSITIONS, "positions", ot_model_of(b)->max_positions);
  const int placed = find_embedding(b, "positioned", &plain, (int[]){positions, places, -1, -1});
  return ot_builder_op(
      b, &(ot_op_description){OT_OP_ADD, &plain, "embedded", 2, {rows, placed}, NULL});
}

static int embed(ot_builder *b) {
  const ot_model *const model = ot_model_of(b);
  ot_op_attributes attributes = ot_builder_attributes(b);
  attributes.scale = model->embedding_scale == 1 ? 0 : model->embedding_scale;
  int in[] = {ot_builder_batch(b, OT_BATCH_TOKENS),
              ot_decoder_table(b, OT_ROLE_EMBEDDING, "tokens", ot_share_of(b)->vocab), -1, -1};
  if (ot_share_of(b)->tp > 1) return embed_own_rows(b, in[0], in[1], attributes);
  if (model->learned_positions) {
    in[2] = ot_builder_batch(b, OT_BATCH_POSITIONS);
    in[3] = ot_decoder_table(b, OT_ROLE_POSITIONS, "positions", model->max_positions);
  }
  return find_embedding(b, "embedded", &attributes, in);
}

void ot_decoder_embedding(ot_builder *b) {
  const int x = ot_decoder_dropout(b, "embedding", embed(b), ot_model_of(b)->embedding_dropout);
  watch(b, x);
  if (ot_model_of(b)->residuals.block_size > 0) {
    ot_builder_push(b, x);
  } else {
    b->program->output = x;
  }
}

static int attend(ot_builder *b, int layer, ot_residual_stream *stream) {
  const bool latent = ot_model_of(b)->mla.kv_rank > 0;
  const int x = ot_residual_read(b, stream, OT_ROLE_ATTENTION_QUERY, "attention_residual");
  const int y = latent ? ot_decoder_latent_attention(b, layer, x, stream->sum)
                       : ot_decoder_attention(b, layer, x, stream->sum);
  ot_residual_add(b, stream, y, ot_residual_position_of(ot_model_of(b), layer).attention_ends);
  return y;
}

static int feed_forward(ot_builder *b, int layer, ot_residual_stream *stream) {
  const int x = ot_residual_read(b, stream, OT_ROLE_MLP_QUERY, "mlp_residual");
  const int y = ot_model_of(b)->moe.layer[layer] ? ot_decoder_experts(b, x, stream->sum)
                                                 : mlp(b, x, stream->sum);
  ot_residual_add(b, stream, y, ot_residual_position_of(ot_model_of(b), layer).mlp_ends);
  return y;
}

void ot_decoder_layer_attention(ot_builder *b, int layer) {
  ot_residual_stream stream = ot_residual_enter(b, layer, 0);
  watch(b, attend(b, layer, &stream));
  ot_residual_end_block(b, &stream);
}

void ot_decoder_layer_experts(ot_builder *b, int layer) {
  ot_residual_stream stream = ot_residual_enter(b, layer, 1);
  watch(b, feed_forward(b, layer, &stream));
  ot_residual_end_block(b, &stream);
}

void ot_decoder_layer(ot_builder *b, int layer) {
  ot_residual_stream stream = ot_residual_enter(b, layer, 0);
  attend(b, layer, &stream);
  watch(b, feed_forward(b, layer, &stream));
  ot_residual_end_block(b, &stream);
}
