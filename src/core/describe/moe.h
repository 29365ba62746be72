// SPDX-License-Identifier: Apache-2.0
// Consistency checks and sizes of mixtures of experts and of latent attention. Parts of model.h.
#pragma once

#include "describe/model.h"

// Checks ranges and relations of model->moe; accepts a dense model. OT_USAGE naming the HF key.
ot_status ot_moe_check(const ot_model *model);

// The same for model->mla.
ot_status ot_mla_check(const ot_model *model);

// Number of MoE layers.
int64_t ot_moe_layers(const ot_model *model);

// The factor of the load-balancing loss of each layer (ops/route_balance.h).
double ot_moe_aux_weight(const ot_model *model);

// Trainable elements of the router, of `experts` routed experts and of the shared ones of a layer.
int64_t ot_moe_elements(const ot_model *model, int64_t experts);

// Trainable elements of latent attention, including its norms.
int64_t ot_mla_elements(const ot_model *model);

// HF's key for the number of experts of the family: "num_local_experts".
const char *ot_moe_experts_key(ot_family family);
