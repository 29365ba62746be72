// SPDX-License-Identifier: Apache-2.0
// What holds between the values of a mixture of experts and of latent attention, and how large they
// are. Parts of model.h.
#pragma once

#include "describe/model.h"

// The ranges and relations of model->moe; nothing for a dense model. OT_USAGE naming the HF key.
ot_status ot_moe_check(const ot_model *model);

// The same of model->mla.
ot_status ot_mla_check(const ot_model *model);

// Layers that have experts.
int64_t ot_moe_layers(const ot_model *model);

// What multiplies the load-balancing loss of each layer (ops/route_balance.h).
double ot_moe_aux_weight(const ot_model *model);

// Trainable elements of the router, of `experts` routed experts and of the shared ones of a layer.
int64_t ot_moe_elements(const ot_model *model, int64_t experts);

// Trainable elements of latent attention, its norms included.
int64_t ot_mla_elements(const ot_model *model);

// Spelling of the number of experts in HF's configurations of the family: "num_local_experts".
const char *ot_moe_experts_key(ot_family family);
