// SPDX-License-Identifier: Apache-2.0
// Names of recompute modes and modules, and the modules of a model.
#include "describe/recompute_modules.h"

#include <stddef.h>

#include "base/text.h"

const char *const ot_recompute_names[] = {[OT_RECOMPUTE_NONE] = "none",
                                          [OT_RECOMPUTE_SELECTIVE] = "selective",
                                          [OT_RECOMPUTE_FULL] = "full",
                                          [OT_RECOMPUTES] = NULL};

const char *const ot_recompute_module_names[] = {[OT_MODULE_CORE_ATTN] = "core_attn",
                                                 [OT_MODULE_LAYERNORM] = "layernorm",
                                                 [OT_MODULE_MLA_UP_PROJ] = "mla_up_proj",
                                                 [OT_MODULE_MOE_ACT] = "moe_act",
                                                 [OT_MODULE_MLP] = "mlp",
                                                 [OT_MODULE_MOE] = "moe",
                                                 [OT_MODULE_SHARED_EXPERTS] = "shared_experts",
                                                 [OT_RECOMPUTE_MODULES] = NULL};

ot_module_set ot_model_modules(const ot_model *model) {
  const ot_moe *const moe = &model->moe;
  ot_module_set set = OT_MODULE_SET(OT_MODULE_CORE_ATTN) | OT_MODULE_SET(OT_MODULE_LAYERNORM);
  if (model->mla.kv_rank > 0) set |= OT_MODULE_SET(OT_MODULE_MLA_UP_PROJ);
  for (int64_t i = 0; i < model->num_layers; i++) {
    const bool experts = moe->num_experts > 0 && moe->layer[i];
    set |= OT_MODULE_SET(experts ? OT_MODULE_MOE : OT_MODULE_MLP);
    if (experts) set |= OT_MODULE_SET(OT_MODULE_MOE_ACT);
    if (experts && moe->shared_size > 0) set |= OT_MODULE_SET(OT_MODULE_SHARED_EXPERTS);
  }
  return set;
}

int64_t ot_module_set_print(ot_module_set set, const char *between, char *out, int64_t capacity) {
  int64_t length = 0;
  if (capacity > 0) out[0] = '\0';
  for (int m = 0; m < (int)OT_RECOMPUTE_MODULES && length < capacity; m++) {
    if (!(set & OT_MODULE_SET(m))) continue;
    length += ot_text_format(out + length, capacity - length, "%s%s", length > 0 ? between : "",
                             ot_recompute_module_names[m]);
  }
  return length;
}

ot_status ot_module_set_check(ot_module_set set, const ot_model *model) {
  char lacks[OT_MODULES_BYTES], known[OT_MODULES_BYTES];
  const ot_module_set has = ot_model_modules(model);
  ot_module_set_print(set & ~has, ", ", lacks, sizeof lacks);
  ot_module_set_print(has, ", ", known, sizeof known);
  OT_CHECK((set & ~has) == 0, OT_USAGE,
           "recompute_modules: the layers of this model have no %s (allowed: %s)", lacks, known);
  return OT_OK;
}

static bool is_between(char c) { return c == ' ' || c == ','; }

static ot_status read_word(const char *key, const char *word, int64_t length, ot_module_set *out) {
  char known[OT_MODULES_BYTES];
  int m = 0;
  while (m < (int)OT_RECOMPUTE_MODULES &&
         !(ot_text_length(ot_recompute_module_names[m]) == length &&
           ot_text_starts_with(word, ot_recompute_module_names[m]))) {
    m++;
  }
  ot_module_set_print(OT_MODULE_SET(OT_RECOMPUTE_MODULES) - 1, ", ", known, sizeof known);
  OT_CHECK(m < (int)OT_RECOMPUTE_MODULES, OT_USAGE,
           "%s: no part of a layer is called \"%.*s\" (allowed: %s)", key, (int)length, word,
           known);
  *out |= OT_MODULE_SET(m);
  return OT_OK;
}

ot_status ot_module_set_read(const char *key, const char *text, ot_module_set *out) {
  *out = 0;
  for (const char *at = text; *at != '\0';) {
    const char *const word = at;
    while (*at != '\0' && !is_between(*at)) at++;
    if (at > word) OT_TRY(read_word(key, word, at - word, out));
    while (is_between(*at)) at++;
  }
  return OT_OK;
}
