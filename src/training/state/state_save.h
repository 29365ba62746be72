// SPDX-License-Identifier: Apache-2.0
// Saves the state of a run by all of its ranks. Each rank writes the elements that it counts from
// its own memory to their places in the files of one checkpoint; nothing is gathered. A save has
// stages, which a thread on each rank runs without communication; between them the ranks meet.
//
//   begin   the leader makes a directory and the files at their full size
//   write   every rank writes; first, it writes for ranks that do not see the directory
//   verify  files are shared out over the ranks that see them, which read and hash them; every rank
//           syncs what it wrote, with several hosts already in the stage before
//   commit  the leader writes the manifest and renames the directory
//
// A failure anywhere ends the save on all ranks with one message; older checkpoints are untouched.
#pragma once

#include "state/folder_access.h"
#include "state/training_state.h"

enum { OT_FAILED_SAVES_MAX = 3 };  // in a row; they end a run

typedef struct ot_state_save ot_state_save;

// With `snapshot`, a save starts by copying this rank's share to host memory, which is allocated
// here, and steps may be run while it goes on. `access` tells which ranks see the directory of the
// checkpoints: those that do not send what they write to others. Keeps `runtime`, `world` and lists
// of `access` until destroy. Local.
ot_status ot_state_save_create(ot_runtime *runtime, ot_world *world, const ot_folder_access *access,
                               bool snapshot, ot_state_save **out);
// Waits for a stage under way, and leaves an unfinished checkpoint to ot_checkpoint_clean. Local.
void ot_state_save_destroy(ot_state_save **save);

// Starts saving; only the leader's path is used. Keeps what `request` points to until the save
// ends, except for the path. Collective over the world. Blocks for the snapshot.
ot_status ot_state_save_start(ot_state_save *save, const ot_state_request *request);

// Whether a save was started and has not ended: the same on all ranks.
bool ot_state_save_active(const ot_state_save *save);

// Whether this rank's part of the stage is not done. Local, does not block.
bool ot_state_save_busy(ot_state_save *save);

// When no rank is busy: starts the next stage, or ends the save. The failure of any rank ends it on
// all. Collective over the world.
ot_status ot_state_save_advance(ot_state_save *save);

// Completes the save that is active, if any. Ranks meet several times in each timeout of the world,
// so that a slow disk does not end a run. Collective over the world. Blocks.
ot_status ot_state_save_wait(ot_state_save *save);

// The last save that was started.
typedef struct ot_state_saved {
  int64_t step;
  int64_t bytes;     // of tensor files
  double blocked_s;  // in start and, if it was waited for, in wait
  double seconds;    // from its start to its end
} ot_state_saved;
ot_state_saved ot_state_save_last(const ot_state_save *save);
