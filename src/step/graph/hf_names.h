// SPDX-License-Identifier: Apache-2.0
// The HF tensors of each parameter of a block, by family.
#pragma once

#include "base/arena.h"
#include "describe/model.h"
#include "graph/local_shape.h"
#include "graph/parameter.h"

// The role of a parameter in its block.
typedef enum ot_role {
  OT_ROLE_EMBEDDING,
  OT_ROLE_POSITIONS,
  OT_ROLE_ATTENTION_NORM,  // before attention
  OT_ROLE_QKV,
  OT_ROLE_Q_NORM,  // per head
  OT_ROLE_K_NORM,
  OT_ROLE_Q_ROW_NORM,  // over whole rows
  OT_ROLE_K_ROW_NORM,
  OT_ROLE_SINKS,
  OT_ROLE_Q_DOWN,   // latent attention: to q_rank
  OT_ROLE_Q_UP,     // from q_rank, or from the residual stream, to heads
  OT_ROLE_KV_DOWN,  // to kv_rank and the rotary part
  OT_ROLE_KV_UP,    // from kv_rank to keys and values of heads
  OT_ROLE_Q_LATENT_NORM,
  OT_ROLE_KV_LATENT_NORM,
  OT_ROLE_ATTENTION_OUTPUT,
  OT_ROLE_ATTENTION_POST_NORM,  // after attention, before the residual sum
  OT_ROLE_MLP_NORM,
  OT_ROLE_GATE_UP,  // gate | up, or up alone
  OT_ROLE_DOWN,
  OT_ROLE_MLP_POST_NORM,
  OT_ROLE_ROUTER,
  OT_ROLE_EXPERT_GATE_UP,  // gate | up of every routed expert
  OT_ROLE_EXPERT_DOWN,     // of every routed expert
  OT_ROLE_SHARED_GATE_UP,
  OT_ROLE_SHARED_DOWN,
  OT_ROLE_SHARED_GATE,      // gate of the shared experts' output
  OT_ROLE_ATTENTION_QUERY,  // query of the mix of block outputs that attention reads
  OT_ROLE_MLP_QUERY,
  OT_ROLE_FINAL_QUERY,
  OT_ROLE_FINAL_NORM,
  OT_ROLE_HEAD,
  OT_ROLES,
} ot_role;

// How a parameter is sharded over tp.
typedef enum ot_shard_axis {
  OT_SHARD_NOT,         // replicated, used on this rank's tokens or heads
  OT_SHARD_BY_ROWS,     // column-parallel: outputs of the ranks are concatenated
  OT_SHARD_BY_COLUMNS,  // row-parallel: outputs of the ranks are summed
  OT_SHARD_BY_EXPERTS,  // replicated over tp; sharded over ep
} ot_shard_axis;

// Which parameter.
typedef struct ot_hf_request {
  const ot_model *model;
  const ot_local_shape *share;
  ot_role role;
  int layer;           // -1 outside layers
  const char *suffix;  // "weight", "bias" or "sinks"
} ot_hf_request;

// How tp shards the weights (`vector` false) or the biases of `role`.
ot_shard_axis ot_role_shard_axis(ot_role role, bool vector);

// Fills `parts` and `num_parts` of `parameter`, whose rows, cols and rank are already set to this
// rank's.
void ot_hf_parts(const ot_hf_request *request, ot_arena *arena, ot_parameter *parameter);
