// SPDX-License-Identifier: Apache-2.0
// Writes safetensors files. The layout (files, offsets, headers) depends only on names, types and
// shapes, so each rank of a job can compute it and write its own slices of the same files. The
// files are byte-identical to those of the format's Python writer.
#pragma once

#include "checkpoint/safetensors.h"
#include "files/content_hash.h"

// The requested files.
typedef struct ot_safetensors_request {
  const char *stem;  // "model": one file STEM.safetensors, or STEM-00001-of-0000N.safetensors and
                     // STEM.safetensors.index.json for several
  int64_t shard_bytes;  // maximum bytes of tensors per file (a larger tensor has its own file); 0:
                        // no limit
  int num_tensors;
  const ot_safetensors_tensor *tensors;  // [num_tensors]; name, type, rank and dim are read
} ot_safetensors_request;

typedef struct ot_safetensors_layout_file {
  const char *name;
  const char *header;  // [header_bytes], the start of the file
  int64_t header_bytes, file_bytes;
  int num_tensors;
  const int *order;  // [num_tensors] tensors in the order of the file
} ot_safetensors_layout_file;

// The assignment of tensors to files and offsets.
typedef struct ot_safetensors_layout {
  int num_tensors;
  ot_safetensors_tensor *tensors;  // [num_tensors] as requested; file and offset set
  int num_files;
  ot_safetensors_layout_file *files;
  int64_t tensor_bytes;
  const char *index_name;  // null if one file holds all
  const char *index_text;
} ot_safetensors_layout;

// Fails on names that are empty, too long, duplicate or contain control characters, and on sizes
// that overflow. Shards are filled in the order of the request.
ot_status ot_safetensors_layout_build(ot_arena *arena, const ot_safetensors_request *request,
                                      ot_safetensors_layout *layout);

// Files being written.
typedef struct ot_safetensors_writer ot_safetensors_writer;

// Creates the files of `layout` in `directory`, which must exist, and writes their headers. Keeps
// `layout` and its arena until destroy.
ot_status ot_safetensors_writer_create(const char *directory, const ot_safetensors_layout *layout,
                                       ot_safetensors_writer **out);

// Writes `data` [range.count], in the tensor's type, as that range of elements; ranges of a tensor
// in any order, each element once. Hashing is free if ranges arrive in file order; otherwise
// `finish` reads the rest again.
ot_status ot_safetensors_write(ot_safetensors_writer *writer, ot_safetensors_range range,
                               const void *data);

// Writes the whole of `tensor` (index of the request).
ot_status ot_safetensors_write_tensor(ot_safetensors_writer *writer, int tensor, const void *data);

// Checks that every element was written, syncs the files, writes the index last. `records`
// [num_files, plus one with an index] in `arena` list the files.
ot_status ot_safetensors_writer_finish(ot_safetensors_writer *writer, ot_arena *arena,
                                       ot_content_record **records, int *num_records);

// Closes open files; files of an unfinished writer stay incomplete.
void ot_safetensors_writer_destroy(ot_safetensors_writer **writer);
