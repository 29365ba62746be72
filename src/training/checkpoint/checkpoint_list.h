// SPDX-License-Identifier: Apache-2.0
// Selects checkpoints of a directory: the newest intact one, and those to delete. All readers
// (training, sampling, conversion) use one rule: only verified files are read; a damaged checkpoint
// is reported and the previous one used; if all are damaged, nothing is read.
#pragma once

#include <stdbool.h>

#include "checkpoint/checkpoint.h"

typedef struct ot_checkpoint_found {
  const char *path;             // null: none
  const ot_manifest *manifest;  // its manifest; null for an HF directory or a tensor file
  const char *note;             // a note for the user on newer damaged ones; null: none
} ot_checkpoint_found;

// Damage that was found while a checkpoint was read.
typedef struct ot_checkpoint_damage_list {
  int64_t count;
  int64_t *step;      // [count]
  const char **text;  // [count]
} ot_checkpoint_damage_list;

// Adds the damage that failed with `message` while the checkpoint of `step` was read.
void ot_checkpoint_damage_add(ot_arena *arena, ot_checkpoint_damage_list *list, int64_t step,
                              const char *message);

// Which checkpoint to find.
typedef struct ot_checkpoint_search {
  ot_checkpoint_hashes hashes;             // to compare
  const ot_checkpoint_damage_list *known;  // these are damaged too; null: none
} ot_checkpoint_search;

// The newest checkpoint of `directory` (a run's checkpoints/; a missing one has none) whose files
// match its manifest, by size and by the requested hashes. Skips damaged newer ones; the note names
// them and says how many steps are lost. Fails, naming each, if all are damaged; and if one cannot
// be read for another reason, because a checkpoint that a disk may return must not be skipped.
ot_status ot_checkpoint_newest(ot_arena *arena, const char *directory,
                               const ot_checkpoint_search *search, ot_checkpoint_found *found);

// The checkpoint that the user names as CHECKPOINT: the newest of a run directory, else `path`
// itself, which must be an undamaged checkpoint, an HF directory or a tensor file.
ot_status ot_checkpoint_find(ot_arena *arena, const char *path, const ot_checkpoint_search *search,
                             ot_checkpoint_found *found);

// The steps of the checkpoints in `directory`, newest first, intact or not; a missing one has none.
typedef struct ot_checkpoint_steps {
  int64_t count;
  int64_t *step;  // [count]
} ot_checkpoint_steps;
ot_status ot_checkpoint_list(ot_arena *arena, const char *directory, ot_checkpoint_steps *steps);

// Deletes all but the `keep` newest complete checkpoints (0 = keep all); all but the two newest if
// one that is newer still is damaged, which stays. Call it only after a save.
ot_status ot_checkpoint_prune(ot_arena *arena, const char *directory, int64_t keep);

// Deletes the checkpoint of `step`. After a crash it is there or not, never in part.
ot_status ot_checkpoint_remove(ot_arena *arena, const char *directory, int64_t step);

// Deletes remains of an interrupted save or deletion in `directory`. Only for the owner of the run.
ot_status ot_checkpoint_clean(ot_arena *arena, const char *directory);
