// SPDX-License-Identifier: Apache-2.0
// Files of text read as a stream of bytes: plain, gzip (.gz) or Zstandard (.zst), told apart by
// their names. Files of several compressed members are read through.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "tokenizer/buffer.h"

typedef struct ot_text_file ot_text_file;

// OT_ENVIRONMENT naming the file when it cannot be opened. Keeps a copy of `path`.
ot_status ot_text_file_create(const char *path, ot_text_file **out);
void ot_text_file_destroy(ot_text_file **file);

// Reads up to `capacity` bytes into `out`; `length` is 0 only at the end. Blocks. OT_ENVIRONMENT
// naming the file on a failed read, damaged or truncated compressed data.
ot_status ot_text_file_read(ot_text_file *file, uint8_t *out, int64_t capacity, int64_t *length);
