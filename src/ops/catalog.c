// SPDX-License-Identifier: Apache-2.0
// One row for each op kind, gathered from the files that describe them.
#include "ops/catalog.h"

#include <assert.h>
#include <stddef.h>

// NULL: the operator is not described yet.
static const ot_op_info *const rows[] = {
    [OT_OP_EMBEDDING] = NULL,
    [OT_OP_EMBEDDING_GRAD] = NULL,
    [OT_OP_LINEAR] = NULL,
    [OT_OP_LINEAR_DX] = NULL,
    [OT_OP_LINEAR_DW] = NULL,
    [OT_OP_RMSNORM] = NULL,
    [OT_OP_RMSNORM_GRAD] = NULL,
    [OT_OP_LAYERNORM] = NULL,
    [OT_OP_LAYERNORM_GRAD] = NULL,
    [OT_OP_HEAD_NORM] = NULL,
    [OT_OP_HEAD_NORM_GRAD] = NULL,
    [OT_OP_ROPE_TABLE] = NULL,
    [OT_OP_ROPE] = NULL,
    [OT_OP_ROPE_GRAD] = NULL,
    [OT_OP_ATTENTION] = NULL,
    [OT_OP_ATTENTION_GRAD] = NULL,
    [OT_OP_ACTIVATION] = NULL,
    [OT_OP_ACTIVATION_GRAD] = NULL,
    [OT_OP_GLU] = NULL,
    [OT_OP_GLU_GRAD] = NULL,
    [OT_OP_ADD] = NULL,
    [OT_OP_DROPOUT] = NULL,
    [OT_OP_DROPOUT_GRAD] = NULL,
    [OT_OP_ABSMAX] = NULL,
    [OT_OP_CAST] = NULL,
    [OT_OP_ZERO] = NULL,
    [OT_OP_HEAD_LOSS] = NULL,
    [OT_OP_HEAD_EVALUATE] = NULL,
    [OT_OP_HEAD_SCORE] = NULL,
    [OT_OP_HEAD_LOGITS] = NULL,
    [OT_OP_APPEND_KV] = NULL,
    [OT_OP_ATTENTION_DECODE] = NULL,
    [OT_OP_SUM_SQUARES] = NULL,
    [OT_OP_CLIP_FACTOR] = NULL,
    [OT_OP_ADAMW] = NULL,
    [OT_OP_MUON] = NULL,
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

int64_t ot_op_workspace(ot_op_kind kind, const ot_op_attributes *attributes,
                        const ot_op_types *types) {
  const ot_op_info *const info = ot_op_info_of(kind);
  const int64_t bytes = info->workspace ? info->workspace(attributes, types) : 0;
  return (bytes + 63) / 64 * 64;
}
