// SPDX-License-Identifier: Apache-2.0
// Temporary files of tests. A directory is locked as long as its process lives. What tests leave
// that fail, or are killed, is removed at the end of the process or by the next one.
#include "support/scratch.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/status.h"
#include "files/disk.h"

// The directories of this process: as many as a test has at one time.
enum { KEPT = 16, UNLOCKED_S = 60 };
typedef struct kept_directory {
  char path[SCRATCH_BYTES];  // "": none
  int lock;
} kept_directory;
static kept_directory kept[KEPT];
static pid_t owner;  // forked processes own nothing

static const char prefix[] = "ot-scratch-";

static bool lock_directory(const char *path, int *lock) {
  *lock = ot_disk_open_file(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (*lock < 0) return false;
  if (flock(*lock, LOCK_EX | LOCK_NB) == 0) return true;
  (void)ot_disk_close(*lock, path);
  return false;
}

// A process makes its directory before it locks it.
static void remove_left(const char *path) {
  struct stat info;
  int lock;
  const bool own = lstat(path, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid();
  if (!own || time(NULL) - info.st_ctime < UNLOCKED_S || !lock_directory(path, &lock)) return;
  (void)ot_disk_remove(path);
  (void)ot_disk_close(lock, path);
}

static void remove_all_left(const char *root) {
  char path[SCRATCH_BYTES + 256];
  DIR *const entries = opendir(root);
  if (!entries) return;
  for (const struct dirent *entry; (entry = readdir(entries)) != NULL;) {
    if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0) continue;
    snprintf(path, sizeof path, "%s/%s", root, entry->d_name);
    remove_left(path);
  }
  closedir(entries);
}

static void remove_kept(void) {
  for (int i = 0; i < KEPT && getpid() == owner; i++)
    if (kept[i].path[0]) (void)ot_disk_remove(kept[i].path);
}

static void keep(const char *path) {
  for (int i = 0; i < KEPT; i++) {
    if (kept[i].path[0]) continue;
    if (lock_directory(path, &kept[i].lock)) snprintf(kept[i].path, SCRATCH_BYTES, "%s", path);
    return;
  }
}

static void forget(const char *path) {
  for (int i = 0; i < KEPT; i++) {
    if (strcmp(kept[i].path, path) != 0) continue;
    (void)ot_disk_close(kept[i].lock, path);
    kept[i].path[0] = '\0';
  }
}

void scratch_create(char path[SCRATCH_BYTES]) {
  const char *root = getenv("TMPDIR");
  if (root == NULL) root = ot_disk_is_directory("/dev/shm") ? "/dev/shm" : "/tmp";
  if (owner == 0) {
    owner = getpid();
    remove_all_left(root);
    assert_int_equal(atexit(remove_kept), 0);
  }
  snprintf(path, SCRATCH_BYTES, "%s/%sXXXXXX", root, prefix);
  assert_non_null(mkdtemp(path));
  char *const resolved = realpath(path, NULL);
  assert_non_null(resolved);
  snprintf(path, SCRATCH_BYTES, "%s", resolved);
  free(resolved);
  keep(path);
}

void scratch_destroy(const char *path) {
  assert_int_equal(ot_disk_remove(path), OT_OK);
  forget(path);
}

static char *path_slot(void) {
  enum { SLOTS = 64 };
  static char paths[SLOTS][OT_PATH_BYTES];
  static int next;
  next = (next + 1) % SLOTS;
  return paths[next];
}

const char *scratch_path(const char *directory, const char *name) {
  char *const path = path_slot();
  snprintf(path, OT_PATH_BYTES, "%s/%s", directory, name);
  return path;
}

const char *source_directory(void) {
  const char *const given = getenv("OT_TEST_SOURCE");
  return given ? given : OT_SOURCE_DIR;
}

const char *fixture_path(const char *name) {
  char *const path = path_slot();
  snprintf(path, OT_PATH_BYTES, "%s/tests/fixtures/%s", source_directory(), name);
  return path;
}

char *scratch_read(const char *path, int64_t *bytes) {
  FILE *const file = fopen(path, "rb");
  if (file == NULL) fail_msg("cannot open %s", path);
  fseek(file, 0, SEEK_END);
  *bytes = ftell(file);
  rewind(file);
  char *const data = malloc((size_t)(*bytes > 0 ? *bytes : 1));
  assert_non_null(data);
  assert_int_equal(fread(data, 1, (size_t)*bytes, file), *bytes);
  fclose(file);
  return data;
}

void scratch_write(const char *path, const void *data, int64_t bytes) {
  FILE *const file = fopen(path, "wb");
  if (file == NULL) fail_msg("cannot create %s", path);
  assert_int_equal(fwrite(data, 1, (size_t)bytes, file), bytes);
  assert_int_equal(fclose(file), 0);
}

void assert_files_equal(const char *path, const char *expected_path) {
  int64_t bytes, expected_bytes;
  char *const data = scratch_read(path, &bytes);
  char *const expected = scratch_read(expected_path, &expected_bytes);
  assert_int_equal(bytes, expected_bytes);
  assert_memory_equal(data, expected, (size_t)bytes);
  free(data);
  free(expected);
}

void assert_message_has(const char *part) {
  if (strstr(ot_fail_message(), part) == NULL)
    fail_msg("message \"%s\" lacks \"%s\"", ot_fail_message(), part);
}
