// SPDX-License-Identifier: Apache-2.0
// Reading of tensor files in the safetensors format: u64 length N, N bytes of JSON, then the
// tensors one after another without a gap. One file, or the files of a directory named by an index
// (STEM.safetensors.index.json). A file is checked whole before its first tensor is handed out: the
// data of what opens is all there, tiles the file, and no name is there twice.
// Writing: safetensors_writer.h.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/dtype.h"
#include "base/status.h"

enum {
  OT_SAFETENSORS_DIMS = 8,                // dimensions of a tensor we take
  OT_SAFETENSORS_HEADER_MAX = 100000000,  // bytes of JSON, the format's limit
};

// The format's element types, in its own order (which is also the order of writing, from the last).
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

// The name in files, "BF16".
const char *ot_safetensors_type_name(ot_safetensors_type type);
// Bits of one element.
int ot_safetensors_type_bits(ot_safetensors_type type);
// The type of ours that holds it; false when there is none (fp8, unsigned 16, complex, ...).
bool ot_safetensors_type_dtype(ot_safetensors_type type, ot_dtype *dtype);
// The type in files of one of ours.
ot_safetensors_type ot_safetensors_type_of(ot_dtype dtype);

// One tensor of an open set.
typedef struct ot_safetensors_tensor {
  const char *name;
  ot_safetensors_type type;
  int rank;                          // 0 for a scalar
  int64_t dim[OT_SAFETENSORS_DIMS];  // outermost first, row-major; 0 is legal
  int64_t elements, bytes;
  int file;        // index of its file
  int64_t offset;  // of its first byte, from the start of the file
} ot_safetensors_tensor;

// An open set of tensor files.
typedef struct ot_safetensors ot_safetensors;

// Opens `path`: a file, or a directory that holds `stem`.safetensors.index.json (then every file it
// names, and each tensor in the file that it says) or else `stem`.safetensors. `stem` is "model" or
// "optimizer"; unused when `path` is a file.
ot_status ot_safetensors_create(const char *path, const char *stem, ot_safetensors **out);
void ot_safetensors_destroy(ot_safetensors **set);

// Tensors in the order of their names.
int ot_safetensors_count(const ot_safetensors *set);
const ot_safetensors_tensor *ot_safetensors_tensor_at(const ot_safetensors *set, int index);

// The index of tensor `name`, or -1.
int ot_safetensors_find(const ot_safetensors *set, const char *name);

int ot_safetensors_num_files(const ot_safetensors *set);
const char *ot_safetensors_file_path(const ot_safetensors *set, int file);

// Where the bytes of a tensor lie in memory (the file is mapped); aligned as the file has it. Valid
// until destroy and as long as nobody cuts the file short.
const void *ot_safetensors_data(const ot_safetensors *set, int index);

// Elements [first, first + count) of one tensor.
typedef struct ot_safetensors_range {
  int tensor;            // index
  int64_t first, count;  // elements
} ot_safetensors_range;

// Reads `range` into `out` [count] of `dtype`, converted (elements.h).
ot_status ot_safetensors_read(const ot_safetensors *set, ot_safetensors_range range, ot_dtype dtype,
                              void *out);
