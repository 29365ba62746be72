// SPDX-License-Identifier: Apache-2.0
// Names, types and shapes to files, offsets and headers.
#include <stdlib.h>
#include <string.h>

#include "base/json_writer.h"
#include "base/text.h"
#include "checkpoint/safetensors_header.h"
#include "checkpoint/safetensors_writer.h"

static int by_name(const void *a, const void *b) {
  const ot_safetensors_tensor *const *const x = a, *const *const y = b;
  return ot_text_compare((*x)->name, (*y)->name);
}

// Checks the names and sorts the tensors by name into `sorted` [num_tensors].
static ot_status check_names(const char *stem, const ot_safetensors_layout *layout,
                             const ot_safetensors_tensor **sorted) {
  for (int i = 0; i < layout->num_tensors; i++) {
    OT_TRY(ot_safetensors_name_check(stem, layout->tensors[i].name));
    sorted[i] = &layout->tensors[i];
  }
  if (layout->num_tensors > 0) qsort(sorted, (size_t)layout->num_tensors, sizeof *sorted, by_name);
  for (int i = 1; i < layout->num_tensors; i++)
    OT_CHECK(!ot_text_equal(sorted[i - 1]->name, sorted[i]->name), OT_BUG,
             "%s: tensor %s is given twice", stem, sorted[i]->name);
  return OT_OK;
}

static ot_status measure(const char *stem, ot_safetensors_tensor *tensor) {
  int64_t bits = ot_safetensors_type_bits(tensor->type);
  tensor->elements = 1;
  OT_ASSERT(tensor->rank >= 0 && tensor->rank <= OT_SAFETENSORS_DIMS);
  for (int i = 0; i < tensor->rank; i++)
    OT_CHECK(tensor->dim[i] >= 0 &&
                 !__builtin_mul_overflow(tensor->elements, tensor->dim[i], &tensor->elements) &&
                 !__builtin_mul_overflow(bits, tensor->dim[i], &bits),
             OT_BUG, "%s: tensor %s: the shape's size overflows 64 bits", stem, tensor->name);
  tensor->bytes = bits / 8;
  return OT_OK;
}

// Assigns each tensor to a file: the current one, unless it is full.
static int assign_files(const ot_safetensors_request *request, ot_safetensors_layout *layout) {
  int file = 0;
  int64_t used = 0;
  for (int i = 0; i < layout->num_tensors; i++) {
    ot_safetensors_tensor *const tensor = &layout->tensors[i];
    if (request->shard_bytes > 0 && used > 0 && used + tensor->bytes > request->shard_bytes) {
      file++;
      used = 0;
    }
    tensor->file = file;
    used += tensor->bytes;
    layout->tensor_bytes += tensor->bytes;
  }
  return file + 1;
}

// The tensors of a file are consecutive in the request, from `first`.
static void lay_out_file(ot_arena *arena, ot_safetensors_layout *layout, int index, int first) {
  ot_safetensors_layout_file *const file = &layout->files[index];
  int end = first;
  while (end < layout->num_tensors && layout->tensors[end].file == index) end++;
  file->num_tensors = end - first;
  int *const order = ot_arena_array(arena, file->num_tensors, sizeof *order);
  ot_safetensors_header_text text;
  ot_safetensors_header_print(arena, &layout->tensors[first], file->num_tensors, order, &text);
  for (int i = 0; i < file->num_tensors; i++) order[i] += first;
  file->order = order;
  file->header = text.bytes;
  file->header_bytes = text.num_bytes;
  file->file_bytes = text.file_bytes;
}

// Formatted as by transformers: two spaces, sorted keys.
static void print_index(ot_arena *arena, const ot_safetensors_tensor *const *sorted,
                        ot_safetensors_layout *layout) {
  ot_json_writer json = ot_json_begin(arena, 2);
  ot_json_object(&json, NULL);
  ot_json_object(&json, "metadata");
  ot_json_integer(&json, "total_size", layout->tensor_bytes);
  ot_json_end(&json);
  ot_json_object(&json, "weight_map");
  for (int i = 0; i < layout->num_tensors; i++)
    ot_json_text(&json, sorted[i]->name, layout->files[sorted[i]->file].name);
  ot_json_end(&json);
  ot_json_end(&json);
  char *const text = ot_arena_take(arena, json.length + 2);
  memcpy(text, json.text, (size_t)json.length);
  text[json.length] = '\n';
  layout->index_text = text;
}

ot_status ot_safetensors_layout_build(ot_arena *arena, const ot_safetensors_request *request,
                                      ot_safetensors_layout *layout) {
  const int n = request->num_tensors;
  const char *const stem = request->stem;
  *layout = (ot_safetensors_layout){.num_tensors = n};
  layout->tensors = ot_arena_array(arena, n, sizeof *layout->tensors);
  for (int i = 0; i < n; i++) {
    layout->tensors[i] = request->tensors[i];
    OT_TRY(measure(stem, &layout->tensors[i]));
  }
  const ot_safetensors_tensor **const sorted = ot_arena_array(arena, n, sizeof *sorted);
  OT_TRY(check_names(stem, layout, sorted));
  layout->num_files = assign_files(request, layout);
  layout->files = ot_arena_array(arena, layout->num_files, sizeof *layout->files);
  for (int i = 0, first = 0; i < layout->num_files; i++) {
    lay_out_file(arena, layout, i, first);
    first += layout->files[i].num_tensors;
    layout->files[i].name =
        layout->num_files == 1
            ? ot_arena_format(arena, "%s.safetensors", stem)
            : ot_arena_format(arena, "%s-%05d-of-%05d.safetensors", stem, i + 1, layout->num_files);
    OT_CHECK(layout->files[i].header_bytes <= OT_SAFETENSORS_HEADER_MAX, OT_BUG,
             "%s: the header needs %lld bytes (at most %d)", layout->files[i].name,
             (long long)layout->files[i].header_bytes, OT_SAFETENSORS_HEADER_MAX);
  }
  if (layout->num_files == 1) return OT_OK;
  layout->index_name = ot_arena_format(arena, "%s.safetensors.index.json", stem);
  print_index(arena, sorted, layout);
  return OT_OK;
}
