// SPDX-License-Identifier: Apache-2.0
// flock on a file inside; the file itself stays, empty of meaning when nobody holds the lock.
#include "train/run_directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/text.h"
#include "device/heap.h"
#include "train/checkpoint_list.h"
#include "train/disk.h"

static const char lock_name[] = ".lock";
enum { HOLDER_BYTES = 256 };

struct ot_run_directory {
  ot_heap heap;
  ot_arena arena;
  const char *path;
  int lock;  // -1: not held
  ot_run_directory_state found;
  const char *checkpoints, *tensorboard, *metrics, *config;
};

static ot_status lock_taken(const char *path, int lock) {
  char holder[HOLDER_BYTES] = "";
  const ssize_t length = pread(lock, holder, sizeof holder - 1, 0);
  if (length <= 0) ot_text_format(holder, sizeof holder, "another process");
  ot_fail(OT_ENVIRONMENT, "the run directory is in use by %s (%s)", holder, path);
  return ot_fail_hint(OT_ENVIRONMENT, "wait for it, or choose another `output`");
}

// The text is for people; the lock is the kernel's.
static ot_status write_holder(const char *path, int lock) {
  char host[HOLDER_BYTES / 2] = "?";
  gethostname(host, sizeof host - 1);
  char holder[HOLDER_BYTES];
  const int64_t length =
      ot_text_format(holder, sizeof holder, "process %lld on %s", (long long)getpid(), host);
  if (ftruncate(lock, 0) != 0) return ot_disk_fail("write", path, errno);
  return ot_disk_write_at(lock, path, 0, holder, length);
}

static ot_status take_lock(ot_run_directory *run) {
  const char *const path = ot_disk_join(&run->arena, run->path, lock_name);
  run->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (run->lock < 0) return ot_disk_fail("create", path, errno);
  if (flock(run->lock, LOCK_EX | LOCK_NB) == 0) return write_holder(path, run->lock);
  if (errno == EWOULDBLOCK) return lock_taken(run->path, run->lock);
  return ot_disk_fail("lock", path, errno);
}

// Counts the entries of `path` that are not named in `known` [num_known]; an absent directory has
// none.
static ot_status count_entries(const char *path, const char *const *known, int num_known,
                               int64_t *count) {
  *count = 0;
  DIR *const directory = opendir(path);
  if (directory == NULL)
    return errno == ENOENT ? OT_OK : ot_disk_fail("list directory", path, errno);
  for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
    bool is_known = ot_text_equal(entry->d_name, ".") || ot_text_equal(entry->d_name, "..");
    for (int i = 0; i < num_known && !is_known; i++)
      is_known = ot_text_equal(entry->d_name, known[i]);
    *count += !is_known;
  }
  closedir(directory);
  return OT_OK;
}

static ot_status look_around(ot_run_directory *run) {
  static const char *const own[] = {lock_name, "checkpoints", "tensorboard"};
  int64_t num_checkpoints = 0, num_others = 0;
  OT_TRY(count_entries(run->checkpoints, NULL, 0, &num_checkpoints));
  OT_TRY(count_entries(run->path, own, 3, &num_others));
  if (num_others > 0) run->found = OT_RUN_FOREIGN;
  if (num_checkpoints > 0 || ot_disk_is_file(run->config) || ot_disk_is_file(run->metrics))
    run->found = OT_RUN_PRESENT;
  return OT_OK;
}

static ot_status open_run(ot_run_directory *run) {
  OT_TRY(ot_disk_make_directory(run->path));
  OT_TRY(take_lock(run));
  OT_TRY(ot_checkpoint_clean(&run->arena, run->checkpoints));
  OT_TRY(look_around(run));
  OT_TRY(ot_disk_make_directory(run->checkpoints));
  return ot_disk_make_directory(run->tensorboard);
}

ot_status ot_run_directory_create(const char *path, ot_run_directory **out) {
  ot_run_directory *run = calloc(1, sizeof *run);
  OT_CHECK(run != NULL, OT_ENVIRONMENT, "out of memory (%s)", path);
  ot_arena *const arena = &run->arena;
  *arena = ot_heap_arena_create(&run->heap);
  run->lock = -1;
  run->found = OT_RUN_EMPTY;
  run->path = ot_arena_text(arena, path, ot_text_length(path));
  run->checkpoints = ot_disk_join(arena, path, "checkpoints");
  run->tensorboard = ot_disk_join(arena, path, "tensorboard");
  run->metrics = ot_disk_join(arena, path, "metrics.jsonl");
  run->config = ot_disk_join(arena, path, "config.yaml");
  const ot_status status = open_run(run);
  if (status != OT_OK) ot_run_directory_destroy(&run);
  *out = run;
  return status;
}

void ot_run_directory_destroy(ot_run_directory **directory) {
  if (*directory == NULL) return;
  if ((*directory)->lock >= 0) close((*directory)->lock);
  ot_heap_release(&(*directory)->heap);
  free(*directory);
  *directory = NULL;
}

ot_run_directory_state ot_run_directory_found(const ot_run_directory *directory) {
  return directory->found;
}

const char *ot_run_directory_path(const ot_run_directory *directory) { return directory->path; }

const char *ot_run_directory_checkpoints(const ot_run_directory *directory) {
  return directory->checkpoints;
}

const char *ot_run_directory_tensorboard(const ot_run_directory *directory) {
  return directory->tensorboard;
}

const char *ot_run_directory_metrics(const ot_run_directory *directory) {
  return directory->metrics;
}

const char *ot_run_directory_config(const ot_run_directory *directory) { return directory->config; }
