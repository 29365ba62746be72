// SPDX-License-Identifier: Apache-2.0
#include "record/heartbeat.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "files/disk.h"
#include "host/clock.h"

static const double every_s = 0.5;

struct ot_heartbeat {
  char path[OT_PATH_BYTES];
  int file;
  double next_s;
};

static int open_file(const char *path) {
  return open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
}

ot_status ot_heartbeat_create(const char *output, ot_heartbeat **out) {
  ot_heartbeat *const made = calloc(1, sizeof *made);
  *out = made;
  OT_CHECK(made, OT_ENVIRONMENT, "out of memory (%s)", output);
  char *const path = made->path;
  ot_text_format(path, OT_PATH_BYTES, "%s/" OT_HEARTBEAT_FILE, output);
  made->file = open_file(path);
  if (made->file < 0) {
    const ot_status status = ot_disk_fail("create", path, errno);
    ot_heartbeat_destroy(out);
    return status;
  }
  ot_heartbeat_beat(*out);
  return OT_OK;
}

void ot_heartbeat_destroy(ot_heartbeat **heartbeat) {
  if (!*heartbeat) return;
  if ((*heartbeat)->file >= 0) close((*heartbeat)->file);
  free(*heartbeat);
  *heartbeat = NULL;
}

void ot_heartbeat_beat(ot_heartbeat *heartbeat) {
  if (!heartbeat) return;
  const double now = ot_clock_s();
  if (now < heartbeat->next_s) return;
  heartbeat->next_s = now + every_s;
  struct stat own;
  if (fstat(heartbeat->file, &own) != 0 || own.st_nlink == 0) {  // somebody removed it
    if (heartbeat->file >= 0) close(heartbeat->file);
    heartbeat->file = open_file(heartbeat->path);
  }
  (void)futimens(heartbeat->file, NULL);
}

// ---- looking ----

static uint64_t hash_file(uint64_t hash, const char *path) {
  struct stat about;
  if (stat(path, &about) != 0) return hash;
  const int64_t seen[] = {about.st_size, about.st_mtim.tv_sec, about.st_mtim.tv_nsec,
                          (int64_t)about.st_ino};
  return ot_hash_bytes(hash, seen, sizeof seen);
}

static uint64_t hash_folder(uint64_t hash, const char *path) {
  DIR *const folder = opendir(path);
  if (!folder) return hash;
  for (const struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
    char file[OT_PATH_BYTES];
    ot_text_format(file, sizeof file, "%s/%s", path, entry->d_name);
    hash = hash_file(hash, file);
  }
  closedir(folder);
  return hash;
}

// Files of a checkpoint that is being written grow.
static uint64_t hash_saves(uint64_t hash, const char *checkpoints) {
  DIR *const folder = opendir(checkpoints);
  if (!folder) return hash;
  for (const struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
    char path[OT_PATH_BYTES];
    if (!ot_text_starts_with(entry->d_name, ".step-")) continue;
    ot_text_format(path, sizeof path, "%s/%s", checkpoints, entry->d_name);
    hash = hash_folder(hash, path);
  }
  closedir(folder);
  return hash_file(hash, checkpoints);
}

uint64_t ot_heartbeat_look_steps(const char *output) {
  char path[OT_PATH_BYTES];
  ot_text_format(path, sizeof path, "%s/" OT_HEARTBEAT_FILE, output);
  return hash_file(0, path);
}

uint64_t ot_heartbeat_look(const char *output) {
  char path[OT_PATH_BYTES];
  uint64_t hash = ot_heartbeat_look_steps(output);
  ot_text_format(path, sizeof path, "%s/metrics.jsonl", output);
  hash = hash_file(hash, path);
  ot_text_format(path, sizeof path, "%s/checkpoints", output);
  return hash_saves(hash, path);
}
