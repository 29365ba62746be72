// SPDX-License-Identifier: Apache-2.0
// A recursive walk with sorted names.
#include "data/corpus_files.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "files/disk.h"

// A chain of links could lead round for ever; no real tree is this deep.
enum { MAX_DEPTH = 64 };

static int compare_names(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static ot_status read_names(const char *path, ot_file_list *names, ot_arena *arena) {
  DIR *const directory = opendir(path);
  if (!directory) return ot_disk_fail("read directory", path, errno);
  errno = 0;
  for (struct dirent *entry = readdir(directory); entry; entry = readdir(directory)) {
    if (entry->d_name[0] == '.') continue;
    names->paths =
        ot_arena_grow(arena, names->paths, names->count, &names->capacity, sizeof *names->paths);
    names->paths[names->count++] = ot_arena_format(arena, "%s", entry->d_name);
  }
  const int error = errno;
  closedir(directory);
  if (error) return ot_disk_fail("read directory", path, error);
  if (names->count > 0) {
    qsort(names->paths, (size_t)names->count, sizeof *names->paths, compare_names);
  }
  return OT_OK;
}

static ot_status add(ot_file_list *list, const char *path, int depth, ot_arena *arena) {
  struct stat about;
  if (stat(path, &about) != 0) return ot_disk_fail("read", path, errno);
  if (!S_ISDIR(about.st_mode)) {
    // Below a directory, sockets and devices are passed over; a pipe given by name is read.
    if (depth > 0 && !S_ISREG(about.st_mode)) return OT_OK;
    list->paths =
        ot_arena_grow(arena, list->paths, list->count, &list->capacity, sizeof *list->paths);
    list->paths[list->count++] = path;
    return OT_OK;
  }
  OT_CHECK(depth < MAX_DEPTH, OT_ENVIRONMENT, "directories are nested deeper than %d (%s)",
           MAX_DEPTH, path);
  ot_file_list names = {0};
  OT_TRY(read_names(path, &names, arena));
  for (int64_t i = 0; i < names.count; i++) {
    OT_TRY(add(list, ot_disk_join(arena, path, names.paths[i]), depth + 1, arena));
  }
  return OT_OK;
}

ot_status ot_file_list_add(ot_file_list *list, const char *path, ot_arena *arena) {
  return add(list, ot_arena_text(arena, path, (int64_t)strlen(path)), 0, arena);
}
