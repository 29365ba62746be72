// SPDX-License-Identifier: Apache-2.0
// A model runtime: the graphs of the requested modes, their schedule, an executor and its memory.
// Training, scoring, sampling and the audits build on it; weights are accessed by parameter of the
// whole model, independent of this rank's shard and its address.
#pragma once

#include "comm/comm.h"
#include "execute/execute.h"
#include "host/heap.h"
#include "runtime/gpu_check.h"
#include "runtime/slices.h"
#include "schedule/rank_request.h"

typedef struct ot_runtime ot_runtime;

// Faults and checks of tests.
typedef struct ot_runtime_faults {
  // Modifies the schedule before it is checked; null: nothing does.
  void (*amend)(ot_schedule *schedule, ot_arena *arena, void *context);
  void *context;
  bool unchecked;  // ignores the result of the check
  bool poison;     // see ot_executor_options
} ot_runtime_faults;

// A rank, and where it runs. Without OT_MODE_TRAIN the rank has no run. The model is copied, the
// run kept. Without a number of threads each kernel has all cores of this process.
typedef struct ot_runtime_request {
  ot_rank_request rank;
  int ordinal;                // of the GPU, for one rank without `comm`
  ot_comm *comm;              // world of the mesh, null: one rank. Kept
  bool serial;                // disables overlap; same bits
  bool events, no_graphs;     // see ot_executor_options
  bool may_fall_back;         // device=auto: one rank runs on the CPU if its GPU lacks a kernel
  ot_memory_advisor advisor;  // if the GPU lacks memory
  const ot_runtime_faults *faults;  // null: none
} ot_runtime_request;

// Builds and checks the schedule, allocates the memory. Weights are undefined until initialized or
// written. OT_ENVIRONMENT if there is not enough memory. Collective over the world.
ot_status ot_runtime_create(const ot_runtime_request *request, ot_runtime **out);
void ot_runtime_destroy(ot_runtime **runtime);

// Builds the schedule of `rank`, in `arena`, without allocating model memory: for dry runs and
// `orthant schedule`. `graphs` [OT_MODES] receives the graphs by mode.
ot_status ot_runtime_plan(const ot_rank_request *rank, ot_arena *arena, ot_graph *graphs,
                          ot_schedule *schedule);

// The back end of `device` for a run of `ranks` ranks.
ot_backend ot_runtime_choose_device(ot_run_device device, int ranks);

// The value of `device` that chooses `backend`, whatever the ranks.
ot_run_device ot_runtime_device_of(ot_backend backend);

// The memory that ranks on the CPU need.
typedef struct ot_memory_need {
  int64_t peak_bytes;  // of each
  int local_ranks;     // on this machine
  int process_ranks;   // of these in this process
  int threads;         // of each
} ot_memory_need;

// OT_ENVIRONMENT if they exceed the memory of this machine, of the control group, or of the address
// space of this process. ot_runtime_create calls it before it allocates.
ot_status ot_runtime_check_memory(const ot_memory_need *need, ot_arena *arena);

// Why the CPU runs it instead of the GPU (may_fall_back); null: it runs where it was asked to.
const char *ot_runtime_note(const ot_runtime *runtime);

const ot_schedule *ot_runtime_schedule(const ot_runtime *runtime);
ot_backend ot_runtime_backend(const ot_runtime *runtime);
ot_executor *ot_runtime_executor(ot_runtime *runtime);
// The world; null: one rank.
ot_comm *ot_runtime_comm(const ot_runtime *runtime);
const ot_mesh *ot_runtime_mesh(const ot_runtime *runtime);  // null: one rank
// Graph of a requested mode.
const ot_graph *ot_runtime_graph(const ot_runtime *runtime, ot_mode mode);
// Whether a mode was requested.
bool ot_runtime_has_mode(const ot_runtime *runtime, ot_mode mode);
// Any graph of this rank: parameters are the same in all.
const ot_graph *ot_runtime_any_graph(const ot_runtime *runtime);
// A graph of the whole model, which defines the rows of parameters: the same on all ranks.
const ot_graph *ot_runtime_whole_graph(const ot_runtime *runtime);

// The copies of a parameter in the arena, in the order of ot_bucket_copy.
typedef enum ot_parameter_copy {
  OT_COPY_WEIGHT,    // in the storage dtype
  OT_COPY_GRADIENT,  // in the accumulation dtype
  OT_COPY_MOMENT_1,  // in the compute dtype or, narrow, in bf16
  OT_COPY_MOMENT_2,
  OT_COPY_MASTER,  // in the compute dtype; only if the storage dtype differs
  OT_COPIES,
} ot_parameter_copy;

// False if the copy is not kept (no training, no master weights, one moment).
bool ot_runtime_has_copy(const ot_runtime *runtime, ot_parameter_copy copy);

// Element type of a copy.
ot_dtype ot_runtime_copy_dtype(const ot_runtime *runtime, ot_parameter_copy copy);

// This rank's shard of the bucket of `block`; count 0: none.
ot_bucket_range ot_runtime_held_range(const ot_runtime *runtime, int block, ot_parameter_copy copy);

// Rows [first_row, first_row + rows) of parameter `parameter` of the whole model, contiguous, in
// the dtype of the copy.
typedef struct ot_parameter_rows {
  int parameter;
  ot_parameter_copy copy;
  int64_t first_row, rows;
} ot_parameter_rows;

// Gathers the rows on all ranks, each element from the rank that counts it; `to` may be null on
// ranks that do not need them. Not during a step. Collective over the world. Blocks.
ot_status ot_runtime_read(ot_runtime *runtime, const ot_parameter_rows *range, void *to);

// The same when only rank 0 knows what to read (it saves): it calls ot_runtime_read_leader any
// number of times and then, even after a failure, ot_runtime_end_reads; the other ranks call
// ot_runtime_serve_reads once, which returns then. Blocks.
ot_status ot_runtime_read_leader(ot_runtime *runtime, const ot_parameter_rows *range, void *to);
ot_status ot_runtime_end_reads(ot_runtime *runtime);
ot_status ot_runtime_serve_reads(ot_runtime *runtime);

// Whether this rank counts elements of a copy of `block`: of all ranks, one counts each element of
// each copy that is kept.
bool ot_runtime_counts(const ot_runtime *runtime, int block, ot_parameter_copy copy);

// The runs of the rows that this rank counts (slices.h). Element 0 of its shard of the copy
// (ot_runtime_held_range) is at arena byte `offset` of that range.
ot_slices ot_runtime_counted(const ot_runtime *runtime, const ot_parameter_rows *range);

// The runs of the rows that this rank holds, counted or not. Of the bucket that the last stage
// holds for a tied head only the tied tensor is used.
ot_slices ot_runtime_held(const ot_runtime *runtime, const ot_parameter_rows *range);

// Whether this rank holds, counted or not, an element of the rows.
bool ot_runtime_holds(const ot_runtime *runtime, const ot_parameter_rows *range);

// Copies this rank's part of the rows; all ranks must pass the same rows.
void ot_runtime_write(ot_runtime *runtime, const ot_parameter_rows *range, const void *from);

// The copy of `from` that becomes the weights of `to`.
typedef struct ot_weight_copy {
  ot_parameter_copy copy;                            // weights, or master weights
  bool (*is_zero)(void *context, const char *name);  // becomes zero instead; null: nothing does
  void *context;
} ot_weight_copy;

// Copies by parameter, in the dtype of `to`. `to` may be null on some ranks; the others then have
// the same parameters. Else it may have fewer layers, or an untied head where `from` has a tied
// one. Not during a step. Collective over the worlds of both. Blocks.
ot_status ot_runtime_copy(ot_runtime *from, ot_runtime *to, const ot_weight_copy *how);

// The same of the stored weights, all of them.
ot_status ot_runtime_copy_weights(ot_runtime *from, ot_runtime *to);

// Who takes weights that are published.
typedef struct ot_weight_taker {
  // A parameter of the whole model, [rows, cols] in the storage dtype; `last`: all are complete.
  ot_status (*take)(void *context, const ot_parameter *parameter, const void *values, bool last);
  // All of a block were taken; null: nothing more is to be done.
  ot_status (*bucket)(void *context);
  void *context;
} ot_weight_taker;

// Runs OT_ORDER_PUBLISH, for runs that learn from rewards: on rank 0 `taker` gets the weights,
// block by block; on the other ranks it is null. Collective over the world. Blocks.
ot_status ot_runtime_publish(ot_runtime *runtime, const ot_weight_taker *taker);

// Sets weights (and master copies) to their random initial values, moments to zero. Element i of
// HF tensor NAME depends on (seed, NAME, i) only.
ot_status ot_runtime_initialize(ot_runtime *runtime, uint64_t seed);

// Call after writing weights: fills the master copies from them and zeroes the moments.
ot_status ot_runtime_reset_optimizer(ot_runtime *runtime);

// Zeroes the moments, if any.
void ot_runtime_zero_moments(ot_runtime *runtime);

// Loads one field of micro-batch `micro_batch` for the schedules of `kind`; `data` has the field's
// dtype.
void ot_runtime_load_batch(ot_runtime *runtime, ot_mode mode, int micro_batch, ot_batch_field field,
                           const void *data);

// Its place in the arena, and its size.
int64_t ot_runtime_batch_offset(const ot_runtime *runtime, ot_mode mode, int micro_batch,
                                ot_batch_field field);
int64_t ot_runtime_batch_bytes(const ot_runtime *runtime, ot_mode mode, ot_batch_field field);

// Reads a field back as it was loaded.
void ot_runtime_read_batch(const ot_runtime *runtime, ot_mode mode, int micro_batch,
                           ot_batch_field field, void *to);

// Reads the result of the last run of `mode`: [R] float64, [R] int32 or [R, V] of compute dtype.
void ot_runtime_read_result(const ot_runtime *runtime, ot_mode mode, ot_result result, void *to,
                            int64_t bytes);

// Expert statistics of the last training step or forward, summed over blocks (ot_expert_sum). For
// models with experts.
void ot_runtime_expert_sums(const ot_runtime *runtime, double sums[OT_EXPERT_SUMS]);

// Runs the schedule of `mode` (train: with `micro_batches`).
ot_status ot_runtime_run(ot_runtime *runtime, ot_mode mode, int micro_batches);

// Runs OT_ORDER_CHECKSUM, for runs with ot_run_checks_compute: hashes of this rank's gradients, of
// micro-batches and scalars that are written as for a step, before any reduction. Updates nothing.
//   hashes  [parts of all parameters, in their order]; 0 for those of other ranks
ot_status ot_runtime_hash_gradients(ot_runtime *runtime, int64_t *hashes);
// The micro-batches that it needs.
int ot_runtime_hashed_micro_batches(const ot_runtime *runtime);

// On a GPU, what is in use of its memory, and all of it; on the CPU, the largest resident size of
// this process so far, and capacity -1.
typedef struct ot_runtime_memory_use {
  int64_t used_bytes, capacity_bytes;
} ot_runtime_memory_use;
ot_runtime_memory_use ot_runtime_use_of_memory(const ot_runtime *runtime);
