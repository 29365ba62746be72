// SPDX-License-Identifier: Apache-2.0
// Tensors, settings and scalars of a record by their names, and values of tensors.
#include <unistd.h>

#include "base/text.h"
#include "checkpoint/elements.h"
#include "files/disk.h"
#include "judge/recorded_parts.h"

enum { NAME_BYTES = OT_RECORDED_NAME_BYTES + 64, READ_BYTES = 1 << 16 };

// ---- names ----

static const ot_recorded_tensor *find_exactly(const ot_recorded_step *step, ot_recorded_kind kind,
                                              const char *name) {
  int64_t low = 0, high = step->num_tensors;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    const ot_recorded_tensor *const tensor = &step->tensors[middle];
    const bool before =
        tensor->kind != kind ? tensor->kind < kind : ot_text_compare(tensor->name, name) < 0;
    if (before) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  const ot_recorded_tensor *const found = &step->tensors[low];
  const bool same =
      low < step->num_tensors && found->kind == kind && ot_text_equal(found->name, name);
  return same ? found : NULL;
}

static const char *target_of(const ot_recorded_step *step, const char *name) {
  int64_t low = 0, high = step->num_aliases;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    const int order = ot_text_compare(step->aliases[middle].name, name);
    if (order == 0) return step->aliases[middle].target;
    if (order < 0) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return name;
}

// ---- stacks of experts ----

// Part `part` of `parts` of the rows of expert `expert` in the tensor called `stack`.
typedef struct expert_matrix {
  char stack[NAME_BYTES];
  int64_t expert;
  int part, parts;
} expert_matrix;

// The digits at `text`, and what follows them; -1: none, or too many.
static int64_t read_number(const char *text, const char **end) {
  int64_t number = 0;
  const char *at = text;
  for (; ot_is_digit(*at); at++)
    if (number < OT_RECORDED_PIECES_MAX) number = 10 * number + *at - '0';
  *end = at;
  return at > text && number < OT_RECORDED_PIECES_MAX ? number : -1;
}

// A tensor of one expert as files have it, in the stack as transformers has it in memory:
//   P.mlp.experts.E.gate_proj.weight, up_proj        -> rows of P.mlp.experts.gate_up_proj[E]
//   P.mlp.experts.E.down_proj.weight                 -> P.mlp.experts.down_proj[E]
//   P.block_sparse_moe.experts.E.w1.weight, w3, w2   -> the same (Mixtral)
//   NAME[E]                                          -> NAME[E] (gpt_oss)
static bool find_stack(const char *name, expert_matrix *out) {
  static const struct {
    const char *ending, *stack;
    int part, parts;
  } rows[] = {
      {".gate_proj.weight", "gate_up_proj", 0, 2}, {".w1.weight", "gate_up_proj", 0, 2},
      {".up_proj.weight", "gate_up_proj", 1, 2},   {".w3.weight", "gate_up_proj", 1, 2},
      {".down_proj.weight", "down_proj", 0, 1},    {".w2.weight", "down_proj", 0, 1},
  };
  static const char experts[] = ".experts.", mixtral[] = ".block_sparse_moe";
  const char *const at = ot_text_find(name, experts), *end;
  if (at == NULL) return false;
  int length = (int)(at - name);
  out->expert = read_number(at + sizeof experts - 1, &end);
  const int tail = length - (int)sizeof mixtral + 1;
  const bool renamed = tail > 0 && ot_text_starts_with(name + tail, mixtral);
  if (renamed) length = tail;
  for (int i = 0; i < OT_COUNT(rows) && out->expert >= 0; i++) {
    if (!ot_text_equal(end, rows[i].ending)) continue;
    out->part = rows[i].part;
    out->parts = rows[i].parts;
    ot_text_format(out->stack, sizeof out->stack, "%.*s%s.experts.%s", length, name,
                   renamed ? ".mlp" : "", rows[i].stack);
    return true;
  }
  return false;
}

static bool find_indexed(const char *name, expert_matrix *out) {
  const char *bracket = ot_text_find(name, "["), *end;
  if (bracket == NULL) return false;
  *out = (expert_matrix){.parts = 1, .expert = read_number(bracket + 1, &end)};
  ot_text_format(out->stack, sizeof out->stack, "%.*s", (int)(bracket - name), name);
  return out->expert >= 0 && ot_text_equal(end, "]");
}

// The router of Mixtral has another name in memory, too.
static bool find_router(const char *name, char out[NAME_BYTES]) {
  const char *const at = ot_text_find(name, ".block_sparse_moe.gate.");
  if (at == NULL) return false;
  ot_text_format(out, NAME_BYTES, "%.*s.mlp%s", (int)(at - name), name,
                 at + sizeof ".block_sparse_moe" - 1);
  return true;
}

static bool view_matrix(const ot_recorded_tensor *tensor, const expert_matrix *matrix,
                        ot_recorded_view *view) {
  const int parts = matrix->parts;
  const bool fits = tensor->num_dims >= 2 && matrix->expert < tensor->shape[0] &&
                    tensor->shape[1] % parts == 0 && (parts == 1 || tensor->num_dims == 3);
  if (!fits) return false;
  *view = (ot_recorded_view){.tensor = tensor, .num_dims = tensor->num_dims - 1};
  for (int i = 0; i < view->num_dims; i++) view->shape[i] = tensor->shape[i + 1];
  view->shape[0] /= parts;
  view->elements = tensor->elements / tensor->shape[0] / parts;
  view->first = (matrix->expert * parts + matrix->part) * view->elements;
  return true;
}

bool ot_recorded_find(const ot_recorded_step *step, ot_recorded_kind kind, const char *name,
                      ot_recorded_view *view) {
  expert_matrix matrix;
  char router[NAME_BYTES];
  const char *const target = target_of(step, name);
  const ot_recorded_tensor *tensor = find_exactly(step, kind, target);
  if (tensor == NULL && find_router(target, router)) tensor = find_exactly(step, kind, router);
  if (tensor != NULL) {
    *view = (ot_recorded_view){
        .tensor = tensor, .elements = tensor->elements, .num_dims = tensor->num_dims};
    for (int i = 0; i < tensor->num_dims; i++) view->shape[i] = tensor->shape[i];
    return true;
  }
  if (!find_stack(target, &matrix) && !find_indexed(target, &matrix)) return false;
  tensor = find_exactly(step, kind, matrix.stack);
  return tensor != NULL && view_matrix(tensor, &matrix, view);
}

// ---- settings and scalars ----

static const ot_recorded_group *group_with(const ot_recorded_step *step, const char *name) {
  for (int64_t i = 0; i < step->num_groups; i++)
    for (int k = 0; k < step->groups[i].num_names; k++)
      if (ot_text_equal(step->groups[i].names[k], name)) return &step->groups[i];
  return NULL;
}

const ot_recorded_group *ot_recorded_group_of(const ot_recorded_step *step, const char *name) {
  ot_recorded_view view;
  const ot_recorded_group *const group = group_with(step, target_of(step, name));
  const bool held = group == NULL && ot_recorded_find(step, OT_RECORDED_WEIGHT, name, &view);
  return held ? group_with(step, view.tensor->name) : group;
}

const ot_recorded_setting *ot_recorded_setting_of(const ot_recorded_group *group,
                                                  const char *name) {
  for (int i = 0; i < group->num_settings; i++)
    if (ot_text_equal(group->settings[i].name, name)) return &group->settings[i];
  return NULL;
}

bool ot_recorded_scalar_of(const ot_recorded_step *step, const char *name, int rank,
                           double *value) {
  int64_t low = 0, high = step->num_scalars;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    const ot_recorded_scalar *const scalar = &step->scalars[middle];
    const int by_name = ot_text_compare(scalar->name, name);
    if (by_name < 0 || (by_name == 0 && scalar->rank < rank)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  const ot_recorded_scalar *const found = &step->scalars[low];
  if (low == step->num_scalars || found->rank != rank || !ot_text_equal(found->name, name))
    return false;
  *value = found->value;
  return true;
}

// ---- values ----

// A tensor of an open file.
typedef struct open_piece {
  int file;
  const char *path;
  int64_t offset;
  ot_dtype dtype;
} open_piece;

static ot_status load_open(const open_piece *from, ot_recorded_range range, void *out) {
  _Alignas(8) char block[READ_BYTES];
  const int64_t bytes = ot_dtype_bytes(from->dtype), most = READ_BYTES / bytes;
  const int64_t offset = from->offset + range.first * bytes;
  if (from->dtype == range.dtype)
    return ot_disk_read_at(from->file, from->path, offset, out, range.count * bytes);
  for (int64_t i = 0; i < range.count; i += most) {
    const int64_t count = range.count - i < most ? range.count - i : most;
    OT_TRY(ot_disk_read_at(from->file, from->path, offset + i * bytes, block, count * bytes));
    ot_elements_convert(from->dtype, block, range.dtype,
                        (char *)out + i * ot_dtype_bytes(range.dtype), count);
  }
  return OT_OK;
}

ot_status ot_recorded_load(const ot_recorded_step *step, const ot_recorded_tensor *tensor,
                           const ot_recorded_piece *piece, ot_recorded_range range, void *out) {
  open_piece from = {.path = step->ranks[piece->rank].tensor_file,
                     .offset = piece->file_offset,
                     .dtype = tensor->dtype};
  OT_ASSERT(range.first >= 0 && range.count >= 0 && range.count <= piece->elements - range.first);
  OT_TRY(ot_disk_open(from.path, &from.file));
  const ot_status status = load_open(&from, range, out);
  close(from.file);
  return status;
}
