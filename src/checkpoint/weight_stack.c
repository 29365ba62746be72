// SPDX-License-Identifier: Apache-2.0
// Names of the matrices in a stack, in the two schemes that families have.
#include "checkpoint/weight_stack.h"

#include "base/text.h"

static const char gate_up[] = ".experts.gate_up_proj";
static const char down[] = ".experts.down_proj";

static bool ends_with(const char *text, const char *end) {
  const int64_t length = ot_text_length(text), tail = ot_text_length(end);
  return length > tail && ot_text_equal(text + length - tail, end);
}

bool ot_weight_stack_is(const ot_safetensors_tensor *found) {
  return ends_with(found->name, gate_up) || ends_with(found->name, down);
}

// Index of matrix `matrix` (gate, up, down) of expert `expert` behind `prefix` ("...mlp"), or -1.
// Mixtral's files call the module and its matrices otherwise.
static int find_matrix(ot_arena *arena, const ot_weight_map *map, const char *prefix, int expert,
                       int matrix) {
  static const char *const names[] = {"gate_proj", "up_proj", "down_proj"};
  static const char *const mixtral[] = {"w1", "w3", "w2"};
  const char *const usual =
      ot_arena_format(arena, "%s.experts.%d.%s.weight", prefix, expert, names[matrix]);
  const int tensor = ot_weight_map_find(map, usual);
  if (tensor >= 0 || !ends_with(prefix, ".mlp")) return tensor;
  const char *const layer =
      ot_arena_text(arena, prefix, ot_text_length(prefix) - ot_text_length(".mlp"));
  return ot_weight_map_find(map, ot_arena_format(arena, "%s.block_sparse_moe.experts.%d.%s.weight",
                                                 layer, expert, mixtral[matrix]));
}

static ot_status check_shape(const ot_safetensors_tensor *found, const ot_weight_tensor *matrix,
                             int parts) {
  const bool fits =
      found->rank == 3 && found->dim[1] == parts * matrix->rows && found->dim[2] == matrix->cols;
  if (fits) return OT_OK;
  ot_fail(OT_ENVIRONMENT, "tensor %s has not the shape [experts, %lld, %lld] that the model needs",
          found->name, (long long)(parts * matrix->rows), (long long)matrix->cols);
  return ot_fail_hint(OT_ENVIRONMENT, "stacks of transposed matrices are not read");
}

ot_status ot_weight_stack_read(ot_arena *arena, const ot_weight_map *map,
                               const ot_safetensors_tensor *found, ot_weight_stack *stack) {
  const bool two = ends_with(found->name, gate_up);
  const int parts = two ? 2 : 1;
  const int64_t length = ot_text_length(found->name) - ot_text_length(two ? gate_up : down);
  const char *const prefix = ot_arena_text(arena, found->name, length);
  const int experts = found->rank == 3 ? (int)found->dim[0] : 0;
  *stack = (ot_weight_stack){.count = experts * parts};
  stack->tensors = ot_arena_array(arena, stack->count + 1, sizeof *stack->tensors);
  for (int i = 0; i < stack->count; i++) {
    const int matrix = two ? i % 2 : 2;
    stack->tensors[i] = find_matrix(arena, map, prefix, i / parts, matrix);
    OT_CHECK(stack->tensors[i] >= 0, OT_ENVIRONMENT,
             "tensor %s has %d experts, but the model has no matrix %d of expert %d", found->name,
             experts, matrix, i / parts);
    const ot_weight_tensor *const tensor = &map->tensors[stack->tensors[i]];
    OT_TRY(check_shape(found, tensor, parts));
    stack->elements = tensor->rows * tensor->cols;
  }
  OT_CHECK(stack->count > 0, OT_ENVIRONMENT, "tensor %s is no stack of matrices", found->name);
  return OT_OK;
}
