// SPDX-License-Identifier: Apache-2.0
// The tasks that a run is evaluated on (`evaluate:`), what runs them, and what that costs.
#pragma once

#include "describe/cluster.h"
#include "describe/mesh.h"
#include "describe/run.h"
#include "evaluate/evaluation.h"

typedef struct ot_run_tasks {
  ot_tokenizer *tokenizer;
  int count;
  ot_text_task *task;  // [count]
  uint64_t hash;       // of their files
} ot_run_tasks;

// Reads the tasks of `run` into `arena`; none if it has none. OT_USAGE naming file and line of what
// cannot be used. Close it in every case.
ot_status ot_run_tasks_open(const ot_run *run, ot_arena *arena, ot_run_tasks *tasks);
void ot_run_tasks_close(ot_run_tasks *tasks);

// The ranks that train.
typedef struct ot_run_tasks_ranks {
  int count, sharing;  // in all, and those that share a memory, of a machine or a GPU, at most
  int threads;         // of each
  int64_t training_bytes, memory_bytes;  // of a rank at most, and of a memory at least
} ot_run_tasks_ranks;

// Where the engines are. One stage: the whole model, on one of the ranks that share a memory. Else
// each engine is a pipeline over that many ranks, and every rank is a stage of one.
typedef struct ot_run_tasks_engines {
  int stages;
  ot_mesh mesh;   // of several stages
  int64_t bytes;  // of a memory for them
} ot_run_tasks_engines;

// OT_USAGE if `ranks` ranks cannot form evaluate.stages.
ot_status ot_run_tasks_check_stages(const ot_run *run, int ranks);

// Sets memory_bytes: of this machine, or of GPU `ordinal` without what libraries take of it.
ot_status ot_run_tasks_memory(ot_backend backend, int ordinal, ot_run_tasks_ranks *ranks);

// Chooses the stages: evaluate.stages, or as few as have the memory. All ranks that ask the same
// get the same. Memory for schedules is in `arena`.
ot_status ot_run_tasks_place(const ot_run *run, const ot_run_tasks *tasks,
                             const ot_run_tasks_ranks *ranks, ot_arena *arena,
                             ot_run_tasks_engines *out);

// The request for an engine for them, or for the stage of `rank` in `mesh` (null: one): the model
// as `orthant score` runs it.
ot_runtime_request ot_run_tasks_request(const ot_run *run, const ot_run_tasks *tasks, int threads,
                                        const ot_mesh *mesh, int rank);

// Evaluations of the whole run: before its first step, at its cadence, and after its last step.
int64_t ot_run_tasks_times(const ot_run *run);

typedef struct ot_run_tasks_cost {
  int64_t sequences, prompt_tokens;
  int64_t made_tokens;  // generated at most
  double seconds;       // of an evaluation without shared prefixes; NaN: unknown
} ot_run_tasks_cost;

typedef struct ot_run_tasks_machine {
  const ot_cluster *cluster;  // null: unknown
  const ot_run_tasks_ranks *ranks;
  const ot_run_tasks_engines *engines;
} ot_run_tasks_machine;

// Memory for the schedules is in `arena`.
ot_status ot_run_tasks_predict(const ot_run *run, const ot_run_tasks *tasks,
                               const ot_run_tasks_machine *machine, ot_arena *arena,
                               ot_run_tasks_cost *cost);
