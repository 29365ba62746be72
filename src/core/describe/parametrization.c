// SPDX-License-Identifier: Apache-2.0
// Checks of the parametrization section.
#include "describe/parametrization.h"

#include <stddef.h>

#include "describe/family.h"
#include "describe/model_keys.h"

const char *const ot_parametrization_names[] = {[OT_PARAMETRIZATION_STANDARD] = "standard",
                                                [OT_PARAMETRIZATION_MUP] = "mup",
                                                [OT_PARAMETRIZATIONS] = NULL};

bool ot_parametrization_scales(const ot_parametrization *parametrization) {
  return parametrization && parametrization->name == OT_PARAMETRIZATION_MUP;
}

// A base size of something that the model does not have.
static ot_status check_used(const char *key, int64_t base, int64_t own) {
  OT_CHECK(base == 0 || own > 0, OT_USAGE,
           "parametrization.base_%s=%lld, but the model has no %s (try null)", key, (long long)base,
           key);
  return OT_OK;
}

ot_status ot_parametrization_check(const ot_parametrization *p, const ot_model *model) {
  if (!ot_parametrization_scales(p)) return OT_OK;
  if (p->base_hidden_size == 0) {
    ot_fail(OT_USAGE, "parametrization: name=mup requires base_hidden_size");
    return ot_fail_hint(OT_USAGE, "the hidden_size of the model whose learning rate is used");
  }
  OT_TRY(check_used("q_lora_rank", p->base_q_lora_rank, model->mla.q_rank));
  OT_TRY(check_used("kv_lora_rank", p->base_kv_lora_rank, model->mla.kv_rank));
  const bool deeper = p->base_layers > 0 && p->base_layers != model->num_layers;
  OT_CHECK(!deeper || model->residuals.block_size == 0, OT_USAGE,
           "parametrization.base_layers=%lld: no rule for another depth is known with "
           "attention_residuals (try base_layers=null)",
           (long long)p->base_layers);
  const bool scalar = ot_schema_find(&ot_model_schema, ot_family_variant(model->family),
                                     "query_pre_attn_scalar") != NULL;
  const bool other_head = p->base_head_dim > 0 && p->base_head_dim != model->head_dim;
  OT_CHECK(!other_head || !scalar, OT_USAGE,
           "parametrization.base_head_dim=%lld: %s sets its attention scale by "
           "query_pre_attn_scalar (try base_head_dim=null)",
           (long long)p->base_head_dim, model->model_type);
  return OT_OK;
}
