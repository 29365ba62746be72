// SPDX-License-Identifier: Apache-2.0
// Recomputed activations: the mode of a layer, and the parts of a layer that selective recompute
// can be limited to, as Megatron-LM calls them (--recompute-modules). What a part makes is not
// saved: the part runs again from its inputs before the backward (graph/recompute.h).
#pragma once

#include <stdint.h>

#include "base/status.h"
#include "describe/model.h"

typedef enum ot_recompute {
  OT_RECOMPUTE_NONE,       // every activation that the backward reads is saved
  OT_RECOMPUTE_SELECTIVE,  // cheap ops (norms, activations) are recomputed, or given modules
  OT_RECOMPUTE_FULL,       // only the layer's input is saved
  OT_RECOMPUTES,
} ot_recompute;

// Names as in files, null after the last.
extern const char *const ot_recompute_names[OT_RECOMPUTES + 1];

typedef enum ot_recompute_module {
  OT_MODULE_CORE_ATTN,       // attention, from queries, keys and values on
  OT_MODULE_LAYERNORM,       // norms of the residual stream
  OT_MODULE_MLA_UP_PROJ,     // latent attention: from latents to queries, keys and values
  OT_MODULE_MOE_ACT,         // activation of the routed experts
  OT_MODULE_MLP,             // dense feed-forward part
  OT_MODULE_MOE,             // router, dispatch, experts, shared experts
  OT_MODULE_SHARED_EXPERTS,  // a part of the above
  OT_RECOMPUTE_MODULES,
} ot_recompute_module;

// A set of modules; bit m is module m.
typedef unsigned ot_module_set;

#define OT_MODULE_SET(module) (1u << (module))

// Names as in files, null after the last.
extern const char *const ot_recompute_module_names[OT_RECOMPUTE_MODULES + 1];

// The modules that layers of `model` have.
ot_module_set ot_model_modules(const ot_model *model);

// Room for the names of all modules and some words.
enum { OT_MODULES_BYTES = 128 };

// Reads "core_attn,moe_act" or "core_attn moe_act". OT_USAGE begins with `key`.
ot_status ot_module_set_read(const char *key, const char *text, ot_module_set *out);

// OT_USAGE, naming what layers of `model` lack.
ot_status ot_module_set_check(ot_module_set set, const ot_model *model);

// "core_attn, moe_act", with `between` as ", ".
int64_t ot_module_set_print(ot_module_set set, const char *between, char *out, int64_t capacity);
