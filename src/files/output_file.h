// SPDX-License-Identifier: Apache-2.0
// A file that a user named as an output. Symbolic links are followed and stay. A regular file, or
// one that is not there yet, is complete or as it was: PATH.partial while it grows, then synced and
// renamed. Anything else (a FIFO, a device, what standard output leads to) is a stream: it is
// opened, written in order and never renamed over. Files inside a directory that is renamed as a
// whole: ot_disk_write.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "files/disk.h"

typedef struct ot_output_file ot_output_file;

// What the links of `path` lead to, which need not exist; `path` itself where it is no link.
ot_status ot_output_file_follow(const char *path, char target[OT_PATH_BYTES]);

// True when `path` leads to a stream: what is written there cannot be read back or written over.
bool ot_output_file_is_stream(const char *path);

// True when `path` leads to where standard output goes.
bool ot_output_file_is_stdout(const char *path);

// Opens the stream, or the partial file, emptying it. Keeps a copy of `path`. Blocks on a FIFO
// until it has a reader.
ot_status ot_output_file_create(const char *path, ot_output_file **out);

// Closes; without a commit before, the partial file is removed.
void ot_output_file_destroy(ot_output_file **file);

// The path behind all links.
const char *ot_output_file_path(const ot_output_file *file);

// For those who write all of the file by other means than ot_output_file_write.
int ot_output_file_descriptor(const ot_output_file *file);

// Appends `bytes` [length], buffered.
ot_status ot_output_file_write(ot_output_file *file, const void *bytes, int64_t length);

// Writes what is buffered, then overwrites / reads back bytes [offset, offset + length), which have
// been written before. Not for streams.
ot_status ot_output_file_write_at(ot_output_file *file, int64_t offset, const void *bytes,
                                  int64_t length);
ot_status ot_output_file_read_at(ot_output_file *file, int64_t offset, void *bytes, int64_t length);

// Writes what is buffered, syncs, and renames to PATH, replacing what is there.
ot_status ot_output_file_commit(ot_output_file *file);

// All of it in one call: `bytes` [length].
ot_status ot_output_file_replace(const char *path, const void *bytes, int64_t length);
