// SPDX-License-Identifier: Apache-2.0
// The rows.
#include "describe/family.h"

#include <assert.h>

static const ot_family_row rows[] = {
    [OT_FAMILY_GPT2] = {.architecture = "GPT2LMHeadModel",
                        .norm = OT_NORM_LAYERNORM,
                        .all_biases = true,
                        .learned_positions = true},
    [OT_FAMILY_LLAMA] = {.architecture = "LlamaForCausalLM",
                         .norm = OT_NORM_RMSNORM,
                         .gated_mlp = true},
    [OT_FAMILY_QWEN2] = {.architecture = "Qwen2ForCausalLM",
                         .norm = OT_NORM_RMSNORM,
                         .gated_mlp = true,
                         .qkv_biases = true,
                         .window_switch = true,
                         .window_rule = OT_WINDOW_LAST,
                         .writes_layer_types = true},
    [OT_FAMILY_QWEN3] = {.architecture = "Qwen3ForCausalLM",
                         .norm = OT_NORM_RMSNORM,
                         .qk_norm = OT_QK_NORM_HEAD,
                         .gated_mlp = true,
                         .window_switch = true,
                         .window_rule = OT_WINDOW_LAST,
                         .writes_layer_types = true},
    [OT_FAMILY_OLMO2] = {.architecture = "Olmo2ForCausalLM",
                         .norm = OT_NORM_RMSNORM,
                         .norm_placement = OT_NORM_POST,
                         .qk_norm = OT_QK_NORM_ROW,
                         .gated_mlp = true},
    [OT_FAMILY_MISTRAL] = {.architecture = "MistralForCausalLM",
                           .norm = OT_NORM_RMSNORM,
                           .gated_mlp = true,
                           .window_rule = OT_WINDOW_ALL},
    [OT_FAMILY_GEMMA3] = {.architecture = "Gemma3ForCausalLM",
                          .norm = OT_NORM_RMSNORM,
                          .norm_placement = OT_NORM_SANDWICH,
                          .qk_norm = OT_QK_NORM_HEAD,
                          .norm_offset = 1,
                          .gated_mlp = true,
                          .scaled_embedding = true,
                          .rope_by_type = true,
                          .window_rule = OT_WINDOW_PATTERN,
                          .writes_layer_types = true},
    [OT_FAMILY_MIXTRAL] = {.architecture = "MixtralForCausalLM",
                           .norm = OT_NORM_RMSNORM,
                           .gated_mlp = true,
                           .window_rule = OT_WINDOW_ALL},
    [OT_FAMILY_QWEN3_MOE] = {.architecture = "Qwen3MoeForCausalLM",
                             .norm = OT_NORM_RMSNORM,
                             .qk_norm = OT_QK_NORM_HEAD,
                             .gated_mlp = true,
                             .window_switch = true,
                             .window_rule = OT_WINDOW_ALL},
    [OT_FAMILY_OLMOE] = {.architecture = "OlmoeForCausalLM",
                         .norm = OT_NORM_RMSNORM,
                         .qk_norm = OT_QK_NORM_ROW,
                         .gated_mlp = true},
    [OT_FAMILY_DEEPSEEK_V3] = {.architecture = "DeepseekV3ForCausalLM",
                               .norm = OT_NORM_RMSNORM,
                               .gated_mlp = true,
                               .latent_attention = true},
    [OT_FAMILY_SMOLLM3] = {.architecture = "SmolLM3ForCausalLM",
                           .norm = OT_NORM_RMSNORM,
                           .gated_mlp = true,
                           .window_switch = true,
                           .window_rule = OT_WINDOW_NO_ROPE,
                           .writes_layer_types = true},
    [OT_FAMILY_PHI3] = {.architecture = "Phi3ForCausalLM",
                        .norm = OT_NORM_RMSNORM,
                        .gated_mlp = true,
                        .window_rule = OT_WINDOW_ALL},
};
static_assert(OT_COUNT(rows) == OT_FAMILY_COUNT, "one row for each family");

const char *const ot_family_choices[] = {
    [OT_FAMILY_GPT2] = "gpt2",
    [OT_FAMILY_LLAMA] = "llama",
    [OT_FAMILY_QWEN2] = "qwen2",
    [OT_FAMILY_QWEN3] = "qwen3",
    [OT_FAMILY_OLMO2] = "olmo2",
    [OT_FAMILY_MISTRAL] = "mistral|ministral",
    [OT_FAMILY_GEMMA3] = "gemma3_text",
    [OT_FAMILY_MIXTRAL] = "mixtral",
    [OT_FAMILY_QWEN3_MOE] = "qwen3_moe",
    [OT_FAMILY_OLMOE] = "olmoe",
    [OT_FAMILY_DEEPSEEK_V3] = "deepseek_v3",
    [OT_FAMILY_SMOLLM3] = "smollm3",
    [OT_FAMILY_PHI3] = "phi3",
    [OT_FAMILY_COUNT] = NULL,
};

const ot_family_row *ot_family_row_of(ot_family family) { return &rows[family]; }

// The first of its spellings.
const char *ot_family_name(ot_family family) {
  return family == OT_FAMILY_MISTRAL ? "mistral" : ot_family_choices[family];
}

const char *ot_family_architecture(ot_family family) { return rows[family].architecture; }
