// SPDX-License-Identifier: Apache-2.0
// Files as trees: selects the parser, stores the absolute directory.
#include "files/tree_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "files/disk.h"

// The absolute directory of the file at `path`.
static ot_status directory_of(const char *path, ot_arena *arena, const char **out) {
  char *const real = realpath(path, NULL);
  if (!real) return ot_disk_fail("read", path, errno);
  const char *const slash = strrchr(real, '/');
  *out = ot_arena_text(arena, real, slash > real ? slash - real : 1);
  free(real);
  return OT_OK;
}

ot_status ot_tree_load(const char *path, ot_arena *arena, ot_node **out) {
  char *text;
  int64_t bytes;
  ot_tree_origin origin = {.name = ot_arena_text(arena, path, ot_text_length(path))};
  OT_TRY(ot_disk_read(arena, path, OT_TREE_BYTES_MAX, &text, &bytes));
  OT_TRY(directory_of(path, arena, &origin.directory));
  if (ot_text_ends_with(path, ".json")) return ot_tree_parse_json(&origin, text, bytes, arena, out);
  return ot_tree_parse_yaml(&origin, text, bytes, arena, out);
}
