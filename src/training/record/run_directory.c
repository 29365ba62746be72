// SPDX-License-Identifier: Apache-2.0
// flock on a file in the directory; the file remains, without meaning once the lock is released.
#include "record/run_directory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/failure.h"
#include "base/text.h"
#include "checkpoint/checkpoint_list.h"
#include "files/disk.h"
#include "files/output_file.h"
#include "host/heap.h"
#include "record/heartbeat.h"
#include "record/metrics.h"

static const char lock_name[] = ".lock";
static const char saved_name[] = ".saved";
static const char history_name[] = ".history";
enum { HOLDER_BYTES = 256, ASIDE_MAX = 100000, ORIGIN_BYTES_MAX = 1 << 20 };

struct ot_run_directory {
  ot_heap heap;
  ot_arena arena;
  const char *path;
  int lock;  // -1: not held
  ot_run_directory_state found;
  const char *checkpoints, *tensorboard, *metrics, *events, *config, *saved, *history;
  int64_t lost;      // events
  ot_failure first;  // of them
};

static ot_status lock_taken(const char *path, int lock) {
  char holder[HOLDER_BYTES] = "";
  const ssize_t length = pread(lock, holder, sizeof holder - 1, 0);
  if (length <= 0) ot_text_format(holder, sizeof holder, "another process");
  ot_fail(OT_ENVIRONMENT, "the run directory is in use by %s (%s)", holder, path);
  return ot_fail_hint(OT_ENVIRONMENT, "wait for it, or choose another `output`");
}

// The text is for users; the lock is the kernel's.
static ot_status write_holder(const char *path, int lock) {
  char host[HOLDER_BYTES / 2] = "?";
  gethostname(host, sizeof host - 1);
  char holder[HOLDER_BYTES];
  const int64_t length =
      ot_text_format(holder, sizeof holder, "process %lld on %s", (long long)getpid(), host);
  if (ftruncate(lock, 0) != 0) return ot_disk_fail("write", path, errno);
  return ot_disk_write_at(lock, path, 0, holder, length);
}

static ot_status acquire_lock(ot_run_directory *run) {
  const char *const path = ot_disk_join(&run->arena, run->path, lock_name);
  run->lock = ot_disk_open_file(path, O_RDWR | O_CREAT);
  if (run->lock < 0) return ot_disk_fail("create", path, errno);
  if (flock(run->lock, LOCK_EX | LOCK_NB) == 0) return write_holder(path, run->lock);
  if (errno == EWOULDBLOCK) return lock_taken(run->path, run->lock);
  return ot_disk_fail("lock", path, errno);
}

static bool is_own(const char *name) {
  static const char *const own[] = {lock_name,          saved_name,        history_name,
                                    OT_RUN_EVENTS_FILE, OT_HEARTBEAT_FILE, "checkpoints",
                                    "tensorboard"};
  for (int i = 0; i < OT_COUNT(own); i++)
    if (ot_text_equal(name, own[i])) return true;
  return false;
}

static ot_status find_files(ot_run_directory *run) {
  ot_disk_names checkpoints, names;
  OT_TRY(ot_disk_list(&run->arena, run->checkpoints, &checkpoints));
  OT_TRY(ot_disk_list(&run->arena, run->path, &names));
  for (int64_t i = 0; i < names.count; i++)
    if (!is_own(names.name[i])) run->found = OT_RUN_FOREIGN;
  if (checkpoints.count > 0 || ot_disk_is_file(run->config) || ot_disk_is_file(run->metrics))
    run->found = OT_RUN_PRESENT;
  return OT_OK;
}

// Removes remains of an interrupted ot_output_file_replace or save.
static ot_status clear_partials(ot_run_directory *run) {
  const char *const replaced[] = {run->config, run->saved, run->history};
  for (int i = 0; i < OT_COUNT(replaced); i++)
    OT_TRY(ot_disk_remove(ot_arena_format(&run->arena, "%s.partial", replaced[i])));
  return ot_checkpoint_clean(&run->arena, run->checkpoints);
}

static ot_status open_run(ot_run_directory *run) {
  OT_TRY(ot_disk_make_directory(run->path));
  OT_TRY(acquire_lock(run));
  OT_TRY(clear_partials(run));
  OT_TRY(find_files(run));
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
  run->events = ot_disk_join(arena, path, OT_RUN_EVENTS_FILE);
  run->config = ot_disk_join(arena, path, "config.yaml");
  run->saved = ot_disk_join(arena, path, saved_name);
  run->history = ot_disk_join(arena, path, history_name);
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

ot_status ot_run_directory_steps(const ot_run_directory *directory, int64_t *steps) {
  return ot_metrics_newest(directory->metrics, steps);
}

bool ot_run_directory_saved(const ot_run_directory *directory) {
  return ot_disk_is_file(directory->saved);
}

ot_status ot_run_directory_set_saved(ot_run_directory *directory, const char *origin) {
  if (ot_run_directory_saved(directory)) return OT_OK;
  return ot_output_file_replace(directory->saved, origin, ot_text_length(origin));
}

ot_status ot_run_directory_clear_saved(ot_run_directory *directory) {
  return ot_disk_remove(directory->saved);
}

ot_run_history ot_run_directory_history(const ot_run_directory *directory) {
  unsigned long long number = 0;
  long long step = -1;
  FILE *const file = fopen(directory->history, "re");
  if (!file) return (ot_run_history){0, -1};
  if (fscanf(file, "%16llx %18lld", &number, &step) != 2) number = 0;
  (void)fclose(file);
  return (ot_run_history){number, step};
}

static ot_status write_history(const ot_run_directory *directory, const ot_run_history *history) {
  char text[64];
  const int64_t length =
      ot_text_format(text, sizeof text, "%016llx %lld\n", (unsigned long long)history->number,
                     (long long)history->saved_step);
  return ot_output_file_replace(directory->history, text, length);
}

ot_status ot_run_directory_draw_history(ot_run_directory *directory) {
  ot_run_history history = {.saved_step = -1};
  if (getrandom(&history.number, sizeof history.number, 0) != (ssize_t)sizeof history.number)
    return ot_disk_fail("draw a random number for", directory->history, errno);
  history.number |= 1;
  return write_history(directory, &history);
}

ot_status ot_run_directory_add_saved(ot_run_directory *directory, int64_t step) {
  const ot_run_history history = {ot_run_directory_history(directory).number, step};
  return history.number ? write_history(directory, &history) : OT_OK;
}

ot_status ot_run_directory_clear_history(ot_run_directory *directory) {
  return ot_disk_remove(directory->history);
}

ot_status ot_run_directory_began_with(const ot_run_directory *directory, const char *origin,
                                      ot_arena *arena, bool *began) {
  char *text = NULL;
  int64_t bytes = 0;
  *began = false;
  if (!ot_run_directory_saved(directory)) return OT_OK;
  OT_TRY(ot_disk_read(arena, directory->saved, ORIGIN_BYTES_MAX, &text, &bytes));
  *began = ot_text_equal(text, origin);
  return OT_OK;
}

// A new directory next to the checkpoints.
static ot_status make_aside(const ot_run_directory *run, ot_arena *arena, const char **aside) {
  for (int i = 1; i <= ASIDE_MAX; i++) {
    *aside = ot_arena_format(arena, "%s/aside-%d", run->checkpoints, i);
    if (mkdir(*aside, 0777) == 0) return OT_OK;
    if (errno != EEXIST) break;
  }
  return ot_disk_fail("create directory", *aside, errno);
}

// Moves the lines first: once the checkpoints are moved, nothing prevents truncating the lines.
static ot_status move_aside(const ot_run_directory *run, const ot_checkpoint_steps *newer,
                            int64_t step, ot_arena *arena, const char *aside) {
  OT_TRY(ot_metrics_copy_later(run->metrics, step, ot_disk_join(arena, aside, "metrics.jsonl")));
  for (int64_t i = 0; i < newer->count; i++) {
    const char *const from = ot_checkpoint_path(arena, run->checkpoints, newer->step[i]);
    const char *const to = ot_checkpoint_path(arena, aside, newer->step[i]);
    OT_TRY(ot_disk_rename(from, to));
  }
  OT_TRY(ot_disk_sync_directory(aside));
  return ot_disk_sync_directory(run->checkpoints);
}

ot_status ot_run_directory_rewind(const ot_run_directory *directory, int64_t step, ot_arena *arena,
                                  const char **note) {
  *note = NULL;
  ot_checkpoint_steps newer;
  OT_TRY(ot_checkpoint_list(arena, directory->checkpoints, &newer));
  while (newer.count > 0 && newer.step[newer.count - 1] <= step) newer.count--;
  if (newer.count == 0) return OT_OK;
  const char *aside = NULL;
  OT_TRY(make_aside(directory, arena, &aside));
  OT_TRY(move_aside(directory, &newer, step, arena, aside));
  *note =
      ot_arena_format(arena, "%lld newer checkpoint%s and the metrics after step %lld: now in %s",
                      (long long)newer.count, newer.count == 1 ? "" : "s", (long long)step, aside);
  return OT_OK;
}

void ot_run_directory_log(ot_run_directory *directory, const ot_run_event *event) {
  const ot_status status = ot_run_event_append(directory->events, event);
  directory->lost += status != OT_OK;
  ot_failure_take(&directory->first, status);
}

int64_t ot_run_directory_lost(const ot_run_directory *directory, const char **why) {
  *why = directory->lost > 0 ? directory->first.message : NULL;
  return directory->lost;
}

const char *ot_run_directory_checkpoints(const ot_run_directory *directory) {
  return directory->checkpoints;
}

const char *ot_run_directory_tensorboard(const ot_run_directory *directory) {
  return directory->tensorboard;
}

const char *ot_run_directory_metrics(const ot_run_directory *directory) {
  return directory->metrics;
}

const char *ot_run_directory_events(const ot_run_directory *directory) { return directory->events; }

const char *ot_run_directory_config(const ot_run_directory *directory) { return directory->config; }
