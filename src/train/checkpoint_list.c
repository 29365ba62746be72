// SPDX-License-Identifier: Apache-2.0
// Scanning a directory of checkpoints. Nothing is deleted in place: a checkpoint is renamed to a
// hidden name first, so that one that is half gone is never taken for a whole one.
#include "train/checkpoint_list.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "train/checkpoint.h"
#include "train/disk.h"

static const char prefix[] = "step-";
enum { PREFIX_LENGTH = sizeof prefix - 1, STEP_DIGITS = 8, STEP_DIGITS_MAX = 18 };

typedef struct step_list {
  int64_t *steps;  // [count], newest first
  int64_t count, capacity;
} step_list;

// "step-00000100" -> 100; -1 for any other name.
static int64_t step_of_name(const char *name) {
  if (!ot_text_starts_with(name, prefix)) return -1;
  int64_t step = 0;
  int digits = 0;
  for (const char *c = name + PREFIX_LENGTH; *c != '\0'; c++, digits++) {
    if (*c < '0' || *c > '9' || digits == STEP_DIGITS_MAX) return -1;
    step = 10 * step + (*c - '0');
  }
  const bool plain = digits == STEP_DIGITS || (digits > STEP_DIGITS && name[PREFIX_LENGTH] != '0');
  return plain ? step : -1;
}

static int newest_first(const void *a, const void *b) {
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x < y) - (x > y);
}

static ot_status list_steps(ot_arena *arena, const char *path, step_list *list) {
  *list = (step_list){0};
  DIR *const directory = opendir(path);
  if (directory == NULL)
    return errno == ENOENT ? OT_OK : ot_disk_fail("list directory", path, errno);
  for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
    const int64_t step = step_of_name(entry->d_name);
    if (step < 0) continue;
    list->steps =
        ot_arena_grow(arena, list->steps, list->count, &list->capacity, sizeof *list->steps);
    list->steps[list->count++] = step;
  }
  closedir(directory);
  if (list->count > 0) qsort(list->steps, (size_t)list->count, sizeof *list->steps, newest_first);
  return OT_OK;
}

static ot_status check_complete(ot_arena *arena, const char *path, int64_t step) {
  ot_manifest manifest;
  OT_TRY(ot_checkpoint_check(arena, path, false, &manifest));
  OT_CHECK(manifest.step == step, OT_ENVIRONMENT, "its manifest is of step %lld (%s)",
           (long long)manifest.step, path);
  return OT_OK;
}

ot_status ot_checkpoint_newest(ot_arena *arena, const char *directory, ot_checkpoint_found *found) {
  *found = (ot_checkpoint_found){0};
  step_list list;
  OT_TRY(list_steps(arena, directory, &list));
  for (int64_t i = 0; i < list.count; i++) {
    char *const path = ot_checkpoint_path(arena, directory, list.steps[i]);
    if (check_complete(arena, path, list.steps[i]) == OT_OK) {
      found->path = path;
      found->step = list.steps[i];
      return OT_OK;
    }
    if (found->num_damaged++ == 0) found->damage = ot_arena_format(arena, "%s", ot_fail_message());
  }
  return OT_OK;
}

ot_status ot_checkpoint_resolve(ot_arena *arena, const char *path, char **resolved) {
  char *const checkpoints = ot_disk_join(arena, path, "checkpoints");
  if (!ot_disk_is_directory(checkpoints)) {
    OT_CHECK(ot_disk_is_directory(path) || ot_disk_is_file(path), OT_ENVIRONMENT,
             "there is no checkpoint, run or HF directory of this name (%s)", path);
    *resolved = ot_arena_text(arena, path, ot_text_length(path));
    return OT_OK;
  }
  ot_checkpoint_found found;
  OT_TRY(ot_checkpoint_newest(arena, checkpoints, &found));
  OT_CHECK(found.path != NULL || found.num_damaged == 0, OT_ENVIRONMENT,
           "the run has no whole checkpoint: %s", found.damage);
  OT_CHECK(found.path != NULL, OT_ENVIRONMENT, "the run has no checkpoint yet (%s)", path);
  *resolved = found.path;
  return OT_OK;
}

static ot_status remove_checkpoint(ot_arena *arena, const char *directory, const char *path) {
  const char *const name = ot_arena_format(arena, ".%s.deleting", ot_disk_base_name(path));
  const char *const hidden = ot_disk_join(arena, directory, name);
  OT_TRY(ot_disk_remove(hidden));
  if (rename(path, hidden) != 0) return ot_disk_fail("remove", path, errno);
  return ot_disk_remove(hidden);
}

ot_status ot_checkpoint_prune(ot_arena *arena, const char *directory, int64_t keep) {
  if (keep <= 0) return OT_OK;
  step_list list;
  OT_TRY(list_steps(arena, directory, &list));
  int64_t complete = 0;
  for (int64_t i = 0; i < list.count; i++) {
    const char *const path = ot_checkpoint_path(arena, directory, list.steps[i]);
    if (complete >= keep)
      OT_TRY(remove_checkpoint(arena, directory, path));
    else if (check_complete(arena, path, list.steps[i]) == OT_OK)
      complete++;
  }
  return OT_OK;
}

ot_status ot_checkpoint_clean(ot_arena *arena, const char *directory) {
  DIR *const handle = opendir(directory);
  if (handle == NULL)
    return errno == ENOENT ? OT_OK : ot_disk_fail("list directory", directory, errno);
  ot_status status = OT_OK;
  for (struct dirent *entry; status == OT_OK && (entry = readdir(handle)) != NULL;) {
    const char *const name = entry->d_name;
    const bool left = ot_text_starts_with(name, ".step-") &&
                      (ot_text_ends_with(name, ".partial") ||
                       ot_text_ends_with(name, ".deleting") || ot_text_ends_with(name, ".old"));
    if (left) status = ot_disk_remove(ot_disk_join(arena, directory, name));
  }
  closedir(handle);
  return status;
}
