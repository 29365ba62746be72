// SPDX-License-Identifier: Apache-2.0
// Reads tensor files in the safetensors format: u64 length N, N bytes of JSON, then the tensors one
// after another without gaps. One file, or the files of a directory listed by an index
// (STEM.safetensors.index.json). A file is checked completely before its first tensor is
// accessible: all data is present, tensors cover the file exactly, and names are unique. Writing:
// safetensors_writer.h.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/dtype.h"
#include "base/status.h"
#include "files/file_source.h"

enum {
  OT_SAFETENSORS_DIMS = 8,                // maximum dimensions of a tensor
  OT_SAFETENSORS_HEADER_MAX = 100000000,  // bytes of JSON, the format's limit
};

// The format's element types in its order; files are written in the reverse order.
typedef enum ot_safetensors_type {
  OT_SAFETENSORS_BOOL,
  OT_SAFETENSORS_F4,
  OT_SAFETENSORS_F6_E2M3,
  OT_SAFETENSORS_F6_E3M2,
  OT_SAFETENSORS_U8,
  OT_SAFETENSORS_I8,
  OT_SAFETENSORS_F8_E5M2,
  OT_SAFETENSORS_F8_E4M3,
  OT_SAFETENSORS_F8_E8M0,
  OT_SAFETENSORS_F8_E4M3FNUZ,
  OT_SAFETENSORS_F8_E5M2FNUZ,
  OT_SAFETENSORS_I16,
  OT_SAFETENSORS_U16,
  OT_SAFETENSORS_F16,
  OT_SAFETENSORS_BF16,
  OT_SAFETENSORS_I32,
  OT_SAFETENSORS_U32,
  OT_SAFETENSORS_F32,
  OT_SAFETENSORS_C64,
  OT_SAFETENSORS_F64,
  OT_SAFETENSORS_I64,
  OT_SAFETENSORS_U64,
  OT_SAFETENSORS_TYPE_COUNT,
} ot_safetensors_type;

// Its name in files, "BF16".
const char *ot_safetensors_type_name(ot_safetensors_type type);
// Bits of one element.
int ot_safetensors_type_bits(ot_safetensors_type type);
// The dtype that holds it; false if there is none (fp8, unsigned 16, complex, ...).
bool ot_safetensors_type_dtype(ot_safetensors_type type, ot_dtype *dtype);
// The file type of a dtype.
ot_safetensors_type ot_safetensors_type_of(ot_dtype dtype);

// One tensor of an open set.
typedef struct ot_safetensors_tensor {
  const char *name;
  ot_safetensors_type type;
  int rank;                          // 0 for a scalar
  int64_t dim[OT_SAFETENSORS_DIMS];  // outermost first, row-major; 0 is legal
  int64_t elements, bytes;
  int file;        // file index
  int64_t offset;  // first byte, from the start of the file
} ot_safetensors_tensor;

// An open set of tensor files.
typedef struct ot_safetensors ot_safetensors;

// The end of the name of a file that says which files have which tensors.
#define OT_INDEX_ENDING ".index.json"

// Opens `path`: a file, or a directory with `stem`.safetensors.index.json (then every file it
// lists, and each tensor in its listed file) or else `stem`.safetensors. `stem` is "model" or
// "optimizer"; unused if `path` is a file.
ot_status ot_safetensors_create(const char *path, const char *stem, ot_safetensors **out);
// The same for a directory of ours, whose files are those of `source`, kept until destroy; null: of
// this machine. `name`: the file to open in it, "model.safetensors" or an index. Fails if a file is
// a link (ot_disk_open_own).
ot_status ot_safetensors_create_own(const ot_file_source *source, const char *directory,
                                    const char *name, ot_safetensors **out);
void ot_safetensors_destroy(ot_safetensors **set);

// Tensors sorted by name.
int ot_safetensors_count(const ot_safetensors *set);
const ot_safetensors_tensor *ot_safetensors_tensor_at(const ot_safetensors *set, int index);

// The index of tensor `name`, or -1.
int ot_safetensors_find(const ot_safetensors *set, const char *name);

int ot_safetensors_num_files(const ot_safetensors *set);
const char *ot_safetensors_file_path(const ot_safetensors *set, int file);

// Elements [first, first + count) of one tensor.
typedef struct ot_safetensors_range {
  int tensor;            // index
  int64_t first, count;  // elements
} ot_safetensors_range;

// Reads `range` into `out` [count] of `dtype`, converted (elements.h).
ot_status ot_safetensors_read(const ot_safetensors *set, ot_safetensors_range range, ot_dtype dtype,
                              void *out);

// The same with the bytes of file `file` from `fetch`.
typedef struct ot_safetensors_bytes {
  ot_status (*fetch)(void *context, int file, int64_t offset, void *to, int64_t bytes);
  void *context;
} ot_safetensors_bytes;
ot_status ot_safetensors_read_from(const ot_safetensors *set, const ot_safetensors_bytes *source,
                                   ot_safetensors_range range, ot_dtype dtype, void *out);

// Bytes [offset, offset + bytes) of file `file`.
ot_status ot_safetensors_read_bytes(const ot_safetensors *set, int file, int64_t offset, void *to,
                                    int64_t bytes);
