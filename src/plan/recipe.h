// SPDX-License-Identifier: Apache-2.0
// Precision recipes: what a parameter and its states take, and in which type products run.
//
//   bf16   2 weight + 2 gradient + 4 master + 4 + 4 moments = 16 bytes a parameter
//   megatron's mixed precision: gradients of 4 bytes, 18 in all; fp32: 4 + 4 + 4 + 4 = 16
#pragma once

#include "base/dtype.h"
#include "base/status.h"
#include "describe/run.h"

typedef struct ot_recipe {
  const char *name;         // "bf16", "bf16-fp32-gradients", "fp8", "fp32", ...
  ot_dtype products;        // type that matrix products run in
  double weight_bytes;      // of a parameter
  double gradient_bytes;    // of its accumulator
  double master_bytes;      // 0: the weights are their own
  double moment_bytes;      // both together
  double gather_bytes;      // of a parameter on the wire to ranks that lack it
  double reduce_bytes;      // of a gradient on the wire
  double activation_bytes;  // of an element of an activation
} ot_recipe;

// All names, as the words of a choice.
#define OT_RECIPE_NAMES                                                                        \
  "bf16|fp8|fp32|fp16|bf16-fp32-gradients|bf16-fp32-accumulators|bf16-bf16-moments|bf16-pure|" \
  "amp-bf16|fp16-fp32-copies|fp8-fp32-gradients"

// The recipe called `name`, or null.
const ot_recipe *ot_recipe_find(const char *name);

// The types in which this program trains with `recipe`, master weights and moments in fp32 (fp64).
ot_run_precision ot_recipe_precision(const ot_recipe *recipe);

// What a parameter takes in a run with `precision`. Its name is that of an equal recipe, or
// "custom".
ot_recipe ot_recipe_of_run(const ot_run_precision *precision);
