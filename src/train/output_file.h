// SPDX-License-Identifier: Apache-2.0
// A large file that is written in order and is complete or absent: PATH.partial while it grows,
// then synced and renamed. Small ones: ot_disk_replace.
#pragma once

#include <stdint.h>

#include "base/status.h"

typedef struct ot_output_file ot_output_file;

// Opens PATH.partial, emptying it. Keeps a copy of `path`.
ot_status ot_output_file_create(const char *path, ot_output_file **out);

// Closes; without a commit before, the partial file is removed.
void ot_output_file_destroy(ot_output_file **file);

// Appends `bytes` [length], buffered.
ot_status ot_output_file_write(ot_output_file *file, const void *bytes, int64_t length);

// Writes what is buffered, then overwrites / reads back bytes [offset, offset + length), which have
// been written before.
ot_status ot_output_file_write_at(ot_output_file *file, int64_t offset, const void *bytes,
                                  int64_t length);
ot_status ot_output_file_read_at(ot_output_file *file, int64_t offset, void *bytes, int64_t length);

// Writes what is buffered, syncs, and renames to PATH, replacing what is there.
ot_status ot_output_file_commit(ot_output_file *file);
