// SPDX-License-Identifier: Apache-2.0
// A user-given output file. Symbolic links are followed and kept. A regular or new file is replaced
// atomically: data goes to PATH.partial, which is synced and renamed. Anything else (a FIFO, a
// device, the target of standard output) is a stream: it is opened, written in order and never
// replaced by a rename. For files inside a directory that is renamed as a whole, use ot_disk_write.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "files/disk.h"

typedef struct ot_output_file ot_output_file;

// The target of the links of `path`, which need not exist; `path` itself if it is no link.
ot_status ot_output_file_follow(const char *path, char target[OT_PATH_BYTES]);

// Fails if ot_output_file_create would, as far as that can be known without a stream being opened.
// Leaves nothing.
ot_status ot_output_file_check(const char *path);

// True when `path` leads to a stream, which cannot be read back or overwritten.
bool ot_output_file_is_stream(const char *path);

// True when `path` leads to the target of standard output.
bool ot_output_file_is_stdout(const char *path);

// Opens the stream, or the partial file, truncating it. Keeps a copy of `path`. Blocks on a FIFO
// until it has a reader.
ot_status ot_output_file_create(const char *path, ot_output_file **out);

// Closes; the partial file is removed unless it was committed.
void ot_output_file_destroy(ot_output_file **file);

// The path after resolving all links.
const char *ot_output_file_path(const ot_output_file *file);

// For callers that write the whole file without ot_output_file_write.
int ot_output_file_descriptor(const ot_output_file *file);

// Appends `bytes` [length], buffered.
ot_status ot_output_file_write(ot_output_file *file, const void *bytes, int64_t length);

// Flushes the buffer, then overwrites / reads back bytes [offset, offset + length), which were
// written before. Not for streams.
ot_status ot_output_file_write_at(ot_output_file *file, int64_t offset, const void *bytes,
                                  int64_t length);
ot_status ot_output_file_read_at(ot_output_file *file, int64_t offset, void *bytes, int64_t length);

// Flushes, syncs, and renames to PATH, replacing an existing file.
ot_status ot_output_file_commit(ot_output_file *file);

// Copies the whole file of the descriptor `from` to the stream at `path`, which is opened for it.
// OT_ENVIRONMENT if nobody reads the stream for `patience_s` seconds, at the begin or in between;
// infinity: waits.
ot_status ot_output_file_pour(int from, const char *path, double patience_s);

// Creates, writes `bytes` [length] and commits.
ot_status ot_output_file_replace(const char *path, const void *bytes, int64_t length);
