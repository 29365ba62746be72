// SPDX-License-Identifier: Apache-2.0
// Which checkpoints a directory holds: the newest whole one, and the ones to let go. One rule for
// whoever reads a checkpoint, to train on, to sample, to convert: what is read was verified, damage
// falls back to the checkpoint before it and is named, and where all are damaged nothing is read.
#pragma once

#include <stdbool.h>

#include "checkpoint/checkpoint.h"

typedef struct ot_checkpoint_found {
  const char *path;             // null: there is none
  const ot_manifest *manifest;  // of it; null for an HF directory or a tensor file
  const char *note;             // names newer ones that are damaged, for the user; null: none are
} ot_checkpoint_found;

// The newest checkpoint of `directory` (a run's checkpoints/; an absent one has none) whose files
// are those of its manifest, by size and by the `hashes` asked for. Damaged newer ones are passed
// over. Fails, naming each, when all are damaged; and when one cannot be read for another reason,
// because a checkpoint that comes back with its disk must not be passed over.
ot_status ot_checkpoint_newest(ot_arena *arena, const char *directory, ot_checkpoint_hashes hashes,
                               ot_checkpoint_found *found);

// What the user means by CHECKPOINT: a run directory (its newest, as above), else `path` itself,
// which must be an undamaged checkpoint, an HF directory or a tensor file.
ot_status ot_checkpoint_find(ot_arena *arena, const char *path, ot_checkpoint_hashes hashes,
                             ot_checkpoint_found *found);

// The steps of the checkpoints in `directory`, newest first, whole or not; an absent one has none.
typedef struct ot_checkpoint_steps {
  int64_t count;
  int64_t *step;  // [count]
} ot_checkpoint_steps;
ot_status ot_checkpoint_list(ot_arena *arena, const char *directory, ot_checkpoint_steps *steps);

// Removes all but the `keep` newest complete checkpoints (0 = all stay). Damaged ones newer than
// those stay. To be called when the newest is whole.
ot_status ot_checkpoint_prune(ot_arena *arena, const char *directory, int64_t keep);

// Removes what an interrupted save or removal left in `directory`. Only for the owner of the run.
ot_status ot_checkpoint_clean(ot_arena *arena, const char *directory);
