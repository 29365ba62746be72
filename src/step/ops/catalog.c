// SPDX-License-Identifier: Apache-2.0
// One entry per op kind, collected from the files of the ops.
#include "ops/catalog.h"

#include <assert.h>
#include <stddef.h>

#include "ops/activation.h"
#include "ops/attention.h"
#include "ops/checksum.h"
#include "ops/collective.h"
#include "ops/context.h"
#include "ops/decode.h"
#include "ops/dispatch.h"
#include "ops/elementwise.h"
#include "ops/embedding.h"
#include "ops/expert_bias.h"
#include "ops/expert_exchange.h"
#include "ops/expert_rounds.h"
#include "ops/grouped.h"
#include "ops/head.h"
#include "ops/head_draw.h"
#include "ops/head_norm.h"
#include "ops/head_parts.h"
#include "ops/latent.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/optimizer.h"
#include "ops/repeat.h"
#include "ops/residual.h"
#include "ops/rope.h"
#include "ops/route.h"
#include "ops/route_balance.h"

static const ot_op_info *const rows[] = {
    [OT_OP_EMBEDDING] = &ot_embedding_info,
    [OT_OP_EMBEDDING_GRAD] = &ot_embedding_grad_info,
    [OT_OP_POSITION_GRAD] = &ot_position_grad_info,
    [OT_OP_LINEAR] = &ot_linear_info,
    [OT_OP_LINEAR_DX] = &ot_linear_dx_info,
    [OT_OP_LINEAR_DW] = &ot_linear_dw_info,
    [OT_OP_LINEAR_WIDE] = &ot_linear_wide_info,
    [OT_OP_LINEAR_WIDE_DX] = &ot_linear_wide_dx_info,
    [OT_OP_RMSNORM] = &ot_rmsnorm_info,
    [OT_OP_RMSNORM_GRAD] = &ot_rmsnorm_grad_info,
    [OT_OP_LAYERNORM] = &ot_layernorm_info,
    [OT_OP_LAYERNORM_GRAD] = &ot_layernorm_grad_info,
    [OT_OP_HEAD_NORM] = &ot_head_norm_info,
    [OT_OP_HEAD_NORM_GRAD] = &ot_head_norm_grad_info,
    [OT_OP_HEAD_MEANS] = &ot_head_means_info,
    [OT_OP_ROPE_TABLE] = &ot_rope_table_info,
    [OT_OP_ROPE] = &ot_rope_info,
    [OT_OP_ROPE_GRAD] = &ot_rope_grad_info,
    [OT_OP_ATTENTION] = &ot_attention_info,
    [OT_OP_ATTENTION_GRAD] = &ot_attention_grad_info,
    [OT_OP_ATTENTION_SINKS_GRAD] = &ot_attention_sinks_grad_info,
    [OT_OP_ACTIVATION] = &ot_activation_info,
    [OT_OP_ACTIVATION_GRAD] = &ot_activation_grad_info,
    [OT_OP_GLU] = &ot_glu_info,
    [OT_OP_GLU_GRAD] = &ot_glu_grad_info,
    [OT_OP_ADD] = &ot_add_info,
    [OT_OP_BIAS] = &ot_bias_info,
    [OT_OP_GATE] = &ot_gate_info,
    [OT_OP_GATE_GRAD] = &ot_gate_grad_info,
    [OT_OP_DROPOUT] = &ot_dropout_info,
    [OT_OP_DROPOUT_GRAD] = &ot_dropout_grad_info,
    [OT_OP_ABSMAX] = &ot_absmax_info,
    [OT_OP_CAST] = &ot_cast_info,
    [OT_OP_ZERO] = &ot_zero_info,
    [OT_OP_INVERSE] = &ot_inverse_info,
    [OT_OP_HEAD_LOSS] = &ot_head_loss_info,
    [OT_OP_HEAD_EVALUATE] = &ot_head_evaluate_info,
    [OT_OP_HEAD_SCORE] = &ot_head_score_info,
    [OT_OP_HEAD_LOGITS] = &ot_head_logits_info,
    [OT_OP_HEAD_DRAW] = &ot_head_draw_info,
    [OT_OP_HEAD_STATISTICS] = &ot_head_statistics_info,
    [OT_OP_HEAD_DLOGITS] = &ot_head_dlogits_info,
    [OT_OP_HEAD_GRADIENT] = &ot_head_gradient_info,
    [OT_OP_HEAD_GRADIENT_LAST] = &ot_head_gradient_last_info,
    [OT_OP_HEAD_COUNT] = &ot_head_count_info,
    [OT_OP_APPEND_KV] = &ot_append_kv_info,
    [OT_OP_ATTENTION_DECODE] = &ot_attention_decode_info,
    [OT_OP_SUM_SQUARES] = &ot_sum_squares_info,
    [OT_OP_CLIP_FACTOR] = &ot_clip_factor_info,
    [OT_OP_ADAMW] = &ot_adamw_info,
    [OT_OP_MUON] = &ot_muon_info,
    [OT_OP_CHECKSUM] = &ot_checksum_info,
    [OT_OP_ATTENTION_BLOCK] = &ot_attention_block_info,
    [OT_OP_ATTENTION_BLOCK_GRAD] = &ot_attention_block_grad_info,
    [OT_OP_KV_SLICE] = &ot_kv_slice_info,
    [OT_OP_QKV_JOIN] = &ot_qkv_join_info,
    [OT_OP_HEADS_SCATTER] = &ot_heads_scatter_info,
    [OT_OP_HEADS_GATHER] = &ot_heads_gather_info,
    [OT_OP_SEQUENCE_JOIN] = &ot_sequence_join_info,
    [OT_OP_SEQUENCE_SPLIT] = &ot_sequence_split_info,
    [OT_OP_ROUTE] = &ot_route_info,
    [OT_OP_ROUTE_GRAD] = &ot_route_grad_info,
    [OT_OP_SORT_BY_EXPERT] = &ot_route_order_info,
    [OT_OP_ROUTE_COUNT] = &ot_route_count_info,
    [OT_OP_ROUTE_LOSS] = &ot_route_loss_info,
    [OT_OP_ROUTE_LOSS_GRAD] = &ot_route_loss_grad_info,
    [OT_OP_ROUTE_LOAD] = &ot_route_load_info,
    [OT_OP_ROUTE_BIAS] = &ot_route_bias_info,
    [OT_OP_DISPATCH] = &ot_dispatch_info,
    [OT_OP_COMBINE] = &ot_combine_info,
    [OT_OP_EXPERT_BIAS] = &ot_expert_bias_info,
    [OT_OP_EXPERT_BIAS_DX] = &ot_expert_bias_dx_info,
    [OT_OP_EXPERT_BIAS_DW] = &ot_expert_bias_dw_info,
    [OT_OP_ALL_TO_ALL_V_PLAN] = &ot_exchange_plan_info,
    [OT_OP_OVERFLOW_PASSES] = &ot_more_rounds_info,
    [OT_OP_OVERFLOW_PASSES_DX] = &ot_more_rounds_dx_info,
    [OT_OP_OVERFLOW_PASSES_DW] = &ot_more_rounds_dw_info,
    [OT_OP_GROUPED_LINEAR] = &ot_grouped_linear_info,
    [OT_OP_GROUPED_LINEAR_DX] = &ot_grouped_linear_dx_info,
    [OT_OP_GROUPED_LINEAR_DW] = &ot_grouped_linear_dw_info,
    [OT_OP_LATENT_SPLIT] = &ot_latent_split_info,
    [OT_OP_LATENT_JOIN] = &ot_latent_join_info,
    [OT_OP_LATENT_HEADS] = &ot_latent_heads_info,
    [OT_OP_LATENT_HEADS_GRAD] = &ot_latent_heads_grad_info,
    [OT_OP_VALUE_TRIM] = &ot_value_trim_info,
    [OT_OP_VALUE_PAD] = &ot_value_pad_info,
    [OT_OP_APPEND_LATENT] = &ot_append_latent_info,
    [OT_OP_LATENT_DECODE] = &ot_latent_decode_info,
    [OT_OP_RESIDUAL_ATTENTION] = &ot_residual_attention_info,
    [OT_OP_RESIDUAL_ATTENTION_GRAD] = &ot_residual_attention_grad_info,
    [OT_OP_REPEAT] = &ot_repeat_info,
    [OT_OP_ALL_GATHER] = &ot_all_gather_info,
    [OT_OP_REDUCE_SCATTER] = &ot_reduce_scatter_info,
    [OT_OP_ALL_REDUCE] = &ot_all_reduce_info,
    [OT_OP_ALL_TO_ALL] = &ot_all_to_all_info,
    [OT_OP_SHIFT] = &ot_shift_info,
    [OT_OP_ALL_TO_ALL_V] = &ot_exchange_info,
    [OT_OP_ALL_TO_ALL_V_BACK] = &ot_exchange_home_info,
    [OT_OP_SEND] = &ot_send_info,
    [OT_OP_RECEIVE] = &ot_receive_info,
    [OT_OP_PUBLISH] = &ot_publish_info,
};
static_assert(sizeof rows / sizeof rows[0] == OT_OP_COUNT, "one row for each op kind");

const ot_op_info *ot_op_info_of(ot_op_kind kind) {
  OT_ASSERT(kind >= 0 && kind < OT_OP_COUNT);
  OT_ASSERT(rows[kind] != NULL);
  return rows[kind];
}

ot_status ot_op_infer(ot_op_kind kind, const ot_op_attributes *attributes, ot_op_types *types) {
  const ot_op_info *const info = ot_op_info_of(kind);
  for (int i = 0; i < info->num_inputs; i++) {
    const bool given = ot_type_present(&types->in[i]) || (info->optional_inputs >> i & 1) != 0;
    OT_CHECK(given, OT_BUG, "%s: input %d is absent", info->name, i);
  }
  return info->infer ? info->infer(attributes, types) : OT_OK;
}

ot_cost ot_op_cost(ot_op_kind kind, const ot_op_attributes *attributes, const ot_op_types *types) {
  const ot_op_info *const info = ot_op_info_of(kind);
  return info->cost ? info->cost(attributes, types) : (ot_cost){0};
}

int ot_op_sent_input(ot_op_kind kind) { return kind == OT_OP_ALL_TO_ALL_V_BACK ? 1 : 0; }

bool ot_op_is_all_to_all_v(ot_op_kind kind) {
  return kind == OT_OP_ALL_TO_ALL_V || kind == OT_OP_ALL_TO_ALL_V_BACK;
}
