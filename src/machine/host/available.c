// SPDX-License-Identifier: Apache-2.0
// /proc/self/cgroup has the group of the process by hierarchy, /proc/self/mountinfo where these are
// mounted, and which group is the root of the mount: that of a container is not that of the host.
#include "host/available.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { LINE_BYTES = 8192, PATH_BYTES = 4096 };

// ---- control groups ----

// The number in a file; INT64_MAX for "max", for what version 1 has as no limit, and for no file.
static int64_t read_limit(const char *directory, const char *name) {
  char path[PATH_BYTES + 64], line[64];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  FILE *const file = fopen(path, "re");
  const bool read = file && fgets(line, sizeof line, file);
  if (file) fclose(file);
  if (!read || line[0] < '0' || line[0] > '9') return INT64_MAX;
  const unsigned long long value = strtoull(line, NULL, 10);
  return value < (unsigned long long)INT64_MAX / 2 ? (int64_t)value : INT64_MAX;
}

// The least limit of `directory` and those above it, up to its first `root` bytes.
static int64_t least_limit(char *directory, size_t root, const char *name) {
  int64_t least = INT64_MAX;
  for (;;) {
    const int64_t limit = read_limit(directory, name);
    if (limit < least) least = limit;
    char *const slash = strrchr(directory, '/');
    if (!slash || (size_t)(slash - directory) < root) return least;
    *slash = '\0';
  }
}

// The group of the process in the hierarchy of version 2, or that with the memory of version 1.
static bool find_group(bool second, char group[PATH_BYTES]) {
  char line[LINE_BYTES];
  bool found = false;
  FILE *const file = fopen("/proc/self/cgroup", "re");
  while (file && !found && fgets(line, sizeof line, file)) {
    char *const names = strchr(line, ':');
    char *const path = names ? strchr(names + 1, ':') : NULL;
    if (!path) continue;
    *path = '\0';
    path[1 + strcspn(path + 1, "\n")] = '\0';
    const char *const memory = strstr(names + 1, "memory");
    found = second ? names[1] == '\0' : memory != NULL;
    snprintf(group, PATH_BYTES, "%s", path + 1);
  }
  if (file) fclose(file);
  return found;
}

// The limit by one line of mountinfo:
//   ID PARENT DEVICE ROOT PLACE OPTIONS [FIELDS] - TYPE SOURCE OPTIONS
static int64_t limit_of_mount(char *line) {
  char root[PATH_BYTES], place[PATH_BYTES], group[PATH_BYTES], type[64], options[PATH_BYTES];
  const char *const end = strstr(line, " - ");
  if (!end || sscanf(line, "%*s %*s %*s %4095s %4095s", root, place) != 2) return INT64_MAX;
  if (sscanf(end, " - %63s %*s %4095s", type, options) != 2) return INT64_MAX;
  const bool second = strcmp(type, "cgroup2") == 0;
  if (!second && (strcmp(type, "cgroup") != 0 || !strstr(options, "memory"))) return INT64_MAX;
  const size_t top = strlen(place), skipped = strcmp(root, "/") == 0 ? 0 : strlen(root);
  // A group beside the root of the mount is not seen: the root then stands for it.
  const bool inside = find_group(second, group) && strncmp(group, root, skipped) == 0;
  const char *const below = inside ? group + skipped : "";
  if (top + strlen(below) >= PATH_BYTES) return INT64_MAX;
  if (strcmp(below, "/") != 0) strcpy(place + top, below);
  return least_limit(place, top, second ? "memory.max" : "memory.limit_in_bytes");
}

int64_t ot_host_group_limit_bytes(void) {
  char line[LINE_BYTES];
  int64_t least = INT64_MAX;
  FILE *const file = fopen("/proc/self/mountinfo", "re");
  while (file && fgets(line, sizeof line, file)) {
    const int64_t limit = limit_of_mount(line);
    if (limit < least) least = limit;
  }
  if (file) fclose(file);
  return least;
}

// ---- the machine and the process ----

int64_t ot_host_memory_bytes(const char **what) {
  const int64_t machine = (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGESIZE);
  const int64_t group = ot_host_group_limit_bytes();
  if (what) *what = group < machine ? "its control group (cgroup) may use" : "this machine has";
  return group < machine ? group : machine;
}

int64_t ot_host_available_bytes(void) {
  char line[256];
  long long kib = -1;
  const int64_t group = ot_host_group_limit_bytes();
  FILE *const file = fopen("/proc/meminfo", "re");
  if (!file) return group;
  while (kib < 0 && fgets(line, sizeof line, file))
    if (sscanf(line, "MemAvailable: %lld kB", &kib) != 1) kib = -1;
  (void)fclose(file);
  return kib < 0 || kib > group / 1024 ? group : (int64_t)kib * 1024;
}

int64_t ot_host_resident_bytes(void) {
  long long pages = 0;
  FILE *const file = fopen("/proc/self/statm", "re");
  if (!file) return 0;
  if (fscanf(file, "%*s %lld", &pages) != 1) pages = 0;
  fclose(file);
  return pages * (int64_t)sysconf(_SC_PAGESIZE);
}

int64_t ot_host_address_limit_bytes(char *option) {
  struct rlimit space, data;
  int64_t least = INT64_MAX;
  if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur < (rlim_t)least) {
    least = (int64_t)space.rlim_cur;
    *option = 'v';
  }
  if (getrlimit(RLIMIT_DATA, &data) == 0 && data.rlim_cur < (rlim_t)least) {
    least = (int64_t)data.rlim_cur;
    *option = 'd';
  }
  return least;
}
