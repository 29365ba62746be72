// SPDX-License-Identifier: Apache-2.0
// Header text to checked tensors and back. The rules are those of the format's reference reader,
// and three of our own: duplicate keys, unknown keys of a tensor and control characters in names
// are refused.
#include "train/safetensors_header.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_writer.h"
#include "base/text.h"
#include "train/json_file.h"

enum { LENGTH_BYTES = 8, NAME_BYTES_MAX = 512, MESSAGE_NAME_BYTES = 1024 };

typedef struct type_row {
  const char *name;
  int bits;
  ot_dtype dtype;  // OT_DTYPE_COUNT: none of ours
} type_row;

static const type_row types[] = {
    [OT_SAFETENSORS_BOOL] = {"BOOL", 8, OT_DTYPE_COUNT},
    [OT_SAFETENSORS_F4] = {"F4", 4, OT_DTYPE_COUNT},
    [OT_SAFETENSORS_F6_E2M3] = {"F6_E2M3", 6, OT_DTYPE_COUNT},
    [OT_SAFETENSORS_F6_E3M2] = {"F6_E3M2", 6, OT_DTYPE_COUNT},
    [OT_SAFETENSORS_U8] = {"U8", 8, OT_U8},
    [OT_SAFETENSORS_I8] = {"I8", 8, OT_DTYPE_COUNT},
    [OT_SAFETENSORS_F8_E5M2] = {"F8_E5M2", 8, OT_DTYPE_COUNT},
    [OT_SAFETENSORS_F8_E4M3] = {"F8_E4M3", 8, OT_F8},
    [OT_SAFETENSORS_F8_E8M0] = {"F8_E8M0", 8, OT_DTYPE_COUNT},
    [OT_SAFETENSORS_F8_E4M3FNUZ] = {"F8_E4M3FNUZ", 8, OT_DTYPE_COUNT},
    [OT_SAFETENSORS_F8_E5M2FNUZ] = {"F8_E5M2FNUZ", 8, OT_DTYPE_COUNT},
    [OT_SAFETENSORS_I16] = {"I16", 16, OT_DTYPE_COUNT},
    [OT_SAFETENSORS_U16] = {"U16", 16, OT_DTYPE_COUNT},
    [OT_SAFETENSORS_F16] = {"F16", 16, OT_F16},
    [OT_SAFETENSORS_BF16] = {"BF16", 16, OT_BF16},
    [OT_SAFETENSORS_I32] = {"I32", 32, OT_I32},
    [OT_SAFETENSORS_U32] = {"U32", 32, OT_DTYPE_COUNT},
    [OT_SAFETENSORS_F32] = {"F32", 32, OT_F32},
    [OT_SAFETENSORS_C64] = {"C64", 64, OT_DTYPE_COUNT},
    [OT_SAFETENSORS_F64] = {"F64", 64, OT_F64},
    [OT_SAFETENSORS_I64] = {"I64", 64, OT_I64},
    [OT_SAFETENSORS_U64] = {"U64", 64, OT_DTYPE_COUNT},
};
static_assert(sizeof types / sizeof types[0] == OT_SAFETENSORS_TYPE_COUNT, "one row for each type");

const char *ot_safetensors_type_name(ot_safetensors_type type) { return types[type].name; }

int ot_safetensors_type_bits(ot_safetensors_type type) { return types[type].bits; }

bool ot_safetensors_type_dtype(ot_safetensors_type type, ot_dtype *dtype) {
  if (types[type].dtype == OT_DTYPE_COUNT) return false;
  *dtype = types[type].dtype;
  return true;
}

ot_safetensors_type ot_safetensors_type_of(ot_dtype dtype) {
  for (int i = 0; i < OT_SAFETENSORS_TYPE_COUNT; i++)
    if (types[i].dtype == dtype) return (ot_safetensors_type)i;
  OT_UNREACHABLE();
}

// ---- reading ----

ot_status ot_safetensors_name_check(const char *file, const char *name) {
  const int64_t length = ot_text_length(name);
  OT_CHECK(length >= 1 && length <= NAME_BYTES_MAX, OT_ENVIRONMENT,
           "%s: a tensor name has %lld bytes (1 to %d are taken)", file, (long long)length,
           NAME_BYTES_MAX);
  for (const char *c = name; *c != '\0'; c++)
    OT_CHECK((unsigned char)*c >= 0x20 && *c != 0x7f, OT_ENVIRONMENT,
             "%s: a tensor name has control character 0x%02x at byte %lld", file,
             (unsigned)(unsigned char)*c, (long long)(c - name));
  return OT_OK;
}

static ot_status read_type(const char *where, const json_t *entry, ot_safetensors_type *type) {
  const char *name = NULL;
  OT_TRY(ot_json_member_text(where, entry, "dtype", &name));
  for (int i = 0; i < OT_SAFETENSORS_TYPE_COUNT; i++) {
    if (!ot_text_equal(types[i].name, name)) continue;
    *type = (ot_safetensors_type)i;
    return OT_OK;
  }
  return ot_fail(OT_ENVIRONMENT, "%s: unknown dtype \"%.*s\"", where, 32, name);
}

static ot_status read_shape(const char *where, const json_t *entry, ot_safetensors_tensor *tensor) {
  json_t *shape = NULL;
  OT_TRY(ot_json_member_array(where, entry, "shape", &shape));
  const size_t rank = json_array_size(shape);
  OT_CHECK(rank <= OT_SAFETENSORS_DIMS, OT_ENVIRONMENT,
           "%s: %llu dimensions (at most %d are taken)", where, (unsigned long long)rank,
           OT_SAFETENSORS_DIMS);
  tensor->rank = (int)rank;
  int64_t bits = types[tensor->type].bits;
  tensor->elements = 1;
  for (int i = 0; i < tensor->rank; i++) {
    const json_t *const value = json_array_get(shape, (size_t)i);
    const int64_t dim = json_integer_value(value);
    OT_CHECK(json_is_integer(value) && dim >= 0, OT_ENVIRONMENT,
             "%s: dimension %d of the shape is not a count", where, i);
    tensor->dim[i] = dim;
    OT_CHECK(!__builtin_mul_overflow(tensor->elements, dim, &tensor->elements) &&
                 !__builtin_mul_overflow(bits, dim, &bits),
             OT_ENVIRONMENT, "%s: the shape's size overflows 64 bits", where);
  }
  OT_CHECK(bits % 8 == 0, OT_ENVIRONMENT, "%s: %lld elements of %s do not end on a byte", where,
           (long long)tensor->elements, types[tensor->type].name);
  tensor->bytes = bits / 8;
  return OT_OK;
}

static ot_status read_offsets(const char *where, const json_t *entry, int64_t data_bytes,
                              ot_safetensors_tensor *tensor) {
  json_t *offsets = NULL;
  OT_TRY(ot_json_member_array(where, entry, "data_offsets", &offsets));
  const json_t *const first = json_array_get(offsets, 0);
  const json_t *const last = json_array_get(offsets, 1);
  OT_CHECK(json_array_size(offsets) == 2 && json_is_integer(first) && json_is_integer(last),
           OT_ENVIRONMENT, "%s: data_offsets are not two integers", where);
  const int64_t begin = json_integer_value(first);
  const int64_t end = json_integer_value(last);
  OT_CHECK(begin >= 0 && begin <= end, OT_ENVIRONMENT, "%s: data_offsets [%lld, %lld] are no range",
           where, (long long)begin, (long long)end);
  OT_CHECK(end <= data_bytes, OT_ENVIRONMENT,
           "%s: data_offsets [%lld, %lld] pass the end of the file's %lld bytes of data", where,
           (long long)begin, (long long)end, (long long)data_bytes);
  OT_CHECK(end - begin == tensor->bytes, OT_ENVIRONMENT,
           "%s: data_offsets [%lld, %lld] hold %lld bytes, the shape of %s needs %lld", where,
           (long long)begin, (long long)end, (long long)(end - begin), types[tensor->type].name,
           (long long)tensor->bytes);
  tensor->offset = begin;
  return OT_OK;
}

static ot_status read_tensor(const char *file, const json_t *entry, int64_t data_bytes,
                             ot_safetensors_tensor *tensor) {
  char where[MESSAGE_NAME_BYTES];
  ot_text_format(where, sizeof where, "%s: tensor %s", file, tensor->name);
  OT_CHECK(json_is_object(entry), OT_ENVIRONMENT, "%s: its entry is not an object", where);
  OT_TRY(read_type(where, entry, &tensor->type));
  OT_TRY(read_shape(where, entry, tensor));
  OT_TRY(read_offsets(where, entry, data_bytes, tensor));
  OT_CHECK(json_object_size(entry) == 3, OT_ENVIRONMENT,
           "%s: keys beside dtype, shape and data_offsets", where);
  return OT_OK;
}

static ot_status check_metadata(const char *file, json_t *metadata) {
  OT_CHECK(json_is_object(metadata), OT_ENVIRONMENT, "%s: __metadata__ is not an object", file);
  const char *key;
  json_t *value;
  json_object_foreach(metadata, key, value) OT_CHECK(
      json_is_string(value), OT_ENVIRONMENT, "%s: __metadata__ has a value that is no text", file);
  return OT_OK;
}

static int by_offset(const void *a, const void *b) {
  const ot_safetensors_tensor *const x = a, *const y = b;
  if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
  return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static int by_name(const void *a, const void *b) {
  const ot_safetensors_tensor *const x = a, *const y = b;
  return ot_text_compare(x->name, y->name);
}

// The tensors must lie one after another from the start of the data to its end.
static ot_status check_tiling(const char *file, ot_safetensors_header *header, int64_t data_bytes) {
  if (header->num_tensors > 0)
    qsort(header->tensors, (size_t)header->num_tensors, sizeof *header->tensors, by_offset);
  int64_t end = 0;
  for (int i = 0; i < header->num_tensors; i++) {
    const ot_safetensors_tensor *const tensor = &header->tensors[i];
    OT_CHECK(tensor->offset >= end, OT_ENVIRONMENT,
             "%s: tensor %s starts at data byte %lld, inside tensor %s, which ends at %lld", file,
             tensor->name, (long long)tensor->offset, tensor[-1].name, (long long)end);
    OT_CHECK(tensor->offset == end, OT_ENVIRONMENT,
             "%s: data bytes %lld to %lld before tensor %s belong to no tensor", file,
             (long long)end, (long long)tensor->offset, tensor->name);
    end = tensor->offset + tensor->bytes;
  }
  OT_CHECK(end == data_bytes, OT_ENVIRONMENT,
           "%s: %lld bytes after the last tensor belong to no tensor", file,
           (long long)(data_bytes - end));
  return OT_OK;
}

static ot_status read_root(ot_arena *arena, const char *file, json_t *root, int64_t data_bytes,
                           ot_safetensors_header *header) {
  OT_CHECK(json_object_size(root) < INT32_MAX, OT_ENVIRONMENT, "%s: too many tensors", file);
  header->tensors = ot_arena_array(arena, (int64_t)json_object_size(root), sizeof *header->tensors);
  header->num_tensors = 0;
  const char *name;
  json_t *entry;
  json_object_foreach(root, name, entry) {
    if (ot_text_equal(name, "__metadata__")) {
      OT_TRY(check_metadata(file, entry));
      continue;
    }
    OT_TRY(ot_safetensors_name_check(file, name));
    ot_safetensors_tensor *const tensor = &header->tensors[header->num_tensors++];
    tensor->name = ot_arena_text(arena, name, ot_text_length(name));
    OT_TRY(read_tensor(file, entry, data_bytes, tensor));
  }
  return check_tiling(file, header, data_bytes);
}

static uint64_t read_length(const unsigned char *bytes) {
  uint64_t value = 0;
  for (int i = LENGTH_BYTES - 1; i >= 0; i--) value = value << 8 | bytes[i];
  return value;
}

ot_status ot_safetensors_header_build(ot_arena *arena, const char *file, const void *data,
                                      int64_t file_bytes, ot_safetensors_header *header) {
  OT_CHECK(file_bytes >= LENGTH_BYTES, OT_ENVIRONMENT,
           "%s: not a safetensors file: %lld bytes, the header's length alone takes 8", file,
           (long long)file_bytes);
  const uint64_t length = read_length(data);
  OT_CHECK(length <= OT_SAFETENSORS_HEADER_MAX, OT_ENVIRONMENT,
           "%s: not a safetensors file: it announces a header of %llu bytes (at most %d)", file,
           (unsigned long long)length, OT_SAFETENSORS_HEADER_MAX);
  const int64_t data_bytes = file_bytes - LENGTH_BYTES - (int64_t)length;
  OT_CHECK(
      data_bytes >= 0, OT_ENVIRONMENT,
      "%s: cut short or not a safetensors file: its header of %llu bytes passes the end at %lld",
      file, (unsigned long long)length, (long long)file_bytes);
  const char *const text = (const char *)data + LENGTH_BYTES;
  OT_CHECK(length >= 2 && text[0] == '{', OT_ENVIRONMENT,
           "%s: not a safetensors file: its header does not start with '{'", file);
  json_t *root = NULL;
  OT_TRY(ot_json_parse(file, text, (int64_t)length, &root));
  const ot_status status = read_root(arena, file, root, data_bytes, header);
  json_decref(root);
  OT_TRY(status);
  for (int i = 0; i < header->num_tensors; i++)
    header->tensors[i].offset += LENGTH_BYTES + (int64_t)length;
  if (header->num_tensors > 0)
    qsort(header->tensors, (size_t)header->num_tensors, sizeof *header->tensors, by_name);
  return OT_OK;
}

// ---- writing ----

typedef struct file_order {
  const ot_safetensors_tensor *tensor;
  int index;
} file_order;

static int by_file_order(const void *a, const void *b) {
  const file_order *const x = a, *const y = b;
  if (x->tensor->type != y->tensor->type) return x->tensor->type > y->tensor->type ? -1 : 1;
  return ot_text_compare(x->tensor->name, y->tensor->name);
}

static void print_tensor(ot_json_writer *json, const ot_safetensors_tensor *tensor, int64_t begin) {
  ot_json_object(json, tensor->name);
  ot_json_text(json, "dtype", types[tensor->type].name);
  ot_json_array(json, "shape");
  for (int i = 0; i < tensor->rank; i++) ot_json_integer(json, NULL, tensor->dim[i]);
  ot_json_end(json);
  ot_json_array(json, "data_offsets");
  ot_json_integer(json, NULL, begin);
  ot_json_integer(json, NULL, begin + tensor->bytes);
  ot_json_end(json);
  ot_json_end(json);
}

// The length, the JSON, and spaces up to a multiple of 8.
static void pad_text(ot_arena *arena, const ot_json_writer *json,
                     ot_safetensors_header_text *text) {
  const int64_t padded = (json->length + LENGTH_BYTES - 1) / LENGTH_BYTES * LENGTH_BYTES;
  text->num_bytes = LENGTH_BYTES + padded;
  text->bytes = ot_arena_take(arena, text->num_bytes);
  memset(text->bytes, ' ', (size_t)text->num_bytes);
  for (int i = 0; i < LENGTH_BYTES; i++) text->bytes[i] = (char)((uint64_t)padded >> 8 * i);
  memcpy(text->bytes + LENGTH_BYTES, json->text, (size_t)json->length);
}

void ot_safetensors_header_print(ot_arena *arena, ot_safetensors_tensor *tensors, int num_tensors,
                                 int *order, ot_safetensors_header_text *text) {
  file_order *const sorted = ot_arena_array(arena, num_tensors, sizeof *sorted);
  for (int i = 0; i < num_tensors; i++) sorted[i] = (file_order){&tensors[i], i};
  if (num_tensors > 0) qsort(sorted, (size_t)num_tensors, sizeof *sorted, by_file_order);
  ot_json_writer json = ot_json_begin(arena, 0);
  ot_json_object(&json, NULL);
  ot_json_object(&json, "__metadata__");
  ot_json_text(&json, "format", "pt");
  ot_json_end(&json);
  int64_t end = 0;
  for (int i = 0; i < num_tensors; i++) {
    print_tensor(&json, sorted[i].tensor, end);
    end += sorted[i].tensor->bytes;
    order[i] = sorted[i].index;
  }
  ot_json_end(&json);
  pad_text(arena, &json, text);
  text->file_bytes = text->num_bytes + end;
  int64_t offset = text->num_bytes;
  for (int i = 0; i < num_tensors; i++) {
    tensors[order[i]].offset = offset;
    offset += tensors[order[i]].bytes;
  }
}
