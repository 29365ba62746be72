// SPDX-License-Identifier: Apache-2.0
// Regular files by their paths, for readers that do not care whose they are: of this machine, or of
// another one that has the paths.
#pragma once

#include "base/arena.h"
#include "base/status.h"

enum { OT_FILE_ABSENT = -1, OT_FILE_OTHER = -2 };

typedef struct ot_file_source {
  // *bytes: of the regular file at `path`; OT_FILE_ABSENT; OT_FILE_OTHER: a link, a directory, ...
  ot_status (*measure)(void *context, const char *path, int64_t *bytes);
  // Bytes [offset, offset + bytes) of it.
  ot_status (*read)(void *context, const char *path, int64_t offset, void *to, int64_t bytes);
  void *context;
} ot_file_source;

// The size of a file of `source`; null: of this machine. Links are not followed.
ot_status ot_file_measure(const ot_file_source *source, const char *path, int64_t *bytes);
// True for a regular file, and false where that is not known.
bool ot_file_exists(const ot_file_source *source, const char *path);
// The whole file with a terminating zero in `arena`; larger than `limit` bytes is an error.
typedef struct ot_file_text {
  char *text;
  int64_t bytes;
} ot_file_text;
ot_status ot_file_read(const ot_file_source *source, ot_arena *arena, const char *path,
                       int64_t limit, ot_file_text *out);
