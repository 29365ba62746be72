// SPDX-License-Identifier: Apache-2.0
// A file that is read for hours and must stay as it was when it was opened: every read notices a
// file that was cut, written, removed or replaced, instead of going on with other bytes.
#pragma once

#include <stdint.h>

#include "base/status.h"

typedef struct ot_steady_file {
  const char *path;    // borrowed until close
  int descriptor;      // -1: not open
  int64_t bytes;       // size when it was opened
  int64_t modified_s;  // time of its last change then, and nanoseconds
  int64_t modified_ns;
} ot_steady_file;

// Opens the regular file at `path`. OT_ENVIRONMENT if that is not possible; then nothing is open.
ot_status ot_steady_file_open(const char *path, ot_steady_file *file);

// Reads `bytes` at `offset` into `data`. OT_ENVIRONMENT, naming the file, the position and what
// happened, when it ends early or is no longer what was opened. Safe from many threads.
ot_status ot_steady_file_read(const ot_steady_file *file, int64_t offset, void *data,
                              int64_t bytes);

void ot_steady_file_close(ot_steady_file *file);
