// SPDX-License-Identifier: Apache-2.0
// The list of files that paths of files and directories stand for.
#pragma once

#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

typedef struct ot_file_list {
  const char **paths;  // [count]
  int64_t count;
  int64_t capacity;
} ot_file_list;

// Appends to `list`, in `arena`, the file `path`, or every regular file below the directory `path`
// in byte order of names, descending where a directory stands; names that begin with a dot are left
// out there. Links are followed; a directory that holds itself is an error.
ot_status ot_file_list_add(ot_file_list *list, const char *path, ot_arena *arena);
