// SPDX-License-Identifier: Apache-2.0
// The tensors of HF files behind each parameter of a block, by family.
#pragma once

#include "base/arena.h"
#include "describe/model.h"
#include "graph/parameter.h"

// The role of a parameter in its block.
typedef enum ot_role {
  OT_ROLE_EMBEDDING,
  OT_ROLE_POSITIONS,
  OT_ROLE_ATTENTION_NORM,  // before attention
  OT_ROLE_QKV,
  OT_ROLE_Q_NORM,
  OT_ROLE_K_NORM,
  OT_ROLE_ATTENTION_OUTPUT,
  OT_ROLE_ATTENTION_POST_NORM,  // after attention, before the residual sum
  OT_ROLE_MLP_NORM,
  OT_ROLE_GATE_UP,  // gate | up, or up alone
  OT_ROLE_DOWN,
  OT_ROLE_MLP_POST_NORM,
  OT_ROLE_FINAL_NORM,
  OT_ROLE_HEAD,
  OT_ROLES,
} ot_role;

// Fills `parts` and `num_parts` of the parameter in role `role` of layer `layer` (-1 outside
// layers); `suffix` is "weight" or "bias". Rows and rank must be set.
void ot_hf_parts(const ot_model *model, ot_role role, int layer, const char *suffix,
                 ot_arena *arena, ot_parameter *parameter);
