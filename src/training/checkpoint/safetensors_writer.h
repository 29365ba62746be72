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

// Creates the files of `layout` in `directory`, which must exist, at their full size; the file
// system reserves the space if it can, so that a full disk shows here. Not synced.
ot_status ot_safetensors_files_create(const char *directory, const ot_safetensors_layout *layout);

// Writes created files. Several processes may write the same files, each its own bytes: they are
// opened for writing only, because network file systems read, and later write back, whole pages of
// files that are opened for both.
typedef struct ot_safetensors_writer ot_safetensors_writer;

// Opens files as they are written. Keeps `layout` and its arena until destroy.
ot_status ot_safetensors_writer_create(const char *directory, const ot_safetensors_layout *layout,
                                       ot_safetensors_writer **out);

// Writes the header of file `file`.
ot_status ot_safetensors_write_header(ot_safetensors_writer *writer, int file);

// Writes `data` [range.count], in the tensor's type, as that range of elements; ranges of a tensor
// in any order, each element once. A file that this writer writes alone and in order is hashed on
// the way.
ot_status ot_safetensors_write(ot_safetensors_writer *writer, ot_safetensors_range range,
                               const void *data);

// Writes the whole of `tensor` (index of the request).
ot_status ot_safetensors_write_tensor(ot_safetensors_writer *writer, int tensor, const void *data);

// Where the bytes of a file go instead, in parts of any length.
typedef struct ot_safetensors_sink {
  ot_status (*put)(void *context, int file, int64_t offset, const void *data, int64_t bytes);
  void *context;
} ot_safetensors_sink;

// This writer does not write files: what it is given goes to `sink`.
void ot_safetensors_writer_redirect(ot_safetensors_writer *writer, ot_safetensors_sink sink);

// Writes bytes that the sink of another writer of this layout was given. They count as elements
// that the other writer wrote.
ot_status ot_safetensors_put(ot_safetensors_writer *writer, int file, int64_t offset,
                             const void *data, int64_t bytes);

// Syncs and closes all files that were written.
ot_status ot_safetensors_writer_sync(ot_safetensors_writer *writer);

// Elements of each tensor that this writer wrote, [num_tensors]. Valid until destroy.
const int64_t *ot_safetensors_written(const ot_safetensors_writer *writer);

// OT_BUG, naming a tensor, unless `written` [num_tensors], of all writers, are all its elements.
ot_status ot_safetensors_check_written(const ot_safetensors_layout *layout, const int64_t *written);

// True if all bytes of file `file` passed this writer in order.
bool ot_safetensors_is_hashed(const ot_safetensors_writer *writer, int file);

// The record of file `file`, once written by all writers: of what was written if it is hashed, else
// of the file, which is read. Block hashes are in `arena`.
ot_status ot_safetensors_record(const ot_safetensors_writer *writer, int file, ot_arena *arena,
                                ot_content_record *record);

// For a writer of all files: checks that every element was written, syncs, and lists the files in
// `records` [num_files].
ot_status ot_safetensors_writer_finish(ot_safetensors_writer *writer, ot_arena *arena,
                                       ot_content_record *records);

// Closes open files; files of an unfinished writer stay incomplete.
void ot_safetensors_writer_destroy(ot_safetensors_writer **writer);
