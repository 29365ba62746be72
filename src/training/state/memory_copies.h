// SPDX-License-Identifier: Apache-2.0
// Copies of the state of every rank in memory that outlives the process (`checkpoint.memory`): what
// a restart needs, without a read of the disk. A rank copies all that it holds of weights, moments
// and master weights into one of two files of its host (memory_slot.h), in turn, so that one of
// them is complete at any time. A thread then hashes and seals the copy, and, with several hosts,
// sends it to the rank at the same place of the next host, which keeps it, too.
//
// A copy counts only for the history of the run that made it (run_directory.h) and for the same
// layout; a generation, the copies of one step made by the same processes, counts only if that of
// every rank is somewhere and has the bytes that were written.
#pragma once

#include "state/training_state.h"

typedef struct ot_memory_copies ot_memory_copies;

enum { OT_MEMORY_NOTE_BYTES = 1024 };

#define OT_MEMORY_THREAD "memory-copy"  // name of the threads

typedef struct ot_memory_request {
  ot_runtime *runtime;
  ot_world *world;
  const ot_run *run;
  const ot_data_loader *loader;
  const char *config;  // resolved settings as JSON
  const char *output;  // absolute path of the run directory: on the leader
} ot_memory_request;

// Looks at this host's folder, and creates nothing else. Keeps what `request` points to until
// destroy. OT_ENVIRONMENT on all ranks if some host has no such folder. Collective over the world.
ot_status ot_memory_copies_create(const ot_memory_request *request, ot_memory_copies **out);
// Waits for the thread. The copies stay.
void ot_memory_copies_destroy(ot_memory_copies **copies);

// Which copies may be loaded; the leader's.
typedef struct ot_memory_search {
  uint64_t history;   // of the run; 0: none may
  int64_t disk_step;  // of the checkpoint that could be loaded: older copies are not; -1: none
} ot_memory_search;

typedef struct ot_memory_found {
  bool found;
  ot_position position;
  int64_t disk_step;                // as searched for
  const char *config;               // settings of the copies, as JSON
  const char *record;               // of their data (data/data_record.h)
  char note[OT_MEMORY_NOTE_BYTES];  // on the leader: why newer copies are not used; "": nothing to
                                    // say
} ot_memory_found;

// Finds the newest generation, compares it with its hashes, and brings the copies to the ranks that
// lack theirs. Collective over the world. Blocks.
ot_status ot_memory_copies_find(ot_memory_copies *copies, const ot_memory_search *search,
                                ot_memory_found *found);

// Puts what was found into the runtime. *note: about products of a GPU; null: nothing to say.
// Local.
ot_status ot_memory_copies_load(ot_memory_copies *copies, ot_arena *arena, const char **note);

// From now on copies are made, of the leader's `history`: memory for them is reserved, and what the
// folder has besides the generation that was loaded is removed. Returns false if there is no room
// or nothing may be written, on all ranks; `note` [OT_MEMORY_NOTE_BYTES] then says where, on the
// leader. Collective over the world.
ot_status ot_memory_copies_begin(ot_memory_copies *copies, uint64_t history, char *note, bool *on);
// Begins another history: the run went back. `history` is the leader's. Collective over the world.
ot_status ot_memory_copies_turn(ot_memory_copies *copies, uint64_t history);

// Copies this rank's state; not while any rank is busy. Blocks for the copy. Local.
void ot_memory_copies_take(ot_memory_copies *copies, const ot_position *position);
// Whether this rank's thread has not ended. Local, does not block.
bool ot_memory_copies_busy(const ot_memory_copies *copies);

// The cost of the copies of this process, on this rank.
typedef struct ot_memory_account {
  int64_t count, bytes;       // copies; bytes of one
  double blocked_s, seconds;  // sums: copying; until sealed and sent
} ot_memory_account;
ot_memory_account ot_memory_copies_account(const ot_memory_copies *copies);

// The run has ended and its state is on the disk: removes the copies. Collective over the world.
ot_status ot_memory_copies_remove(ot_memory_copies *copies);

// Bytes that a rank with `schedule` copies, and those that its host reserves for it.
int64_t ot_memory_copied_bytes(const ot_schedule *schedule, const ot_run *run);
int64_t ot_memory_reserved_bytes(int64_t copied_bytes, int hosts);
