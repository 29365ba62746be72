// SPDX-License-Identifier: Apache-2.0
// Lists the checkpoints of a directory. Nothing is deleted in place: a checkpoint is first renamed
// to a hidden name, so that a partly deleted one is never mistaken for a complete one.
#include "checkpoint/checkpoint_list.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "base/text_builder.h"
#include "files/disk.h"

enum { MOST_NAMED = 8 };

static int newest_first(const void *a, const void *b) {
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x < y) - (x > y);
}

ot_status ot_checkpoint_list(ot_arena *arena, const char *directory, ot_checkpoint_steps *steps) {
  ot_disk_names names;
  OT_TRY(ot_disk_list(arena, directory, &names));
  *steps = (ot_checkpoint_steps){.step = ot_arena_array(arena, names.count, sizeof *steps->step)};
  for (int64_t i = 0; i < names.count; i++) {
    const int64_t step = ot_checkpoint_step_of_name(names.name[i]);
    if (step >= 0) steps->step[steps->count++] = step;
  }
  if (steps->count > 0) qsort(steps->step, (size_t)steps->count, sizeof *steps->step, newest_first);
  return OT_OK;
}

// ---- which checkpoint to read ----

typedef struct candidate {
  const char *path;
  ot_manifest manifest;
  const char *damage;  // null: none
} candidate;

static ot_status inspect(ot_arena *arena, ot_checkpoint_hashes hashes, candidate *c) {
  if (ot_checkpoint_inspect(arena, c->path, hashes, &c->manifest, &c->damage) == OT_OK)
    return OT_OK;
  return ot_fail_hint(OT_ENVIRONMENT,
                      "make it readable; to use an older checkpoint, move %s elsewhere", c->path);
}

void ot_checkpoint_damage_add(ot_arena *arena, ot_checkpoint_damage_list *list, int64_t step,
                              const char *message) {
  static const char prefix[] = "checkpoint is damaged: ";
  const char *const found = ot_text_find(message, prefix);
  const char *const text = found != NULL ? found + ot_text_length(prefix) : message;
  int64_t *const steps = ot_arena_array(arena, list->count + 1, sizeof *steps);
  const char **const texts = ot_arena_array(arena, list->count + 1, sizeof *texts);
  for (int64_t i = 0; i < list->count; i++) {
    steps[i] = list->step[i];
    texts[i] = list->text[i];
  }
  steps[list->count] = step;
  texts[list->count] = ot_arena_text(arena, text, ot_text_length(text));
  *list = (ot_checkpoint_damage_list){list->count + 1, steps, texts};
}

static const char *known_damage(const ot_checkpoint_search *search, int64_t step) {
  for (int64_t i = 0; search->known && i < search->known->count; i++)
    if (search->known->step[i] == step) return search->known->text[i];
  return NULL;
}

static ot_status inspect_step(ot_arena *arena, const ot_checkpoint_search *search, int64_t step,
                              candidate *c) {
  c->damage = known_damage(search, step);
  if (c->damage != NULL) return OT_OK;
  return inspect(arena, search->hashes, c);
}

static void keep_candidate(ot_arena *arena, const candidate *c, ot_checkpoint_found *found) {
  ot_manifest *const manifest = ot_arena_take(arena, sizeof *manifest);
  *manifest = c->manifest;
  found->path = c->path;
  found->manifest = manifest;
}

static ot_status fail_all_damaged(const char *directory, int64_t count, const char *damages) {
  ot_fail(OT_ENVIRONMENT, "%s of %s can be read:%s",
          count == 1 ? "the only checkpoint" : "none of the checkpoints", directory, damages);
  return ot_fail_hint(OT_ENVIRONMENT, "restore one from a backup, or start in another `output`");
}

ot_status ot_checkpoint_newest(ot_arena *arena, const char *directory,
                               const ot_checkpoint_search *search, ot_checkpoint_found *found) {
  *found = (ot_checkpoint_found){0};
  ot_text_builder damages = {.arena = arena};
  ot_checkpoint_steps steps;
  OT_TRY(ot_checkpoint_list(arena, directory, &steps));
  int64_t damaged = 0;
  for (; damaged < steps.count; damaged++) {
    const int64_t step = steps.step[damaged];
    candidate c = {.path = ot_checkpoint_path(arena, directory, step)};
    OT_TRY(inspect_step(arena, search, step, &c));
    if (c.damage == NULL) {
      keep_candidate(arena, &c, found);
      break;
    }
    if (damaged < MOST_NAMED) ot_text_appendf(&damages, "\n  %s", c.damage);
  }
  if (damaged == 0) return OT_OK;
  if (damaged > MOST_NAMED) ot_text_appendf(&damages, "\n  and %ld more", damaged - MOST_NAMED);
  const char *const text = ot_text_builder_text(&damages);
  if (found->path == NULL) return fail_all_damaged(directory, damaged, text);
  const int64_t lost = steps.step[0] - found->manifest->step;
  found->note = ot_arena_format(arena, "skipping %lld damaged checkpoint%s:%s\n  %lld step%s lost",
                                (long long)damaged, damaged == 1 ? "" : "s", text, (long long)lost,
                                lost == 1 ? " is" : "s are");
  return OT_OK;
}

// The damage of the checkpoint at `path`, which the user named.
static const char *damage_of(ot_arena *arena, const ot_checkpoint_search *search,
                             const candidate *c) {
  if (c->damage != NULL) return c->damage;
  const char *const known = known_damage(search, c->manifest.step);
  return known ? ot_arena_format(arena, "%s", known) : NULL;
}

ot_status ot_checkpoint_find(ot_arena *arena, const char *path, const ot_checkpoint_search *search,
                             ot_checkpoint_found *found) {
  const char *const checkpoints = ot_disk_join(arena, path, "checkpoints");
  if (ot_disk_is_directory(checkpoints)) {
    OT_TRY(ot_checkpoint_newest(arena, checkpoints, search, found));
    OT_CHECK(found->path != NULL, OT_ENVIRONMENT, "the run has no checkpoint yet (%s)", path);
    return OT_OK;
  }
  OT_CHECK(ot_disk_is_directory(path) || ot_disk_is_file(path), OT_ENVIRONMENT,
           "there is no checkpoint, run or HF directory of this name (%s)", path);
  candidate c = {.path = ot_arena_text(arena, path, ot_text_length(path))};
  *found = (ot_checkpoint_found){.path = c.path};
  if (!ot_checkpoint_is_native(arena, path)) return OT_OK;
  OT_TRY(inspect(arena, search->hashes, &c));
  const char *const damage = damage_of(arena, search, &c);
  OT_CHECK(damage == NULL, OT_ENVIRONMENT, "checkpoint is damaged: %s", damage);
  keep_candidate(arena, &c, found);
  return OT_OK;
}

// ---- which checkpoints to delete ----

static ot_status hide(ot_arena *arena, const char *directory, int64_t step, const char **hidden) {
  const char *const path = ot_checkpoint_path(arena, directory, step);
  const char *const name = ot_arena_format(arena, ".%s.deleting", ot_disk_base_name(path));
  *hidden = ot_disk_join(arena, directory, name);
  OT_TRY(ot_disk_remove(*hidden));
  return ot_disk_rename(path, *hidden);
}

ot_status ot_checkpoint_remove(ot_arena *arena, const char *directory, int64_t step) {
  const char *hidden = NULL;
  OT_TRY(hide(arena, directory, step, &hidden));
  return ot_disk_remove(hidden);
}

// On NFS a directory stays as long as another program has one of its files open: that must not fail
// a save. What stays now goes with a later call.
static ot_status remove_hidden(ot_arena *arena, const char *directory) {
  ot_disk_names names;
  OT_TRY(ot_disk_list(arena, directory, &names));
  for (int64_t i = 0; i < names.count; i++) {
    const char *const name = names.name[i];
    if (ot_text_starts_with(name, ".step-") && ot_text_ends_with(name, ".deleting"))
      (void)ot_disk_remove(ot_disk_join(arena, directory, name));
  }
  return OT_OK;
}

ot_status ot_checkpoint_prune(ot_arena *arena, const char *directory, int64_t keep) {
  static const ot_checkpoint_search sizes = {.hashes = OT_CHECKPOINT_HASH_NONE};
  if (keep <= 0) return OT_OK;
  ot_checkpoint_steps steps;
  OT_TRY(ot_checkpoint_list(arena, directory, &steps));
  int64_t complete = 0;
  for (int64_t i = 0; i < steps.count; i++) {
    candidate c = {.path = ot_checkpoint_path(arena, directory, steps.step[i])};
    const char *hidden = NULL;
    if (complete >= keep)
      OT_TRY(hide(arena, directory, steps.step[i], &hidden));
    else if (inspect_step(arena, &sizes, steps.step[i], &c) == OT_OK && c.damage == NULL)
      complete++;
    else if (complete == 0 && keep == 1)
      keep = 2;
  }
  return remove_hidden(arena, directory);
}

ot_status ot_checkpoint_clean(ot_arena *arena, const char *directory) {
  ot_disk_names names;
  OT_TRY(ot_disk_list(arena, directory, &names));
  for (int64_t i = 0; i < names.count; i++) {
    const char *const name = names.name[i];
    const bool left = ot_text_starts_with(name, ".step-") &&
                      (ot_text_ends_with(name, ".partial") ||
                       ot_text_ends_with(name, ".deleting") || ot_text_ends_with(name, ".old"));
    if (left) OT_TRY(ot_disk_remove(ot_disk_join(arena, directory, name)));
  }
  return OT_OK;
}
