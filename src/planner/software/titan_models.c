// SPDX-License-Identifier: Apache-2.0
// The table of titan_models.h.
#include "software/titan_models.h"

#include <stddef.h>

// clang-format off
static const ot_titan_model models[] = {
    {"llama3", "8B", "llama3.1-8b", OT_FAMILY_LLAMA, 32, 4096},
    {"llama3", "70B", "llama3.1-70b", OT_FAMILY_LLAMA, 80, 8192},
    {"llama3", "405B", "llama3.1-405b", OT_FAMILY_LLAMA, 126, 16384},
    {"qwen3", "0.6B", "qwen3-0.6b", OT_FAMILY_QWEN3, 28, 1024},
    {"qwen3", "1.7B", "qwen3-1.7b", OT_FAMILY_QWEN3, 28, 2048},
    {"qwen3", "4B", "qwen3-4b", OT_FAMILY_QWEN3, 36, 2560},
    {"qwen3", "8B", "qwen3-8b", OT_FAMILY_QWEN3, 36, 4096},
    {"qwen3", "14B", "qwen3-14b", OT_FAMILY_QWEN3, 40, 5120},
    {"qwen3", "32B", "qwen3-32b", OT_FAMILY_QWEN3, 64, 5120},
    {"qwen3", "30B-A3B", "qwen3-30b-a3b", OT_FAMILY_QWEN3_MOE, 48, 2048},
    {"qwen3", "235B-A22B", "qwen3-235b-a22b", OT_FAMILY_QWEN3_MOE, 94, 4096},
    {"deepseek_v3", "671B", "deepseek-v3", OT_FAMILY_DEEPSEEK_V3, 61, 7168},
};
// clang-format on

const ot_titan_model *ot_titan_model_at(int index) {
  return index < OT_COUNT(models) ? &models[index] : NULL;
}

const ot_titan_model *ot_titan_model_of(const ot_model *model) {
  enum { LLAMA_3_VOCABULARY = 128256 };
  if (model->family == OT_FAMILY_LLAMA && model->vocab_size != LLAMA_3_VOCABULARY) return NULL;
  for (int i = 0; i < OT_COUNT(models); i++) {
    const ot_titan_model *const m = &models[i];
    const bool sizes = m->layers == model->num_layers && m->hidden == model->hidden_size;
    if (m->family == model->family && sizes) return m;
  }
  return NULL;
}
