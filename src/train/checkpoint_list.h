// SPDX-License-Identifier: Apache-2.0
// Which checkpoints a directory holds: the newest complete one, and the ones to let go.
#pragma once

#include <stdbool.h>

#include "base/arena.h"
#include "base/status.h"

typedef struct ot_checkpoint_found {
  char *path;  // null: there is none
  int64_t step;
  int num_damaged;     // newer ones that are there but not whole
  const char *damage;  // what is wrong with the newest of these; null: nothing
} ot_checkpoint_found;

// The newest complete checkpoint of `directory` (a run's checkpoints/; an absent one has none):
// manifest and file sizes fit. Damaged newer ones are passed over and counted.
ot_status ot_checkpoint_newest(ot_arena *arena, const char *directory, ot_checkpoint_found *found);

// What the user means by CHECKPOINT: a run directory (its newest), else `path` itself, which must
// be a checkpoint, an HF directory or a tensor file.
ot_status ot_checkpoint_resolve(ot_arena *arena, const char *path, char **resolved);

// Removes all but the `keep` newest complete checkpoints (0 = all stay). Damaged ones newer than
// those stay. To be called when the newest is complete.
ot_status ot_checkpoint_prune(ot_arena *arena, const char *directory, int64_t keep);

// Removes what an interrupted save or removal left in `directory`. Only for the owner of the run.
ot_status ot_checkpoint_clean(ot_arena *arena, const char *directory);
