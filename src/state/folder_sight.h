// SPDX-License-Identifier: Apache-2.0
// Which ranks see the files that the leader sees. Where hosts have no shared folder, ranks that do
// see them read and write for those that do not (file_relay.h).
#pragma once

#include "base/arena.h"
#include "runtime/run_world.h"

typedef struct ot_folder_sight {
  int num_blind, first_blind;  // ranks that do not see the files, and the first of them
  int num_seers;               // ranks that do
  int seer;                    // this rank's number among these; -1: it does not
  int server;                  // the rank that reads and writes for this one; -1: none
  int num_wards;
  const int *wards;  // [num_wards] ranks that this one reads and writes for
} ot_folder_sight;

// All ranks see all files.
ot_folder_sight ot_folder_sight_all(const ot_world *world);

// Which ranks see the file at the leader's `path` with its content; if the leader cannot read it,
// all do. What a network file system shows late is waited for (ot_disk_wait_late). Lists are in
// `arena`. Collective over the world. Blocks.
ot_status ot_folder_sight_find(ot_world *world, const char *path, ot_arena *arena,
                               ot_folder_sight *sight);

// The same for the leader's `directory`, in which a file is made for it and removed again.
ot_status ot_folder_sight_probe(ot_world *world, const char *directory, ot_arena *arena,
                                ot_folder_sight *sight);
