// SPDX-License-Identifier: Apache-2.0
// Table of recipes: bytes per parameter in common training frameworks.
#include "describe/recipe.h"

#include <stddef.h>

#include "base/text.h"

static const ot_recipe recipes[] = {
    {.name = "bf16",
     .products = OT_BF16,
     .weight_bytes = 2,
     .gradient_bytes = 2,
     .master_bytes = 4,
     .moment_bytes = 8,
     .gather_bytes = 2,
     .reduce_bytes = 2,
     .activation_bytes = 2},
    // Transformer Engine: GEMMs in 8 bits, storage as with bf16.
    {.name = "fp8",
     .products = OT_F8,
     .weight_bytes = 2,
     .gradient_bytes = 2,
     .master_bytes = 4,
     .moment_bytes = 8,
     .gather_bytes = 2,
     .reduce_bytes = 2,
     .activation_bytes = 2},
    {.name = "fp32",
     .products = OT_F32,
     .weight_bytes = 4,
     .gradient_bytes = 4,
     .moment_bytes = 8,
     .gather_bytes = 4,
     .reduce_bytes = 4,
     .activation_bytes = 4},
    // DeepSpeed (Rajbhandari et al. 2020, sec. 3.1): 2 + 2 + 12.
    {.name = "fp16",
     .products = OT_F16,
     .weight_bytes = 2,
     .gradient_bytes = 2,
     .master_bytes = 4,
     .moment_bytes = 8,
     .gather_bytes = 2,
     .reduce_bytes = 2,
     .activation_bytes = 2},
    // Megatron-LM, docs/user-guide/features/dist_optimizer.md: bf16 parameters, fp32 gradients.
    // Also Orthant's own.
    {.name = "bf16-fp32-gradients",
     .products = OT_BF16,
     .weight_bytes = 2,
     .gradient_bytes = 4,
     .master_bytes = 4,
     .moment_bytes = 8,
     .gather_bytes = 2,
     .reduce_bytes = 4,
     .activation_bytes = 2},
    // The same with separate gradients of the backward and accumulators (DeepSpeed's
    // BF16_Optimizer, nanotron's gradient accumulator).
    {.name = "bf16-fp32-accumulators",
     .products = OT_BF16,
     .weight_bytes = 2,
     .gradient_bytes = 6,
     .master_bytes = 4,
     .moment_bytes = 8,
     .gather_bytes = 2,
     .reduce_bytes = 4,
     .activation_bytes = 2},
    // llmq (README): moments in bf16.
    {.name = "bf16-bf16-moments",
     .products = OT_BF16,
     .weight_bytes = 2,
     .gradient_bytes = 2,
     .master_bytes = 4,
     .moment_bytes = 4,
     .gather_bytes = 2,
     .reduce_bytes = 2,
     .activation_bytes = 2},
    // llm-foundry's amp_bf16 with a model in bf16, or its policy PURE: no fp32 copies.
    {.name = "bf16-pure",
     .products = OT_BF16,
     .weight_bytes = 2,
     .gradient_bytes = 2,
     .moment_bytes = 4,
     .gather_bytes = 2,
     .reduce_bytes = 2,
     .activation_bytes = 2},
    // torch FSDP's mixed precision: sharded weights are fp32, gathered weights bf16.
    {.name = "amp-bf16",
     .products = OT_BF16,
     .weight_bytes = 4,
     .gradient_bytes = 4,
     .moment_bytes = 8,
     .gather_bytes = 2,
     .reduce_bytes = 4,
     .activation_bytes = 2},
    // Megatron-LM, the page named above: fp16 parameters and gradients, fp32 copies of both.
    {.name = "fp16-fp32-copies",
     .products = OT_F16,
     .weight_bytes = 2,
     .gradient_bytes = 2,
     .master_bytes = 8,
     .moment_bytes = 8,
     .gather_bytes = 2,
     .reduce_bytes = 2,
     .activation_bytes = 2},
    {.name = "fp8-fp32-gradients",
     .products = OT_F8,
     .weight_bytes = 2,
     .gradient_bytes = 4,
     .master_bytes = 4,
     .moment_bytes = 8,
     .gather_bytes = 2,
     .reduce_bytes = 4,
     .activation_bytes = 2},
};

const char *ot_recipe_name(int index) {
  return index < OT_COUNT(recipes) ? recipes[index].name : NULL;
}

const ot_recipe *ot_recipe_find(const char *name) {
  for (int i = 0; i < OT_COUNT(recipes); i++) {
    if (ot_text_equal(recipes[i].name, name)) return &recipes[i];
  }
  return NULL;
}

// fp16 is a storage dtype; other narrow types are stored as bf16.
static ot_dtype narrow_type(const ot_recipe *recipe) {
  return recipe->products == OT_F16 ? OT_F16 : OT_BF16;
}

ot_run_precision ot_recipe_precision(const ot_recipe *recipe) {
  const ot_dtype wide = recipe->products == OT_F64 ? OT_F64 : OT_F32;
  const ot_dtype narrow = narrow_type(recipe);
  return (ot_run_precision){
      .compute = recipe->products,
      .params = recipe->activation_bytes < 4 ? narrow : wide,
      .gradients = recipe->gradient_bytes < 4 ? narrow : wide,
      .master = wide,
      .moments = recipe->moment_bytes < 8 ? OT_BF16 : wide,
      .reduce = recipe->reduce_bytes < 4 ? narrow : wide,
  };
}

static bool takes_as_much(const ot_recipe *a, const ot_recipe *b) {
  return a->products == b->products && a->weight_bytes == b->weight_bytes &&
         a->gradient_bytes == b->gradient_bytes && a->master_bytes == b->master_bytes &&
         a->moment_bytes == b->moment_bytes && a->gather_bytes == b->gather_bytes &&
         a->reduce_bytes == b->reduce_bytes && a->activation_bytes == b->activation_bytes;
}

ot_recipe ot_recipe_of_run(const ot_run_precision *precision) {
  const double stored = (double)ot_dtype_bytes(precision->params);
  const bool copy = precision->master != precision->params;
  ot_recipe out = {.name = "custom",
                   .products = precision->compute,
                   .weight_bytes = stored,
                   .gradient_bytes = (double)ot_dtype_bytes(precision->gradients),
                   .master_bytes = copy ? (double)ot_dtype_bytes(precision->master) : 0,
                   .moment_bytes = 2 * (double)ot_dtype_bytes(precision->moments),
                   .gather_bytes = stored,
                   .reduce_bytes = (double)ot_dtype_bytes(precision->reduce),
                   .activation_bytes = stored};
  for (int i = 0; i < OT_COUNT(recipes); i++) {
    if (takes_as_much(&recipes[i], &out)) out.name = recipes[i].name;
  }
  return out;
}
