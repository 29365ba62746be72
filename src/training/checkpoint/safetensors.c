// SPDX-License-Identifier: Apache-2.0
// Opens one or several files, checks each, and merges their tensors into one table sorted by name.
#include "checkpoint/safetensors.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "checkpoint/elements.h"
#include "checkpoint/safetensors_header.h"
#include "files/disk.h"
#include "files/json_file.h"
#include "host/heap.h"

enum { INDEX_BYTES_MAX = 1 << 26, READ_BLOCK_BYTES = 1 << 16, FILES_MAX = 10000 };

typedef struct tensor_file {
  const char *path;
  int descriptor;  // -1 before it is open
  int64_t bytes;
  ot_safetensors_header header;
} tensor_file;

struct ot_safetensors {
  bool own;                      // its directory is ours: no links
  const ot_file_source *source;  // of `own`; null: this machine
  ot_heap heap;
  ot_arena arena;
  int num_files;
  tensor_file *files;
  int num_tensors;
  ot_safetensors_tensor *tensors;  // sorted by name
};

static ot_status read_at(const ot_safetensors *set, const tensor_file *file, int64_t offset,
                         void *to, int64_t bytes) {
  const ot_file_source *const source = set->source;
  if (source) return source->read(source->context, file->path, offset, to, bytes);
  return ot_disk_read_at(file->descriptor, file->path, offset, to, bytes);
}

static ot_status read_header(ot_safetensors *set, tensor_file *file) {
  unsigned char start[8] = {0};
  const int64_t least = file->bytes < (int64_t)sizeof start ? file->bytes : (int64_t)sizeof start;
  OT_TRY(read_at(set, file, 0, start, least));
  const int64_t bytes = ot_safetensors_header_bytes(start, file->bytes);
  char *const text = malloc((size_t)bytes);
  OT_CHECK(text != NULL, OT_ENVIRONMENT, "out of memory for the header of %s", file->path);
  // The length is read once: the file may change.
  memcpy(text, start, (size_t)least);
  ot_status status = read_at(set, file, least, text + least, bytes - least);
  if (status == OT_OK)
    status = ot_safetensors_header_build(&set->arena, file->path, text, file->bytes, &file->header);
  free(text);
  return status;
}

// Nothing is mapped: a file that another process truncates, or whose disk fails, is an error of a
// read and not a signal.
static ot_status open_here(const ot_safetensors *set, tensor_file *file) {
  OT_TRY(set->own ? ot_disk_open_own(file->path, &file->descriptor)
                  : ot_disk_open(file->path, &file->descriptor));
  return ot_disk_size(file->descriptor, file->path, INT64_MAX, &file->bytes);
}

static ot_status open_file(ot_safetensors *set, tensor_file *file) {
  OT_TRY(set->source ? ot_file_measure(set->source, file->path, &file->bytes)
                     : open_here(set, file));
  OT_CHECK(file->bytes > 0, OT_ENVIRONMENT, "%s: not a safetensors file: it is %s", file->path,
           file->bytes == 0 ? "empty" : "missing or a link");
  return read_header(set, file);
}

static int by_name(const void *a, const void *b) {
  const ot_safetensors_tensor *const x = a, *const y = b;
  return ot_text_compare(x->name, y->name);
}

static ot_status join_files(ot_safetensors *set) {
  int64_t total = 0;
  for (int i = 0; i < set->num_files; i++) total += set->files[i].header.num_tensors;
  OT_CHECK(total < INT32_MAX, OT_ENVIRONMENT, "too many tensors (%s)", set->files[0].path);
  set->tensors = ot_arena_array(&set->arena, total, sizeof *set->tensors);
  for (int i = 0; i < set->num_files; i++) {
    const ot_safetensors_header *const header = &set->files[i].header;
    for (int j = 0; j < header->num_tensors; j++) {
      header->tensors[j].file = i;
      set->tensors[set->num_tensors++] = header->tensors[j];
    }
  }
  if (total > 0) qsort(set->tensors, (size_t)total, sizeof *set->tensors, by_name);
  for (int i = 1; i < set->num_tensors; i++)
    OT_CHECK(!ot_text_equal(set->tensors[i - 1].name, set->tensors[i].name), OT_ENVIRONMENT,
             "tensor %s is in two files: %s and %s", set->tensors[i].name,
             set->files[set->tensors[i - 1].file].path, set->files[set->tensors[i].file].path);
  return OT_OK;
}

// ---- the index of a directory ----

// A weight map, and the position in the set of each of its files.
typedef struct weight_index {
  const char *path;
  json_t *weight_map;
  json_t *positions;
} weight_index;

// -1: not yet in the set.
static int find_file(const weight_index *index, const char *name) {
  const json_t *const found = json_object_get(index->positions, name);
  return found != NULL ? (int)json_integer_value(found) : -1;
}

// The distinct files of the weight map.
static ot_status list_files(ot_safetensors *set, const char *directory, const weight_index *index) {
  int64_t capacity = 0;
  const char *tensor;
  json_t *value;
  json_object_foreach(index->weight_map, tensor, value) {
    const char *const name = json_string_value(value);
    OT_CHECK(name != NULL && name[0] != '\0' && ot_text_find(name, "/") == NULL, OT_ENVIRONMENT,
             "%s: tensor %s is not mapped to the plain name of a file", index->path, tensor);
    if (find_file(index, name) >= 0) continue;
    OT_CHECK(set->num_files < FILES_MAX, OT_ENVIRONMENT, "%s: names more than %d files",
             index->path, FILES_MAX);
    const int failed = json_object_set_new(index->positions, name, json_integer(set->num_files));
    OT_CHECK(failed == 0, OT_ENVIRONMENT, "out of memory (%s)", index->path);
    set->files =
        ot_arena_grow(&set->arena, set->files, set->num_files, &capacity, sizeof *set->files);
    set->files[set->num_files++] =
        (tensor_file){.path = ot_disk_join(&set->arena, directory, name), .descriptor = -1};
  }
  OT_CHECK(set->num_files > 0, OT_ENVIRONMENT, "%s: weight_map names no file", index->path);
  return OT_OK;
}

static ot_status check_against_index(const ot_safetensors *set, const weight_index *index) {
  const char *name;
  json_t *value;
  json_object_foreach(index->weight_map, name, value) {
    const int tensor = ot_safetensors_find(set, name);
    const char *const file = json_string_value(value);
    OT_CHECK(tensor >= 0, OT_ENVIRONMENT, "%s: tensor %s is not in %s", index->path, name, file);
    OT_CHECK(set->tensors[tensor].file == find_file(index, file), OT_ENVIRONMENT,
             "%s: tensor %s is not in %s but in %s", index->path, name, file,
             set->files[set->tensors[tensor].file].path);
  }
  for (int i = 0; i < set->num_tensors; i++)
    OT_CHECK(json_object_get(index->weight_map, set->tensors[i].name) != NULL, OT_ENVIRONMENT,
             "%s: tensor %s of %s is not in the index", index->path, set->tensors[i].name,
             set->files[set->tensors[i].file].path);
  return OT_OK;
}

static ot_status open_files(ot_safetensors *set) {
  for (int i = 0; i < set->num_files; i++) OT_TRY(open_file(set, &set->files[i]));
  return join_files(set);
}

static ot_status open_index(ot_safetensors *set, const char *directory, const weight_index *index) {
  OT_TRY(list_files(set, directory, index));
  OT_TRY(open_files(set));
  return check_against_index(set, index);
}

static ot_status open_indexed(ot_safetensors *set, const char *directory, const char *index_path,
                              json_t *root) {
  weight_index index = {.path = index_path};
  OT_TRY(ot_json_member_object(index_path, root, "weight_map", &index.weight_map));
  index.positions = json_object();
  OT_CHECK(index.positions != NULL, OT_ENVIRONMENT, "out of memory (%s)", index_path);
  const ot_status status = open_index(set, directory, &index);
  json_decref(index.positions);
  return status;
}

static ot_status read_index(ot_safetensors *set, const char *path, json_t **index) {
  ot_file_text file;
  if (!set->own) return ot_json_load(path, INDEX_BYTES_MAX, index);
  OT_TRY(ot_file_read(set->source, &set->arena, path, INDEX_BYTES_MAX, &file));
  return ot_json_parse(path, file.text, file.bytes, index);
}

static ot_status open_single(ot_safetensors *set, const char *path) {
  set->files = ot_arena_array(&set->arena, 1, sizeof *set->files);
  set->files[0] = (tensor_file){.path = ot_arena_text(&set->arena, path, ot_text_length(path)),
                                .descriptor = -1};
  set->num_files = 1;
  return open_files(set);
}

// A file of the directory, an index or one with tensors.
static ot_status open_named(ot_safetensors *set, const char *directory, const char *name) {
  const char *const path = ot_disk_join(&set->arena, directory, name);
  if (!ot_text_ends_with(name, OT_INDEX_ENDING)) return open_single(set, path);
  json_t *index = NULL;
  OT_TRY(read_index(set, path, &index));
  const ot_status status = open_indexed(set, directory, path, index);
  json_decref(index);
  return status;
}

static ot_status open_stem(ot_safetensors *set, const char *path, const char *stem) {
  if (!ot_disk_is_directory(path)) return open_single(set, path);
  const char *const name = ot_arena_format(&set->arena, "%s.safetensors", stem);
  const char *const index = ot_arena_format(&set->arena, "%s" OT_INDEX_ENDING, name);
  const bool has_single = ot_disk_is_file(ot_disk_join(&set->arena, path, name));
  const bool has_index = ot_disk_is_file(ot_disk_join(&set->arena, path, index));
  OT_CHECK(!has_index || !has_single, OT_ENVIRONMENT,
           "both %s and %s exist: remove one of them (%s)", name, index, path);
  OT_CHECK(has_index || has_single, OT_ENVIRONMENT, "neither %s nor %s exists (%s)", name, index,
           path);
  return open_named(set, path, has_index ? index : name);
}

// `name`: of the file for one of ours, else the stem.
static ot_status create(const char *path, const char *name, ot_safetensors kind,
                        ot_safetensors **out) {
  ot_safetensors *set = calloc(1, sizeof *set);
  OT_CHECK(set != NULL, OT_ENVIRONMENT, "out of memory (%s)", path);
  *set = kind;
  set->arena = ot_heap_arena_create(&set->heap);
  const ot_status status = kind.own ? open_named(set, path, name) : open_stem(set, path, name);
  if (status != OT_OK) ot_safetensors_destroy(&set);
  *out = set;
  return status;
}

ot_status ot_safetensors_create(const char *path, const char *stem, ot_safetensors **out) {
  return create(path, stem, (ot_safetensors){0}, out);
}

ot_status ot_safetensors_create_own(const ot_file_source *source, const char *directory,
                                    const char *name, ot_safetensors **out) {
  return create(directory, name, (ot_safetensors){.own = true, .source = source}, out);
}

void ot_safetensors_destroy(ot_safetensors **set) {
  if (*set == NULL) return;
  for (int i = 0; i < (*set)->num_files; i++) {
    const int descriptor = (*set)->files[i].descriptor;
    if (descriptor >= 0) close(descriptor);
  }
  ot_heap_release(&(*set)->heap);
  free(*set);
  *set = NULL;
}

int ot_safetensors_count(const ot_safetensors *set) { return set->num_tensors; }

const ot_safetensors_tensor *ot_safetensors_tensor_at(const ot_safetensors *set, int index) {
  OT_ASSERT(index >= 0 && index < set->num_tensors);
  return &set->tensors[index];
}

int ot_safetensors_find(const ot_safetensors *set, const char *name) {
  const ot_safetensors_tensor key = {.name = name};
  if (set->num_tensors == 0) return -1;
  const ot_safetensors_tensor *const found =
      bsearch(&key, set->tensors, (size_t)set->num_tensors, sizeof key, by_name);
  return found != NULL ? (int)(found - set->tensors) : -1;
}

int ot_safetensors_num_files(const ot_safetensors *set) { return set->num_files; }

const char *ot_safetensors_file_path(const ot_safetensors *set, int file) {
  OT_ASSERT(file >= 0 && file < set->num_files);
  return set->files[file].path;
}

ot_status ot_safetensors_read_bytes(const ot_safetensors *set, int file, int64_t offset, void *to,
                                    int64_t bytes) {
  OT_ASSERT(file >= 0 && file < set->num_files);
  return read_at(set, &set->files[file], offset, to, bytes);
}

static ot_status fetch_file(void *context, int file, int64_t offset, void *to, int64_t bytes) {
  return ot_safetensors_read_bytes(context, file, offset, to, bytes);
}

ot_status ot_safetensors_read_from(const ot_safetensors *set, const ot_safetensors_bytes *source,
                                   ot_safetensors_range range, ot_dtype dtype, void *out) {
  const ot_safetensors_tensor *const tensor = ot_safetensors_tensor_at(set, range.tensor);
  OT_ASSERT(range.first >= 0 && range.count >= 0 && range.count <= tensor->elements - range.first);
  ot_dtype stored;
  OT_CHECK(
      ot_safetensors_type_dtype(tensor->type, &stored) && ot_elements_convertible(stored, dtype),
      OT_ENVIRONMENT, "%s: tensor %s is %s and cannot be read as %s", set->files[tensor->file].path,
      tensor->name, ot_safetensors_type_name(tensor->type), ot_dtype_name(dtype));
  const int64_t stored_bytes = ot_dtype_bytes(stored);
  const int64_t offset = tensor->offset + range.first * stored_bytes;
  if (stored == dtype)
    return source->fetch(source->context, tensor->file, offset, out, range.count * stored_bytes);
  _Alignas(8) char block[READ_BLOCK_BYTES];
  const int64_t block_count = READ_BLOCK_BYTES / stored_bytes;
  for (int64_t i = 0; i < range.count; i += block_count) {
    const int64_t count = range.count - i < block_count ? range.count - i : block_count;
    OT_TRY(source->fetch(source->context, tensor->file, offset + i * stored_bytes, block,
                         count * stored_bytes));
    ot_elements_convert(stored, block, dtype, (char *)out + i * ot_dtype_bytes(dtype), count);
  }
  return OT_OK;
}

ot_status ot_safetensors_read(const ot_safetensors *set, ot_safetensors_range range, ot_dtype dtype,
                              void *out) {
  const ot_safetensors_bytes source = {fetch_file, (void *)(uintptr_t)set};
  return ot_safetensors_read_from(set, &source, range, dtype, out);
}
