// SPDX-License-Identifier: Apache-2.0
// The start of a run: locks its directory, finds the state to resume and compares it with the
// settings, creates the trainer; and the checks that runs and dry runs share before the first step.
// Private to the loop.
#pragma once

#include "checkpoint/checkpoint_list.h"
#include "data/data_record.h"
#include "forecast/prediction.h"
#include "record/run_directory.h"
#include "runtime/kernel_watch.h"
#include "runtime/model_runtime.h"
#include "state/folder_access.h"
#include "state/memory_copies.h"
#include "train/loop.h"

typedef struct ot_loop_start {
  ot_run_directory *directory;  // on the leader; null on other ranks
  ot_trainer *trainer;
  bool finished;                      // all steps were done before: nothing to do
  bool resumed_here;                  // the state is a checkpoint of this directory
  bool went_back;                     // on the leader: rewound to a checkpoint that --resume names
  ot_data_record_state found;         // on the leader: the checkpoint to load; no path: none
  int64_t found_step;                 // on the leader: the step of the checkpoint to load; -1: none
  ot_checkpoint_damage_list damages;  // on the leader: found while loading
  const char *fallback;               // on the leader: why it is not the newest; null: it is
  bool newest;                        // on the leader: the newest state is wanted, not a given one
  ot_folder_access access;            // of `directory`
  const char *restart;                // on the leader: a note if no state is found; null: none
  ot_memory_copies *memory;           // null: no copies
  bool from_memory;                   // the state is that of copies in memory
} ot_loop_start;

ot_status ot_loop_start_open(const ot_loop_request *request, ot_arena *arena, ot_loop_start *start);
void ot_loop_start_close(ot_loop_start *start);

// OT_RANKS, naming them, if settings of ranks differ, or their numbers in the mesh. Collective over
// the world.
ot_status ot_loop_compare_ranks(const ot_loop_request *request, ot_arena *arena);

// Fails, listing them, if settings differ from `config`, those of the state at `path`, that must
// not. On the leader.
ot_status ot_loop_compare_settings(const ot_loop_request *request, const char *path,
                                   const char *config, ot_arena *arena);

// Fails if token files are not those of `state`, unless their sets are given with --set; notes
// windows that are left out or read again. On the leader.
ot_status ot_loop_compare_data(const ot_loop_request *request, const ot_loop_start *start,
                               const ot_data_record_state *state, ot_arena *arena);

// Notes that the learning rate of the step after `step` is not that of the schedule in `config`,
// the settings of the state, if they differ by more than 1 %. On the leader.
void ot_loop_note_rate(const ot_loop_request *request, const char *config, int64_t step,
                       ot_arena *arena);

// "8 ranks (pp 2 x dp_shard 2 x tp 2)", in `arena`.
const char *ot_loop_shape(const ot_mesh *mesh, ot_arena *arena);

// A sentence for the user, from the leader.
void ot_loop_note(const ot_loop_request *request, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// Says how many shapes of products the library refused, if they are more than the last time.
void ot_loop_note_products(const ot_loop_request *request, const ot_loop_refusals *now,
                           ot_loop_refusals *noted);

// Reports the basis of the prediction.
void ot_loop_note_prediction(const ot_loop_request *request, const ot_prediction *prediction);

// Proves that the schedules of all ranks match (ot_planned_run_prove). Local; called on one rank.
ot_status ot_loop_check_schedules(const ot_run *run, const ot_mesh *mesh, ot_backend backend);

// Warns of settings that are valid but rarely intended; invalid ones are rejected where settings
// are read (describe/run.h), data opened (data_loader.h) and memory allocated (model_runtime.h).
// Notes for the user: model sizes that were not given, a warm-up longer than the run, a step with
// more tokens than the data. `loader` is the run's, of one rank.
void ot_loop_warn_settings(const ot_loop_request *request, const ot_data_loader *loader,
                           ot_arena *arena);

// Free bytes at the output, and those of one checkpoint. OT_ENVIRONMENT if it does not fit. Called
// on one rank.
typedef struct ot_disk_space {
  int64_t free_bytes, checkpoint_bytes;
} ot_disk_space;
ot_status ot_loop_check_disk(const ot_loop_request *request, ot_arena *arena, ot_disk_space *room);

// Checks the disk and the trace file, before the first step. On the leader.
ot_status ot_loop_check_files(const ot_loop_request *request, ot_arena *arena);

// Watches the kernels of this rank, if the request says what ends a process that hangs; else *out
// is null. Local.
ot_status ot_loop_watch_kernels(const ot_loop_request *request, ot_trainer *trainer,
                                ot_arena *arena, ot_kernel_watch **out);
