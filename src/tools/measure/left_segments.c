// SPDX-License-Identifier: Apache-2.0
// Only the segments of this user: those of others may be mapped by processes that /proc hides.
#include "measure/left_segments.h"

#include <dirent.h>
#include <fnmatch.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"

enum { LINE_BYTES = 8192 };

static const char directory[] = "/dev/shm";

// The names that Open MPI 4 and 5 give to segments.
static bool is_segment(const char *name) {
  return fnmatch("vader_segment.*", name, 0) == 0 || fnmatch("sm_segment.*", name, 0) == 0;
}

static bool maps(const char *process, const char *path) {
  char file[320], line[LINE_BYTES];
  snprintf(file, sizeof file, "/proc/%s/maps", process);
  FILE *const list = fopen(file, "r");
  bool found = false;
  if (!list) return false;
  while (!found && fgets(line, sizeof line, list)) found = strstr(line, path) != NULL;
  fclose(list);
  return found;
}

static bool is_mapped(const char *path) {
  DIR *const processes = opendir("/proc");
  bool found = false;
  if (!processes) return true;
  for (const struct dirent *entry = readdir(processes); entry && !found;
       entry = readdir(processes)) {
    if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9') found = maps(entry->d_name, path);
  }
  closedir(processes);
  return found;
}

ot_left_segments ot_left_segments_find(void) {
  ot_left_segments left = {0};
  DIR *const all = opendir(directory);
  if (!all) return left;
  for (const struct dirent *entry = readdir(all); entry; entry = readdir(all)) {
    char path[320];
    struct stat about;
    snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
    if (!is_segment(entry->d_name) || stat(path, &about) != 0) continue;
    if (about.st_uid != getuid() || is_mapped(path)) continue;
    left.count++;
    left.bytes += (int64_t)about.st_blocks * 512;
  }
  closedir(all);
  return left;
}
