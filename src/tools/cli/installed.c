// SPDX-License-Identifier: Apache-2.0
// Finds presets without configuration: the first folder that holds a name wins. The page is found
// in the same way.
#include "cli/installed.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "files/disk.h"

enum { MAX_DIRECTORIES = 4 };

// The directory of the running program, or null.
static const char *program_directory(ot_arena *arena) {
  const char *const path = ot_disk_own_program(arena);
  const char *const slash = path ? strrchr(path, '/') : NULL;
  return slash ? ot_arena_text(arena, path, slash - path) : NULL;
}

const char *ot_installed_user_directory(ot_arena *arena) {
  const char *const config = getenv("XDG_CONFIG_HOME");
  if (config && config[0] == '/') return ot_arena_format(arena, "%s/orthant", config);
  const char *const home = getenv("HOME");
  if (!home || home[0] != '/') return NULL;
  return ot_arena_format(arena, "%s/.config/orthant", home);
}

static void add(const char **directories, int *count, const char *directory, ot_arena *arena) {
  char *const real = directory ? realpath(directory, NULL) : NULL;
  if (!real) return;
  directories[(*count)++] = ot_arena_text(arena, real, ot_text_length(real));
  free(real);
}

ot_presets ot_installed_presets(ot_arena *arena) {
  const char **const directories = ot_arena_array(arena, MAX_DIRECTORIES, sizeof(char *));
  int count = 0;
  const char *const program = program_directory(arena);
  if (program) {
    add(directories, &count, ot_arena_format(arena, "%s/../presets", program), arena);
    add(directories, &count, ot_arena_format(arena, "%s/../share/orthant/presets", program), arena);
  }
  add(directories, &count, OT_PRESETS_BUILD, arena);
  add(directories, &count, ot_installed_user_directory(arena), arena);
  return (ot_presets){.directories = directories, .num_directories = count};
}

const char *ot_installed_page(ot_arena *arena) {
  static const char *const places[] = {"page/orthant.html", "../share/orthant/page/orthant.html"};
  const char *const program = program_directory(arena);
  for (int i = 0; program && i < OT_COUNT(places); i++) {
    const char *const path = ot_arena_format(arena, "%s/%s", program, places[i]);
    if (ot_disk_is_file(path)) return path;
  }
  return NULL;
}
