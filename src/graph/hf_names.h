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

// Which parameter.
typedef struct ot_hf_request {
  const ot_model *model;
  ot_role role;
  int layer;           // -1 outside layers
  const char *suffix;  // "weight" or "bias"
} ot_hf_request;

// Fills `parts` and `num_parts` of `parameter`, whose rows and rank are set.
void ot_hf_parts(const ot_hf_request *request, ot_arena *arena, ot_parameter *parameter);
