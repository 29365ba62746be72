// SPDX-License-Identifier: Apache-2.0
// THE CONTRACT: a training step of one rank as data. The simulator prices it, the executor runs it;
// neither sees the model, the mesh or the plan. Two levels:
//
//   segment  one phase of one block: a list of tasks, with operands relative to bases; equal layers
//            share one, whatever their parameters and saved activations
//   order    a program: a list of entries (its instructions), each with the segment to run, its
//            block and micro-batch, and the arena offsets of its bases
//
// Step-level work (clipping, optimizer, gathers, reductions) is made of segments too. An order is
// thus the whole program of a rank, and check, print, cost model and executor share one format.
//
//   arena  | weights | gradients | moments, master | tables, scalars | batch, activations, ... |
//          |<--------------- persistent, for all orders ------------>|<---- laid per order --->|
#pragma once

#include "base/arena.h"
#include "ops/op.h"
#include "schedule/buckets.h"

// The kinds of tasks. Both interpreters switch over this enumeration without `default`.
typedef enum ot_task_kind {
  OT_TASK_COMPUTE,     // run kernel `op` on the operands
  OT_TASK_COLLECTIVE,  // run collective `op` with all ranks of its group
  OT_TASK_SEND,        // send in[0] to rank `peer` of the group
  OT_TASK_RECEIVE,     // receive out[0] from rank `peer` of the group
  OT_TASK_REPEAT,      // loop: run the next `repeated` tasks in[2] - 1 times
  OT_TASK_PUBLISH,  // give the weights of the entry's block, of which in[0] is this rank's share,
                    // to generators, with all ranks
  OT_TASK_KINDS,
} ot_task_kind;

// Lanes run concurrently. The tasks of a lane start in order and run one after the other, except on
// the pipeline lane: its sends and receives are in flight together and complete in any order. An
// entry runs on its lane. A task of a compute entry may be on the tensor lane: it starts when the
// entry reaches it, and is completed by the first task that waits for it; in a loop body, by the
// end of the iteration at the latest.
typedef enum ot_lane {
  OT_LANE_COMPUTE,   // kernels
  OT_LANE_TENSOR,    // collectives inside a block (tp, cp), between the kernels around them
  OT_LANE_GATHER,    // all-gathers of weights, and weights to generators
  OT_LANE_REDUCE,    // reductions of gradients
  OT_LANE_PIPELINE,  // activations and their gradients between stages
  OT_LANES,
} ot_lane;

typedef enum ot_phase {
  OT_PHASE_SETUP,      // once: tables
  OT_PHASE_BEGIN,      // zero the step's accumulators
  OT_PHASE_FORWARD,    // F
  OT_PHASE_RECOMPUTE,  // R: the part of F that the backward needs again
  OT_PHASE_INPUT,      // I: gradients of inputs
  OT_PHASE_WEIGHT,     // W: gradients of weights
  OT_PHASE_BACKWARD,   // B: I and W, op by op
  OT_PHASE_TIE,        // add the gradients of a tied weight's uses
  OT_PHASE_NORM,       // squared gradient norms, by part
  OT_PHASE_CLIP,       // gradient norm and clip factor
  OT_PHASE_UPDATE,     // optimizer
  OT_PHASE_GATHER,     // all-gather of a weight bucket
  OT_PHASE_REDUCE,     // reduction of a gradient bucket over ranks
  OT_PHASE_SEND,       // send activations or their gradients to another stage
  OT_PHASE_RECEIVE,    // receive them from another stage
  OT_PHASE_PUBLISH,    // give a weight bucket to generators
  OT_PHASES,
} ot_phase;

// The base of an operand's offset; an entry gives its offset in the arena.
typedef enum ot_base {
  OT_BASE_NONE,            // absent operand
  OT_BASE_WEIGHT,          // bucket of the block's weights, gathered
  OT_BASE_WEIGHT_PIECE,    // this rank's shard of it
  OT_BASE_TIED,            // bucket that holds a tied weight
  OT_BASE_GRADIENT,        // bucket of the block's gradient accumulators
  OT_BASE_GRADIENT_PIECE,  // this rank's shard of the reduced gradient
  OT_BASE_TIED_GRADIENT,   // gradient accumulator of a tied use, a bucket like the owner's
  OT_BASE_MOMENT_1,        // first moments (momentum)
  OT_BASE_MOMENT_2,        // second moments
  OT_BASE_MASTER,          // full-precision copy of the weights
  OT_BASE_SLOT,            // activations of (block, micro-batch) saved by F until the end of I
  OT_BASE_SLOT_LONG,       // activations saved by F until the end of W
  OT_BASE_SLOT_WEIGHT,     // tensors saved by I for W
  OT_BASE_INPUT,           // input activation of the block
  OT_BASE_OUTPUT,          // output activation of the block
  OT_BASE_D_OUTPUT,        // gradient of the output
  OT_BASE_D_INPUT,         // gradient of the input
  OT_BASE_STACK,           // stack of finished blocks' outputs, from this and earlier chunks
  OT_BASE_STACK_OUT,       // the stack in the next chunk, or in the message to it
  OT_BASE_D_STACK,         // gradient of the stack
  OT_BASE_D_STACK_OUT,     // gradient of the stack in the previous chunk
  OT_BASE_SCRATCH,         // temporaries of one segment (or of R and its successor)
  OT_BASE_BATCH,           // fields of the micro-batch
  OT_BASE_CONSTANT,        // tables
  OT_BASE_SCALAR,          // ot_step_scalar, float64
  OT_BASE_STATISTIC,       // ot_block_statistic of the block, float64
  OT_BASE_EXPERTS,         // ot_expert_sum of the block, float64
  OT_BASE_SQUARES,         // squared gradient norm of each part of the block, float64; in
                           // OT_ORDER_CHECKSUM hashes of its bits, int64
  OT_BASE_UPDATES,  // squared update and weight norm of each part of the block, float64 pairs
  OT_BASE_CACHE,    // key-value cache of the block
  OT_BASE_RESULT,   // results of score and decode
  OT_BASES,
} ot_base;

typedef struct ot_operand {
  ot_base base;
  int value;       // value of the program, -1 at step level
  int64_t offset;  // bytes from the base
  ot_tensor_type type;
} ot_operand;

typedef struct ot_task {
  ot_task_kind kind;
  ot_lane lane;
  ot_op_kind op;
  ot_op_attributes attributes;
  ot_operand in[OT_MAX_INPUTS];
  ot_operand out[OT_MAX_OUTPUTS];
  int64_t workspace;  // bytes from OT_BASE_SCRATCH
  int64_t workspace_bytes;
  int wait;    // earlier task of the segment on another lane that must be complete first, or -1;
               // earlier tasks of that lane are then complete, too
  bool joins;  // one launch runs it with the task before it (schedule/joined.h)
} ot_task;

typedef struct ot_segment {
  const char *name;  // "layer_0.B", "update.layer_0"
  ot_phase phase;
  int num_tasks;
  ot_task *tasks;  // [num_tasks]
  int64_t scratch_bytes;
  uint64_t hash;  // equal segments are stored once
} ot_segment;

typedef struct ot_entry {
  ot_phase phase;
  ot_lane lane;
  int segment;
  int block;               // -1 for the whole step
  int micro_batch;         // -1 for the whole step
  int wait[OT_LANES];      // by lane: entry that must be complete first, or -1; includes all
                           // earlier ones of its lane (pipeline: only that one)
  int64_t base[OT_BASES];  // bytes from the start of the arena; -1: not bound
} ot_entry;

typedef enum ot_order_kind {
  OT_ORDER_SETUP,
  OT_ORDER_STEP,      // one per number of micro-batches used in the run
  OT_ORDER_CHECKSUM,  // gradients of few micro-batches, hashed by part and not reduced
  OT_ORDER_PUBLISH,   // the weights, bucket by bucket, to the generators of a run that learns from
                      // rewards: before the first step and after each one
  OT_ORDER_EVALUATE,  // one micro-batch
  OT_ORDER_SCORE,
  OT_ORDER_LOGITS,
  OT_ORDER_PREFILL,  // and of narrower widths: see ot_mode
  OT_ORDER_PREFILL_2,
  OT_ORDER_PREFILL_4,
  OT_ORDER_PREFILL_8,
  OT_ORDER_DECODE,
  OT_ORDER_DECODE_2,
  OT_ORDER_DECODE_4,
  OT_ORDER_DECODE_8,
} ot_order_kind;

typedef struct ot_order {
  ot_order_kind kind;
  int micro_batches;
  int num_entries;
  ot_entry *entries;  // [num_entries]
} ot_order;

typedef enum ot_memory_class {
  OT_MEMORY_WEIGHTS,
  OT_MEMORY_GRADIENTS,
  OT_MEMORY_OPTIMIZER,
  OT_MEMORY_ACTIVATIONS,
  OT_MEMORY_GATHERED,
  OT_MEMORY_BUFFERS,
  OT_MEMORY_CLASSES,
} ot_memory_class;

// A named range of the arena. Regions of different orders may overlap; persistent ones never do.
typedef struct ot_region {
  const char *name;
  ot_memory_class class;
  bool persistent;
  int order;  // index of its order kind, if not persistent
  int64_t offset, bytes;
} ot_region;

// Memory breakdown: bytes of each class at the peak of the training step, and the total.
typedef struct ot_memory_breakdown {
  int64_t class_bytes[OT_MEMORY_CLASSES];
  int64_t peak_bytes;  // size of the arena
} ot_memory_breakdown;

// Ranks of a communicator that this rank belongs to.
typedef struct ot_group {
  int size;    // 0: the schedule has no such group
  int index;   // of this rank
  int *ranks;  // [size] world ranks, ascending
} ot_group;

typedef struct ot_schedule {
  int rank, ranks;  // world rank, world size
  ot_group group[OT_GROUP_KINDS];
  int threads;  // per kernel, on the CPU
  ot_backend backend;
  ot_dtype compute;
  ot_dtype gradients;  // dtype of accumulators: compute, or OT_BF16
  int num_segments;
  ot_segment *segments;  // [num_segments]
  int num_orders;
  ot_order *orders;  // [num_orders]
  int num_regions;
  ot_region *regions;  // [num_regions], persistent ones by offset, then by order
  int num_blocks;
  ot_bucket *buckets;   // [num_blocks] this rank's share of each block
  int num_parts;        // of all parameters, in parameter order
  int slots_per_part;   // entries of squares per part: tp ranks x shards; of updates: twice as many
  int64_t guard_bytes;  // free bytes after each buffer, for canaries in tests
  int64_t arena_bytes;
  ot_memory_breakdown memory;
} ot_schedule;

// Proves before execution: operands lie inside the arena; nothing is read before it was written or
// after another buffer overwrote it; no entry overwrites data that a later one still reads;
// micro-batches reach each accumulator in order; the highest byte used equals the planned peak.
ot_status ot_schedule_check(const ot_schedule *schedule, ot_arena *arena);

// Stable text of segments and orders.
const char *ot_schedule_print(const ot_schedule *schedule, ot_arena *arena);

uint64_t ot_schedule_hash(const ot_schedule *schedule);

// The order of `kind` with `micro_batches` (any if 0), or -1.
int ot_schedule_find_order(const ot_schedule *schedule, ot_order_kind kind, int micro_batches);

// Whether the rank computes the head, which reads weighted targets.
bool ot_schedule_runs_head(const ot_schedule *schedule);

// The region named `name`; a bug if there is none.
const ot_region *ot_schedule_region(const ot_schedule *schedule, const char *name);

const char *ot_phase_name(ot_phase phase);
const char *ot_lane_name(ot_lane lane);
const char *ot_base_name(ot_base base);
const char *ot_memory_class_name(ot_memory_class class);
const char *ot_order_name(ot_order_kind kind);

// The task kind of an op.
ot_task_kind ot_task_kind_of(ot_op_kind op);

// The lane that a task of `entry` runs on: the entry's, except tensor tasks of compute entries.
ot_lane ot_task_lane(const ot_entry *entry, const ot_task *task);

// Name of the task's op.
const char *ot_task_name(const ot_task *task);

// Dtypes of its operands.
ot_op_types ot_task_types(const ot_task *task);

// Cost of one task: matrix FLOPs, other FLOPs, bytes.
ot_cost ot_task_cost(const ot_task *task);

// Matrix FLOPs of a segment, without loop bodies: none runs if the expert loads fit. `model_only`
// leaves out FLOPs that gradients recompute (repeated_flops).
double ot_segment_flops(const ot_segment *segment, bool model_only);

// Matrix FLOPs of an order. `model_only` leaves out recomputed FLOPs (recompute, and the scores in
// attention's gradient) and the optimizer, as MFU does: 3 x forward.
double ot_order_flops(const ot_schedule *schedule, int order, bool model_only);

// Matrix FLOPs of its optimizer (orthogonalisation), once a step whatever the batch.
double ot_order_update_flops(const ot_schedule *schedule, int order);
