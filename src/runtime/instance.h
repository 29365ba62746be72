// SPDX-License-Identifier: Apache-2.0
// A model in memory, ready to run: the graphs of the modes asked for, their schedule, an executor.
// Training, scoring, sampling and the audits all start from one of these; the weights in it are
// reached by parameter of the whole model, whatever this rank holds of it and wherever that lies.
#pragma once

#include "comm/comm.h"
#include "execute/execute.h"
#include "host/heap.h"
#include "schedule/build.h"

typedef struct ot_instance ot_instance;

typedef struct ot_instance_request {
  const ot_model *model;  // copied
  const ot_run *run;      // optimizer, precision, recompute; null without OT_MODE_TRAIN. Kept
  unsigned modes;         // bits 1 << ot_mode
  int64_t micro_batch_size;
  int64_t sequence_length;
  int64_t cache_positions;  // prefill and decode
  ot_dtype compute, storage;
  int threads;              // 0 = all cores of this process
  int64_t head_chunk_rows;  // 0 = the op's choice
  uint64_t seed;
  const int *micro_batches;  // [num_micro_batches] as ot_schedule_request
  int num_micro_batches;
  const char *order_csv;  // text of a compute order file, or null
  bool split_backward, poison;
  int64_t guard_bytes;
  const ot_mesh *mesh;  // null: one rank
  int rank;             // of the mesh
  ot_comm *comm;        // world of the mesh, null: one rank. Kept
  bool serial;          // nothing runs beside anything else; same bits
  // Tests: changes the schedule before it is checked, or null.
  void (*amend)(ot_schedule *schedule, ot_arena *arena, void *context);
  void *amend_context;
  bool unchecked;  // tests: what the check says of it is not heard
} ot_instance_request;

// Builds and checks the schedule, takes the memory. Weights are undefined until initialised or
// written. OT_ENVIRONMENT when there is not enough memory. Collective over the world.
ot_status ot_instance_create(const ot_instance_request *request, ot_instance **out);
void ot_instance_destroy(ot_instance **instance);

// Builds the schedule of `request` alone, in `arena`, with no memory taken: what a dry run prices
// and `orthant schedule` prints. `graphs` [OT_MODES] receives the graphs by mode.
ot_status ot_instance_plan(const ot_instance_request *request, ot_arena *arena, ot_graph *graphs,
                           ot_schedule *schedule);

// OT_ENVIRONMENT when `local_ranks` ranks of this machine that take `peak_bytes` each are more than
// its memory. ot_instance_create asks it before it takes any.
ot_status ot_instance_check_memory(int64_t peak_bytes, int local_ranks, ot_arena *arena);

const ot_schedule *ot_instance_schedule(const ot_instance *instance);
ot_executor *ot_instance_executor(ot_instance *instance);
// Graph of a mode that was asked for.
const ot_graph *ot_instance_graph(const ot_instance *instance, ot_mode mode);
// Any graph of this rank: parameters are the same in all, but prefill has no head.
const ot_graph *ot_instance_shape(const ot_instance *instance);
// A graph of the whole model, which rows of parameters are addressed by: the same on all ranks.
const ot_graph *ot_instance_whole(const ot_instance *instance);

// What a parameter has in the arena: the same order as ot_bucket_copy.
typedef enum ot_parameter_copy {
  OT_COPY_WEIGHT,    // in the storage type
  OT_COPY_GRADIENT,  // in the type of accumulators
  OT_COPY_MOMENT_1,  // in the compute type, as are the rest
  OT_COPY_MOMENT_2,
  OT_COPY_MASTER,  // only where storage and compute differ
  OT_COPIES,
} ot_parameter_copy;

// False when the copy is not kept (no training, no master weights, second moment of Muon).
bool ot_instance_has_copy(const ot_instance *instance, ot_parameter_copy copy);

// Element type of a copy.
ot_dtype ot_instance_copy_dtype(const ot_instance *instance, ot_parameter_copy copy);

// What this rank holds of the bucket of `block`; count 0: nothing.
ot_bucket_range ot_instance_held(const ot_instance *instance, int block, ot_parameter_copy copy);

// Rows [first_row, first_row + rows) of parameter `parameter` of the whole model, contiguous, in
// the copy's own type.
typedef struct ot_parameter_rows {
  int parameter;
  ot_parameter_copy copy;
  int64_t first_row, rows;
} ot_parameter_rows;

// Puts the rows together, each element from the rank that counts it, on all ranks; `to` may be null
// where they are of no use. Not during a step. Collective over the world. Blocks.
ot_status ot_instance_read(ot_instance *instance, const ot_parameter_rows *range, void *to);

// The same, where only rank 0 knows what is to be read (it saves): it calls ot_instance_lead_read
// as often as it wants and then, whatever happened, ot_instance_dismiss; the other ranks meanwhile
// call ot_instance_serve once, which returns then. Blocks.
ot_status ot_instance_lead_read(ot_instance *instance, const ot_parameter_rows *range, void *to);
ot_status ot_instance_dismiss(ot_instance *instance);
ot_status ot_instance_serve(ot_instance *instance);

// Takes out of the rows what this rank holds; all ranks are to be given the same.
void ot_instance_write(ot_instance *instance, const ot_parameter_rows *range, const void *from);

// Sets weights (and master copies) to their random initial values, moments to zero. Element i of
// HF tensor NAME depends on (seed, NAME, i) only.
ot_status ot_instance_initialize(ot_instance *instance, uint64_t seed);

// After weights were written: fills the master copies from them and zeroes the moments.
ot_status ot_instance_reset_optimizer(ot_instance *instance);

// Moments to zero, where there are any.
void ot_instance_zero_moments(ot_instance *instance);

// Loads one field of micro-batch `micro_batch` of the orders of `kind`; `data` as the field's type.
void ot_instance_load_batch(ot_instance *instance, ot_mode mode, int micro_batch,
                            ot_batch_field field, const void *data);

// Reads a field back, as it was loaded.
void ot_instance_read_batch(const ot_instance *instance, ot_mode mode, int micro_batch,
                            ot_batch_field field, void *to);

// Reads what the last run of `mode` handed out: [R] float64, [R] int32 or [R, V] of compute type.
void ot_instance_read_result(const ot_instance *instance, ot_mode mode, ot_result result, void *to,
                             int64_t bytes);

// Sums over blocks of what the last step of training, or the last forward to logits, added up about
// their experts (ot_expert_sum). Of a model with experts.
void ot_instance_expert_sums(const ot_instance *instance, double sums[OT_EXPERT_SUMS]);

// Plays the order of `mode` (train: with `micro_batches`).
ot_status ot_instance_run(ot_instance *instance, ot_mode mode, int micro_batches);

// Cores this process may use, and bytes of memory of this machine.
int ot_instance_cores(void);
int64_t ot_instance_memory(void);
