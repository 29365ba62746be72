// SPDX-License-Identifier: Apache-2.0
// The list of families, and their keys for the schema of models.
#include "describe/family.h"

#include <assert.h>

#include "base/text.h"

extern const ot_family_row ot_family_gpt2;
extern const ot_family_row ot_family_llama;
extern const ot_family_row ot_family_qwen2;
extern const ot_family_row ot_family_qwen3;
extern const ot_family_row ot_family_olmo2;
extern const ot_family_row ot_family_mistral;
extern const ot_family_row ot_family_gemma2;
extern const ot_family_row ot_family_gemma3;
extern const ot_family_row ot_family_mixtral;
extern const ot_family_row ot_family_qwen3_moe;
extern const ot_family_row ot_family_olmoe;
extern const ot_family_row ot_family_gpt_oss;
extern const ot_family_row ot_family_deepseek_v3;
extern const ot_family_row ot_family_smollm3;
extern const ot_family_row ot_family_phi3;
extern const ot_family_row ot_family_qwen2_moe;
extern const ot_family_row ot_family_olmo3;
extern const ot_family_row ot_family_kimi_k2;
extern const ot_family_row ot_family_glm4_moe;

static const ot_family_row *const rows[] = {
    [OT_FAMILY_GPT2] = &ot_family_gpt2,
    [OT_FAMILY_LLAMA] = &ot_family_llama,
    [OT_FAMILY_QWEN2] = &ot_family_qwen2,
    [OT_FAMILY_QWEN3] = &ot_family_qwen3,
    [OT_FAMILY_OLMO2] = &ot_family_olmo2,
    [OT_FAMILY_MISTRAL] = &ot_family_mistral,
    [OT_FAMILY_GEMMA2] = &ot_family_gemma2,
    [OT_FAMILY_GEMMA3] = &ot_family_gemma3,
    [OT_FAMILY_MIXTRAL] = &ot_family_mixtral,
    [OT_FAMILY_QWEN3_MOE] = &ot_family_qwen3_moe,
    [OT_FAMILY_OLMOE] = &ot_family_olmoe,
    [OT_FAMILY_GPT_OSS] = &ot_family_gpt_oss,
    [OT_FAMILY_DEEPSEEK_V3] = &ot_family_deepseek_v3,
    [OT_FAMILY_SMOLLM3] = &ot_family_smollm3,
    [OT_FAMILY_PHI3] = &ot_family_phi3,
    [OT_FAMILY_QWEN2_MOE] = &ot_family_qwen2_moe,
    [OT_FAMILY_OLMO3] = &ot_family_olmo3,
    [OT_FAMILY_KIMI_K2] = &ot_family_kimi_k2,
    [OT_FAMILY_GLM4_MOE] = &ot_family_glm4_moe,
};
static_assert(OT_COUNT(rows) == OT_FAMILY_COUNT, "one row for each family");

const ot_family_row *ot_family_row_of(ot_family family) { return rows[family]; }

const char *ot_family_name(ot_family family) { return rows[family]->model_type; }

const char *ot_family_architecture(ot_family family) { return rows[family]->architecture; }

const char *ot_family_types(int index) {
  if (index >= OT_FAMILY_COUNT) return NULL;
  return rows[index]->spellings ? rows[index]->spellings : rows[index]->model_type;
}

// ---- Keys ----

bool ot_family_has_key(const ot_key *key, int variant) {
  const ot_family_row *const row = ot_family_of_variant(variant);
  if (key->variants == OT_KEYS_NAMED) return ot_choice_matches(row->keys, key->name);
  return (key->variants & row->key_sets) != 0 && !ot_choice_matches(row->without, key->name);
}

const ot_key *ot_family_added_key(int variant, int index) {
  const int begin = variant > 0 ? variant - 1 : 0;
  const int end = variant > 0 ? variant : OT_FAMILY_COUNT;
  for (int i = begin; i < end; i++) {
    for (const ot_key *key = rows[i]->own; key && key->name; key++) {
      if (index-- == 0) return key;
    }
  }
  return NULL;
}

const char *ot_family_fallback(const ot_key *key, int variant) {
  if (variant == 0) return NULL;
  const ot_family_default *at = ot_family_of_variant(variant)->defaults;
  while (at->key && !ot_text_equal(at->key, key->name)) at++;
  return at->text;
}
