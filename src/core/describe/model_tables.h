// SPDX-License-Identifier: Apache-2.0
// The parts of the table of HF keys, and the bits that its entries use for families. For
// model_keys.c and its neighbours.
#pragma once

#include "describe/model_keys.h"

// Variants of ot_model_schema.
enum {
  OT_IN_GPT2 = 1 << OT_FAMILY_GPT2,
  OT_IN_LLAMA = 1 << OT_FAMILY_LLAMA,
  OT_IN_QWEN2 = 1 << OT_FAMILY_QWEN2,
  OT_IN_QWEN3 = 1 << OT_FAMILY_QWEN3,
  OT_IN_OLMO2 = 1 << OT_FAMILY_OLMO2,
  OT_IN_MISTRAL = 1 << OT_FAMILY_MISTRAL,
  OT_IN_GEMMA2 = 1 << OT_FAMILY_GEMMA2,
  OT_IN_GEMMA3 = 1 << OT_FAMILY_GEMMA3,
  OT_IN_MIXTRAL = 1 << OT_FAMILY_MIXTRAL,
  OT_IN_QWEN3_MOE = 1 << OT_FAMILY_QWEN3_MOE,
  OT_IN_OLMOE = 1 << OT_FAMILY_OLMOE,
  OT_IN_GPT_OSS = 1 << OT_FAMILY_GPT_OSS,
  OT_IN_DEEPSEEK_V3 = 1 << OT_FAMILY_DEEPSEEK_V3,
  OT_IN_SMOLLM3 = 1 << OT_FAMILY_SMOLLM3,
  OT_IN_PHI3 = 1 << OT_FAMILY_PHI3,
  OT_IN_QWEN2_MOE = 1 << OT_FAMILY_QWEN2_MOE,
  OT_IN_OLMO3 = 1 << OT_FAMILY_OLMO3,
  OT_IN_GEMMA = OT_IN_GEMMA2 | OT_IN_GEMMA3,
  OT_IN_ALL = (1 << OT_FAMILY_COUNT) - 1,
  OT_IN_MOE = OT_IN_MIXTRAL | OT_IN_QWEN3_MOE | OT_IN_OLMOE | OT_IN_DEEPSEEK_V3 | OT_IN_QWEN2_MOE |
              OT_IN_GPT_OSS,
  OT_IN_ROTARY = OT_IN_ALL & ~OT_IN_GPT2,
  OT_IN_WINDOWED = OT_IN_QWEN2 | OT_IN_QWEN3 | OT_IN_MISTRAL | OT_IN_GEMMA | OT_IN_MIXTRAL |
                   OT_IN_QWEN3_MOE | OT_IN_SMOLLM3 | OT_IN_PHI3 | OT_IN_QWEN2_MOE | OT_IN_OLMO3 |
                   OT_IN_GPT_OSS,
};

// Keys that do not affect the mathematics of training, separated by '|'.
extern const char ot_inert_model_keys[];

// The default of a key in a family where it differs from the key's own, or null.
const char *ot_family_fallback(const ot_key *key, uint32_t variant);
