// SPDX-License-Identifier: Apache-2.0
// Precision recipes: bytes of a parameter and its states, and the dtype of GEMMs.
//
//   bf16   2 weight + 2 gradient + 4 master + 4 + 4 moments = 16 bytes a parameter
//   megatron's mixed precision: gradients of 4 bytes, 18 in all; fp32: 4 + 4 + 4 + 4 = 16
#pragma once

#include "base/dtype.h"
#include "base/status.h"
#include "describe/run.h"

typedef struct ot_recipe {
  const char *name;         // "bf16", "bf16-fp32-gradients", "fp8", "fp32", ...
  ot_dtype products;        // GEMM dtype
  double weight_bytes;      // per parameter
  double gradient_bytes;    // gradient accumulator, per parameter
  double master_bytes;      // 0: no separate master weights
  double moment_bytes;      // both moments together
  double gather_bytes;      // per parameter in an all-gather
  double reduce_bytes;      // per gradient in a reduction
  double activation_bytes;  // per activation element
} ot_recipe;

// The name of recipe `index`, null after the last.
const char *ot_recipe_name(int index);

// The recipe called `name`, or null.
const ot_recipe *ot_recipe_find(const char *name);

// The dtypes in which Orthant trains with `recipe`; master weights in fp32 (fp64).
ot_run_precision ot_recipe_precision(const ot_recipe *recipe);

// The recipe of a run with `precision`. Its name is that of an equal recipe, or "custom".
ot_recipe ot_recipe_of_run(const ot_run_precision *precision);
