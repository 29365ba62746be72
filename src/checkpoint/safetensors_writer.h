// SPDX-License-Identifier: Apache-2.0
// Writing of safetensors files. The layout (which file, which offset, every header) follows from
// names, types and shapes alone, so each rank of a job can compute it and write its own slices of
// the same files. Equal tensors make files equal to those of the format's Python writer, byte for
// byte.
#pragma once

#include "checkpoint/safetensors.h"
#include "files/content_hash.h"

// What is asked for.
typedef struct ot_safetensors_request {
  const char *stem;  // "model": one file STEM.safetensors, or STEM-00001-of-0000N.safetensors and
                     // STEM.safetensors.index.json when it takes more than one
  int64_t shard_bytes;  // most bytes of tensors in a file (a larger tensor gets one of its own); 0:
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

// Where everything goes.
typedef struct ot_safetensors_layout {
  int num_tensors;
  ot_safetensors_tensor *tensors;  // [num_tensors] as requested; file and offset set
  int num_files;
  ot_safetensors_layout_file *files;
  int64_t tensor_bytes;
  const char *index_name;  // null when one file holds all
  const char *index_text;
} ot_safetensors_layout;

// Fails on names that are empty, too long, double or hold control characters, and on sizes that
// overflow. Shards are filled in the order of the request.
ot_status ot_safetensors_layout_build(ot_arena *arena, const ot_safetensors_request *request,
                                      ot_safetensors_layout *layout);

// Files being written.
typedef struct ot_safetensors_writer ot_safetensors_writer;

// Creates the files of `layout` in `directory`, which must exist, and writes their headers. Keeps
// `layout` and its arena until destroy.
ot_status ot_safetensors_writer_create(const char *directory, const ot_safetensors_layout *layout,
                                       ot_safetensors_writer **out);

// Writes `data` [range.count], of the tensor's own type, as that range of elements; ranges of a
// tensor in any order, each element once. Hashing is free when ranges come in the order of the
// file, otherwise `finish` reads again what came out of order.
ot_status ot_safetensors_write(ot_safetensors_writer *writer, ot_safetensors_range range,
                               const void *data);

// Writes the whole of `tensor` (index of the request).
ot_status ot_safetensors_write_tensor(ot_safetensors_writer *writer, int tensor, const void *data);

// Checks that every element was written, syncs the files, writes the index last. `records`
// [num_files, and one more when there is an index] in `arena` list what was made.
ot_status ot_safetensors_writer_finish(ot_safetensors_writer *writer, ot_arena *arena,
                                       ot_content_record **records, int *num_records);

// Closes what is open; files of a writer that did not finish stay as they are, incomplete.
void ot_safetensors_writer_destroy(ot_safetensors_writer **writer);
