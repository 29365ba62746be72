// SPDX-License-Identifier: Apache-2.0
// Text files read as a byte stream: plain, gzip or Zstandard, by their first bytes or, if
// these are of none, by name. Files with several compressed members are read to the end.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "tokenizer/buffer.h"

typedef struct ot_text_file ot_text_file;

// OT_ENVIRONMENT, naming the file, if it cannot be opened. Copies `path`.
ot_status ot_text_file_create(const char *path, ot_text_file **out);
void ot_text_file_destroy(ot_text_file **file);

// Reads up to `capacity` bytes into `out`; `length` is 0 only at the end. Blocks. OT_ENVIRONMENT,
// naming the file, on a failed read, or corrupt or truncated compressed data.
ot_status ot_text_file_read(ot_text_file *file, uint8_t *out, int64_t capacity, int64_t *length);
