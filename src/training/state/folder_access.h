// SPDX-License-Identifier: Apache-2.0
// Which ranks have access to the files that the leader sees. Where hosts have no shared folder,
// ranks with access read and write for those without (file_relay.h).
#pragma once

#include "base/arena.h"
#include "runtime/run_world.h"

typedef struct ot_folder_access {
  int num_without, first_without;  // ranks without access, and the first of them
  int num_with;                    // ranks with access
  int number_with;                 // this rank's number among these; -1: it has none
  int server;                      // the rank that reads and writes for this one; -1: none
  int num_clients;
  const int *clients;  // [num_clients] ranks that this one reads and writes for
} ot_folder_access;

// All ranks see all files.
ot_folder_access ot_folder_access_all(const ot_world *world);

// Which ranks see the file at the leader's `path` with its content; if the leader cannot read it,
// all do. What a network file system shows late is waited for (ot_disk_wait_late). Lists are in
// `arena`. Collective over the world. Blocks.
ot_status ot_folder_access_find(ot_world *world, const char *path, ot_arena *arena,
                                ot_folder_access *access);

// The same for the leader's `directory`, in which a file is made for it and removed again.
ot_status ot_folder_access_probe(ot_world *world, const char *directory, ot_arena *arena,
                                 ot_folder_access *access);
