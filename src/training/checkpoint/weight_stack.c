// SPDX-License-Identifier: Apache-2.0
// Names of the matrices in a stack, in both naming schemes of model families.
#include "checkpoint/weight_stack.h"

#include "base/name_list.h"
#include "base/text.h"

enum { NAME_BYTES = 1024 };

static const char gate_up[] = ".experts.gate_up_proj";
static const char down[] = ".experts.down_proj";

static bool ends_with(const char *text, const char *end) {
  const int64_t length = ot_text_length(text), tail = ot_text_length(end);
  return length > tail && ot_text_equal(text + length - tail, end);
}

// Tensor `i` in the map of the stack called `name`, or -1.
static int find_numbered(ot_arena *arena, const ot_weight_map *map, const char *name, int i) {
  return ot_weight_map_find(map, ot_arena_format(arena, "%s[%d]", name, i));
}

bool ot_weight_stack_is(const ot_weight_map *map, const ot_safetensors_tensor *found) {
  char first[NAME_BYTES];
  ot_text_format(first, sizeof first, "%s[0]", found->name);
  return ot_weight_map_find(map, first) >= 0 || ends_with(found->name, gate_up) ||
         ends_with(found->name, down);
}

// Index of matrix `matrix` (gate, up, down) of expert `expert` after `prefix` ("...mlp"), or -1.
// Mixtral uses other names for the module and its matrices.
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
  ot_fail(OT_ENVIRONMENT, "tensor %s does not have the shape [experts, %lld, %lld] of the model",
          found->name, (long long)(parts * matrix->rows), (long long)matrix->cols);
  return ot_fail_hint(OT_ENVIRONMENT, "stacks of transposed matrices are not supported");
}

// A stack of the tensors NAME[0], NAME[1], ...
static ot_status read_numbered(ot_arena *arena, const ot_weight_map *map,
                               const ot_safetensors_tensor *found, ot_weight_stack *stack) {
  const ot_weight_tensor *const one = &map->tensors[find_numbered(arena, map, found->name, 0)];
  int count = 1;
  while (find_numbered(arena, map, found->name, count) >= 0) count++;
  bool fits = found->rank == one->rank + 1 && found->dim[0] == count;
  for (int i = 0; i < one->rank && fits; i++) fits = found->dim[i + 1] == one->dim[i];
  if (!fits) {
    ot_fail(OT_ENVIRONMENT, "tensor %s does not have the shape [%d, %s] of the model", found->name,
            count, ot_dims_text(arena, one->dim, one->rank));
    return ot_fail_hint(OT_ENVIRONMENT, "check that config.json belongs to these weights");
  }
  *stack = (ot_weight_stack){.count = count, .elements = one->rows * one->cols};
  stack->tensors = ot_arena_array(arena, count, sizeof *stack->tensors);
  for (int i = 0; i < count; i++) {
    stack->tensors[i] = find_numbered(arena, map, found->name, i);
  }
  return OT_OK;
}

ot_status ot_weight_stack_read(ot_arena *arena, const ot_weight_map *map,
                               const ot_safetensors_tensor *found, ot_weight_stack *stack) {
  if (find_numbered(arena, map, found->name, 0) >= 0) {
    return read_numbered(arena, map, found, stack);
  }
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
  OT_CHECK(stack->count > 0, OT_ENVIRONMENT, "tensor %s is not a stack of matrices", found->name);
  return OT_OK;
}

// ---- writing ----

// Sources that one tensor of the file holds.
typedef struct joined {
  const ot_tensor_source *sources;
  int64_t elements;  // of each
} joined;

static ot_status fill_joined(void *context, int64_t first, int64_t count, void *out) {
  const joined *const j = context;
  for (int64_t done = 0; done < count;) {
    const ot_tensor_source *const source = &j->sources[(first + done) / j->elements];
    const int64_t skipped = (first + done) % j->elements;
    const int64_t left = j->elements - skipped;
    const int64_t n = left < count - done ? left : count - done;
    OT_TRY(source->fill(source->context, skipped, n,
                        (char *)out + done * ot_dtype_bytes(source->dtype)));
    done += n;
  }
  return OT_OK;
}

// How many sources from `sources` on are NAME[0], NAME[1], ..., and the length of NAME.
static int run_length(const ot_tensor_source *sources, int count, int64_t *length) {
  char name[NAME_BYTES];
  int run = 0;
  if (!ends_with(sources[0].name, "[0]")) return 0;
  *length = ot_text_length(sources[0].name) - ot_text_length("[0]");
  while (run < count) {
    ot_text_format(name, sizeof name, "%.*s[%d]", (int)*length, sources[0].name, run);
    if (!ot_text_equal(sources[run].name, name)) break;
    run++;
  }
  return run;
}

static ot_tensor_source join_sources(ot_arena *arena, const ot_tensor_source *sources, int count,
                                     int64_t length) {
  ot_tensor_source *const own = ot_arena_array(arena, count, sizeof *own);
  for (int i = 0; i < count; i++) own[i] = sources[i];
  joined *const context = ot_arena_take(arena, sizeof *context);
  *context = (joined){.sources = own, .elements = 1};
  ot_tensor_source all = {.name = ot_arena_text(arena, own->name, length),
                          .dtype = own->dtype,
                          .rank = own->rank + 1,
                          .dim = {count},
                          .fill = fill_joined,
                          .context = context};
  for (int i = 0; i < own->rank; i++) {
    all.dim[i + 1] = own->dim[i];
    context->elements *= own->dim[i];
  }
  return all;
}

void ot_weight_stacks_join(ot_arena *arena, ot_tensor_source *sources, int *count,
                           ot_weight_place *places) {
  int made = 0;
  for (int i = 0; i < *count;) {
    int64_t length = 0;
    const int run = run_length(&sources[i], *count - i, &length);
    const int taken = run > 0 ? run : 1;
    int64_t elements = 1;
    for (int j = 0; j < sources[i].rank; j++) elements *= sources[i].dim[j];
    for (int j = 0; places != NULL && j < taken; j++)
      places[i + j] = (ot_weight_place){made, j * elements};
    sources[made++] = run > 0 ? join_sources(arena, &sources[i], run, length) : sources[i];
    i += taken;
  }
  *count = made;
}
