// SPDX-License-Identifier: Apache-2.0
// Header text to checked tensors and back. The rules are those of the format's reference reader,
// plus three: duplicate keys, unknown keys of a tensor and control characters in names are
// rejected.
#include "checkpoint/safetensors_header.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_writer.h"
#include "base/text.h"
#include "files/json_reader.h"

enum {
  LENGTH_BYTES = 8,
  NAME_BYTES_MAX = 512,
  MESSAGE_NAME_BYTES = 1024,
  ENTRY_BYTES_MIN = 50,  // "a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}
};

typedef struct type_row {
  const char *name;
  int bits;
  ot_dtype dtype;  // OT_DTYPE_COUNT: not supported
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
           "%s: a tensor name has %lld bytes (allowed: 1 to %d)", file, (long long)length,
           NAME_BYTES_MAX);
  for (const char *c = name; *c != '\0'; c++)
    OT_CHECK((unsigned char)*c >= 0x20 && *c != 0x7f, OT_ENVIRONMENT,
             "%s: a tensor name has control character 0x%02x at byte %lld", file,
             (unsigned)(unsigned char)*c, (long long)(c - name));
  return OT_OK;
}

// An entry of the header as written.
typedef struct raw_entry {
  bool has_type, has_shape, has_offsets;
  ot_json_string type;
  int64_t rank;  // of the list, which may be longer than `dim`
  int64_t dim[OT_SAFETENSORS_DIMS];
  int64_t offset[2];
} raw_entry;

// A list of whole numbers, the first `most` of which are stored in `values`; *bad is the index of
// an invalid one (`signs`: negative ones are allowed), after which reading stops; -1: none.
typedef struct count_list {
  int64_t *values;
  int64_t most, count;
  bool signs;
  int64_t bad;
} count_list;

static ot_status read_counts(ot_json_reader *reader, count_list *list) {
  bool first = true, more = false, whole = true;
  list->count = 0;
  list->bad = -1;
  OT_TRY(ot_json_reader_more(reader, ']', &first, &more));
  while (more) {
    int64_t value = 0;
    OT_TRY(ot_json_reader_integer(reader, &value, &whole));
    if (!whole || (value < 0 && !list->signs)) {
      list->bad = list->count;
      return OT_OK;
    }
    if (list->count < list->most) list->values[list->count] = value;
    list->count++;
    OT_TRY(ot_json_reader_more(reader, ']', &first, &more));
  }
  return OT_OK;
}

static ot_status read_raw_type(ot_json_reader *reader, const char *where, raw_entry *entry) {
  OT_CHECK(ot_json_reader_at_string(reader), OT_ENVIRONMENT, "%s: key \"dtype\" is not a text",
           where);
  return ot_json_reader_string(reader, &entry->type);
}

static ot_status read_raw_shape(ot_json_reader *reader, const char *where, raw_entry *entry) {
  count_list list = {.values = entry->dim, .most = OT_SAFETENSORS_DIMS};
  OT_CHECK(ot_json_reader_next(reader, '['), OT_ENVIRONMENT, "%s: key \"shape\" is not a list",
           where);
  OT_TRY(read_counts(reader, &list));
  OT_CHECK(list.bad < 0, OT_ENVIRONMENT, "%s: dimension %lld of the shape is not a count", where,
           (long long)list.bad);
  entry->rank = list.count;
  return OT_OK;
}

static ot_status read_raw_offsets(ot_json_reader *reader, const char *where, raw_entry *entry) {
  count_list list = {.values = entry->offset, .most = 2, .signs = true};
  OT_CHECK(ot_json_reader_next(reader, '['), OT_ENVIRONMENT,
           "%s: key \"data_offsets\" is not a list", where);
  OT_TRY(read_counts(reader, &list));
  OT_CHECK(list.bad < 0 && list.count == 2, OT_ENVIRONMENT, "%s: data_offsets are not two integers",
           where);
  return OT_OK;
}

static ot_status read_member(ot_json_reader *reader, const char *where, raw_entry *entry) {
  const struct {
    const char *key;
    bool *has;
    ot_status (*read)(ot_json_reader *reader, const char *where, raw_entry *entry);
  } members[] = {{"dtype", &entry->has_type, read_raw_type},
                 {"shape", &entry->has_shape, read_raw_shape},
                 {"data_offsets", &entry->has_offsets, read_raw_offsets}};
  ot_json_string key;
  OT_TRY(ot_json_reader_string(reader, &key));
  OT_TRY(ot_json_reader_take(reader, ':'));
  for (int i = 0; i < OT_COUNT(members); i++) {
    if (!ot_json_string_equal(key, members[i].key)) continue;
    OT_CHECK(!*members[i].has, OT_ENVIRONMENT, "%s: key \"%s\" appears twice", where,
             members[i].key);
    *members[i].has = true;
    return members[i].read(reader, where, entry);
  }
  return ot_fail(OT_ENVIRONMENT, "%s: keys other than dtype, shape and data_offsets", where);
}

static ot_status read_entry(ot_json_reader *reader, const char *where, raw_entry *entry) {
  bool first = true, more = false;
  OT_CHECK(ot_json_reader_next(reader, '{'), OT_ENVIRONMENT, "%s: its entry is not an object",
           where);
  OT_TRY(ot_json_reader_more(reader, '}', &first, &more));
  while (more) {
    OT_TRY(read_member(reader, where, entry));
    OT_TRY(ot_json_reader_more(reader, '}', &first, &more));
  }
  const char *const missing = !entry->has_type      ? "dtype"
                              : !entry->has_shape   ? "shape"
                              : !entry->has_offsets ? "data_offsets"
                                                    : NULL;
  OT_CHECK(missing == NULL, OT_ENVIRONMENT, "%s: key \"%s\" is missing", where, missing);
  return OT_OK;
}

static ot_status read_type(const char *where, const raw_entry *entry, ot_safetensors_type *type) {
  for (int i = 0; i < OT_SAFETENSORS_TYPE_COUNT; i++) {
    if (!ot_json_string_equal(entry->type, types[i].name)) continue;
    *type = (ot_safetensors_type)i;
    return OT_OK;
  }
  const int64_t length = entry->type.length;
  return ot_fail(OT_ENVIRONMENT, "%s: unknown dtype \"%.*s\"", where,
                 (int)(length < 32 ? length : 32), entry->type.text);
}

static ot_status read_shape(const char *where, const raw_entry *entry,
                            ot_safetensors_tensor *tensor) {
  OT_CHECK(entry->rank <= OT_SAFETENSORS_DIMS, OT_ENVIRONMENT,
           "%s: %lld dimensions (allowed: at most %d)", where, (long long)entry->rank,
           OT_SAFETENSORS_DIMS);
  tensor->rank = (int)entry->rank;
  int64_t bits = types[tensor->type].bits;
  tensor->elements = 1;
  for (int i = 0; i < tensor->rank; i++) {
    const int64_t dim = entry->dim[i];
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

static ot_status read_offsets(const char *where, const raw_entry *entry, int64_t data_bytes,
                              ot_safetensors_tensor *tensor) {
  const int64_t begin = entry->offset[0], end = entry->offset[1];
  OT_CHECK(begin >= 0 && begin <= end, OT_ENVIRONMENT, "%s: data_offsets [%lld, %lld]: no range",
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

static ot_status read_tensor(ot_json_reader *reader, int64_t data_bytes,
                             ot_safetensors_tensor *tensor) {
  char where[MESSAGE_NAME_BYTES];
  raw_entry entry = {0};
  ot_text_format(where, sizeof where, "%s: tensor %s", reader->name, tensor->name);
  OT_TRY(read_entry(reader, where, &entry));
  OT_TRY(read_type(where, &entry, &tensor->type));
  OT_TRY(read_shape(where, &entry, tensor));
  return read_offsets(where, &entry, data_bytes, tensor);
}

// Texts for users, not interpreted.
static ot_status check_metadata(ot_json_reader *reader) {
  bool first = true, more = false;
  OT_CHECK(ot_json_reader_next(reader, '{'), OT_ENVIRONMENT, "%s: __metadata__ is not an object",
           reader->name);
  OT_TRY(ot_json_reader_more(reader, '}', &first, &more));
  while (more) {
    ot_json_string string;
    OT_TRY(ot_json_reader_string(reader, &string));
    OT_TRY(ot_json_reader_take(reader, ':'));
    OT_CHECK(ot_json_reader_at_string(reader), OT_ENVIRONMENT,
             "%s: __metadata__ has a value that is no text", reader->name);
    OT_TRY(ot_json_reader_string(reader, &string));
    OT_TRY(ot_json_reader_more(reader, '}', &first, &more));
  }
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

// The tensors must cover the data without gaps or overlaps.
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

static ot_status check_names(const char *file, const ot_safetensors_header *header) {
  for (int i = 1; i < header->num_tensors; i++)
    OT_CHECK(!ot_text_equal(header->tensors[i - 1].name, header->tensors[i].name), OT_ENVIRONMENT,
             "%s: tensor %s appears twice", file, header->tensors[i].name);
  return OT_OK;
}

static ot_status read_root(ot_json_reader *reader, int64_t data_bytes,
                           ot_safetensors_header *header) {
  // Room for all at once: an array that grows would take twice the memory.
  int64_t capacity = reader->length / ENTRY_BYTES_MIN + 1;
  bool first = true, more = false;
  *header = (ot_safetensors_header){
      .tensors = ot_arena_array(reader->arena, capacity, sizeof *header->tensors)};
  OT_TRY(ot_json_reader_take(reader, '{'));
  OT_TRY(ot_json_reader_more(reader, '}', &first, &more));
  while (more) {
    ot_json_string name;
    OT_TRY(ot_json_reader_string(reader, &name));
    OT_TRY(ot_json_reader_take(reader, ':'));
    if (ot_json_string_equal(name, "__metadata__")) {
      OT_TRY(check_metadata(reader));
    } else {
      header->tensors = ot_arena_grow(reader->arena, header->tensors, header->num_tensors,
                                      &capacity, sizeof *header->tensors);
      ot_safetensors_tensor *const tensor = &header->tensors[header->num_tensors++];
      tensor->name = ot_arena_text(reader->arena, name.text, name.length);
      OT_TRY(ot_safetensors_name_check(reader->name, tensor->name));
      OT_TRY(read_tensor(reader, data_bytes, tensor));
    }
    OT_TRY(ot_json_reader_more(reader, '}', &first, &more));
  }
  return ot_json_reader_finish(reader);
}

static uint64_t read_length(const unsigned char *bytes) {
  uint64_t value = 0;
  for (int i = LENGTH_BYTES - 1; i >= 0; i--) value = value << 8 | bytes[i];
  return value;
}

int64_t ot_safetensors_header_bytes(const unsigned char *start, int64_t file_bytes) {
  if (file_bytes < LENGTH_BYTES) return file_bytes;
  const uint64_t length = read_length(start);
  const bool fits =
      length <= OT_SAFETENSORS_HEADER_MAX && (int64_t)length <= file_bytes - LENGTH_BYTES;
  return LENGTH_BYTES + (fits ? (int64_t)length : 0);
}

ot_status ot_safetensors_header_build(ot_arena *arena, const char *file, const void *data,
                                      int64_t file_bytes, ot_safetensors_header *header) {
  OT_CHECK(file_bytes >= LENGTH_BYTES, OT_ENVIRONMENT,
           "%s: not a safetensors file: %lld bytes, at least 8 are needed", file,
           (long long)file_bytes);
  const uint64_t length = read_length(data);
  OT_CHECK(length <= OT_SAFETENSORS_HEADER_MAX, OT_ENVIRONMENT,
           "%s: not a safetensors file: its header has %llu bytes (at most %d)", file,
           (unsigned long long)length, OT_SAFETENSORS_HEADER_MAX);
  const int64_t data_bytes = file_bytes - LENGTH_BYTES - (int64_t)length;
  OT_CHECK(
      data_bytes >= 0, OT_ENVIRONMENT,
      "%s: truncated or not a safetensors file: its header of %llu bytes passes the end at %lld",
      file, (unsigned long long)length, (long long)file_bytes);
  const char *const text = (const char *)data + LENGTH_BYTES;
  OT_CHECK(length >= 2 && text[0] == '{', OT_ENVIRONMENT,
           "%s: not a safetensors file: its header does not start with '{'", file);
  ot_json_reader reader = {.name = file, .text = text, .length = (int64_t)length, .arena = arena};
  OT_TRY(read_root(&reader, data_bytes, header));
  OT_TRY(check_tiling(file, header, data_bytes));
  for (int i = 0; i < header->num_tensors; i++)
    header->tensors[i].offset += LENGTH_BYTES + (int64_t)length;
  if (header->num_tensors > 0)
    qsort(header->tensors, (size_t)header->num_tensors, sizeof *header->tensors, by_name);
  return check_names(file, header);
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
