// SPDX-License-Identifier: Apache-2.0
// The elements of Hugging Face tensors that this rank holds, counted by it or not, in the order of
// files. Names, stacks and permutations are those of an export (checkpoint/weights.h). Private to
// state/.
#pragma once

#include "state/state_content.h"

// The memory of reading, for all kinds of values.
typedef struct ot_held_access {
  const ot_state_view *view;
  ot_weight_memory memory;
  ot_weight_turn turn;
} ot_held_access;

// Allocates in the arena of `view`, which it keeps.
void ot_held_access_build(const ot_state_view *view, ot_held_access *access);

// Elements [first, first + count) of the whole tensor; `position` of them among those held.
typedef struct ot_held_run {
  int64_t first, count, position;
} ot_held_run;

typedef struct ot_held_tensor {
  int64_t elements;  // held; 0: none
  int64_t num_runs, capacity;
  ot_held_run *runs;      // [num_runs] ascending, with gaps between them
  int first_part, parts;  // tensors of the map that it is made of: several of a stack
} ot_held_tensor;

// One kind of values of all tensors.
typedef struct ot_held_tensors {
  const ot_held_access *access;
  const ot_state_view *view;
  ot_parameter_copy copy;
  ot_safetensors_layout whole;  // names, types and shapes of the whole tensors
  ot_weight_place *places;      // [view->map.num_tensors] in `whole`
  ot_weight_runs **pieces;      // [view->map.num_tensors][num_pieces] in memory
  ot_held_tensor *tensors;      // [whole.num_tensors]
} ot_held_tensors;

// Lists the values of `copy`, which the run keeps: gradients and moments of trained tensors only.
// Keeps `access`, in whose arena the result is. Local; not during a step.
ot_status ot_held_build(const ot_held_access *access, ot_parameter_copy copy,
                        ot_held_tensors *held);

// Who receives elements [first, first + count) of a whole tensor; `data` [count] of its type.
typedef struct ot_held_receiver {
  ot_status (*put)(void *context, int64_t first, int64_t count, const void *data);
  void *context;
} ot_held_receiver;

// Gives all elements of tensor `tensor` that this rank holds, each once, in any order. Local; not
// during a step.
ot_status ot_held_read(const ot_held_tensors *held, int tensor, const ot_held_receiver *receiver);

// The place among the elements held of element `first`, which is held.
int64_t ot_held_position(const ot_held_tensor *tensor, int64_t first);

// Whether the elements held are a block of the tensor: offset and block [whole->rank].
bool ot_held_block(const ot_held_tensor *tensor, const ot_safetensors_tensor *whole,
                   int64_t *offset, int64_t *block);
