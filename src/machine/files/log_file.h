// SPDX-License-Identifier: Apache-2.0
// A file that a process appends to for as long as it runs, and that must not end it. What cannot be
// written (a full disk, a file system that went away) is counted, and later pieces are written when
// that works again. A file that was removed, replaced or cut by others (a rotation of logs) is
// noticed: writing goes on at the end of what its path names now.
#pragma once

#include <stdint.h>

#include "base/status.h"

typedef struct ot_log_file ot_log_file;

typedef struct ot_log_request {
  const char *path;
  const char *head;    // [head_bytes] what the file begins with, if anything
  int64_t head_bytes;  // 0: the file has lines, and one that is cut loses its incomplete last one
  int flags;           // of open, besides those to read and write it: O_CREAT, O_EXCL
} ot_log_request;

// Opens the file, to continue after its first `length` bytes: cuts the rest, and writes the head of
// a file without one. Keeps nothing of the request.
ot_status ot_log_file_create(const ot_log_request *request, int64_t length, ot_log_file **out);
void ot_log_file_destroy(ot_log_file **log);

// Appends a line or a record [bytes]: the file never has a part of it at its end for long. Two
// system calls more than the write itself.
void ot_log_file_append(ot_log_file *log, const void *piece, int64_t bytes);

// Makes what was appended durable, as far as that is possible.
void ot_log_file_sync(ot_log_file *log);

// A sentence on what happened to the file since the last call; null: nothing. Valid until the next
// call of any function with this `log`.
const char *ot_log_file_news(ot_log_file *log);

// Pieces that are not in the file.
int64_t ot_log_file_lost(const ot_log_file *log);
