// SPDX-License-Identifier: Apache-2.0
// Stacks: all experts of a layer in one tensor, as transformers 5 keeps them in memory and some
// files store them: mlp.experts.gate_up_proj [E, 2F, C], gate above up, and mlp.experts.down_proj
// [E, C, F]. gpt_oss files have only stacks: tensor NAME [E, ...] is the tensors NAME[0], NAME[1],
// ... of the map.
#pragma once

#include "checkpoint/safetensors.h"
#include "checkpoint/weights.h"

// The matrices of a stack in file order.
typedef struct ot_weight_stack {
  int count;
  int *tensors;      // [count] of the map
  int64_t elements;  // of each
} ot_weight_stack;

// True for a tensor with the name of a stack.
bool ot_weight_stack_is(const ot_weight_map *map, const ot_safetensors_tensor *found);

// Finds the tensors of `map` that `found` holds. OT_ENVIRONMENT if its shape differs from theirs
// (some files hold stacks of transposed matrices), or the model has no such experts.
ot_status ot_weight_stack_read(ot_arena *arena, const ot_weight_map *map,
                               const ot_safetensors_tensor *found, ot_weight_stack *stack);

// Replaces each run NAME[0], NAME[1], ... of `sources` [*count] by one source NAME, in place.
// places
// [*count], or null, receives where each of the given sources is now.
void ot_weight_stacks_join(ot_arena *arena, ot_tensor_source *sources, int *count,
                           ot_weight_place *places);
