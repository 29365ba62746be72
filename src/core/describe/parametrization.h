// SPDX-License-Identifier: Apache-2.0
// How initial weights and learning rates follow from a model's width and depth. `standard` uses the
// same values for every size. With `mup` the best learning rate of a small base model is that of a
// large one (Yang et al. 2022, arXiv 2203.03466; in depth CompleteP, Dey et al. 2025, arXiv
// 2505.01618); at the base sizes both are the same. The rules: graph/parametrize.h.
#pragma once

#include "describe/model.h"

typedef enum ot_parametrization_name {
  OT_PARAMETRIZATION_STANDARD,
  OT_PARAMETRIZATION_MUP,
  OT_PARAMETRIZATIONS,
} ot_parametrization_name;

// Names as in files, null after the last.
extern const char *const ot_parametrization_names[OT_PARAMETRIZATIONS + 1];

// Sizes of the base model; 0: the model's own, unless it says otherwise.
typedef struct ot_parametrization {
  ot_parametrization_name name;
  int64_t base_hidden_size;  // > 0 with mup; other widths grow in proportion to it, except:
  int64_t base_head_dim;
  int64_t base_kv_heads;      // 0: in proportion to hidden_size, as are query heads
  int64_t base_q_lora_rank;   // latent attention
  int64_t base_kv_lora_rank;  //
  int64_t base_layers;
  double depth_alpha;  // residual branches are multiplied by (layers / base_layers)^-depth_alpha
} ot_parametrization;

// True when the rules of mup apply. `parametrization` may be null: standard.
bool ot_parametrization_scales(const ot_parametrization *parametrization);

// OT_USAGE naming key, value and what to try.
ot_status ot_parametrization_check(const ot_parametrization *parametrization,
                                   const ot_model *model);
