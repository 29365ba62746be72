// SPDX-License-Identifier: Apache-2.0
// THE CONTRACT: a training step on one rank as data. The simulator prices it, the executor runs it;
// neither looks at the model, the mesh or the plan. Two levels:
//
//   segment  one phase of one block as a list of tasks, with operands relative to bases; equal
//            layers share one, whatever their parameters and slots
//   order    a list of entries: which segment runs next, for which block and micro-batch, and where
//            its bases are in the arena
//
// Step-level work (clipping, optimizer, gathers, reductions) is made of segments too, so an order
// is the whole program of a rank and there is one kind of thing to check, print, price and run.
//
//   arena  | weights | gradients | moments, master | scalars, batch | activations, scratch |
//          |<--------------- persistent, for all orders ----------->|<-- laid per order -->|
#pragma once

#include "base/arena.h"
#include "ops/op.h"
#include "schedule/buckets.h"

// What a task does. Both interpreters switch over this enumeration without `default`.
typedef enum ot_task_kind {
  OT_TASK_COMPUTE,     // run kernel `op` on the operands
  OT_TASK_COLLECTIVE,  // carry out communication `op` with all ranks of its group
  OT_TASK_SEND,        // hand in[0] to rank `peer` of the group
  OT_TASK_RECEIVE,     // take out[0] from rank `peer` of the group
  OT_TASK_REPEAT,  // run the attributes.repeated tasks behind it as often as in[2] says, less one
  OT_TASK_KINDS,
} ot_task_kind;

// Lanes run concurrently. The tasks of a lane start in order and run one after the other, but
// for the pipeline lane, whose sends and receives are under way together and end as they can.
// An entry runs on its lane; a task of a compute entry may stand on the tensor lane, where it is
// started when the entry comes to it, and ended by the first task that waits for it, in a body at
// the latest with its round.
typedef enum ot_lane {
  OT_LANE_COMPUTE,   // kernels
  OT_LANE_TENSOR,    // collectives inside a block (tp, cp), between the kernels around them
  OT_LANE_GATHER,    // weights on their way to ranks that lack them
  OT_LANE_REDUCE,    // gradients on their way to their owners
  OT_LANE_PIPELINE,  // activations and their gradients between stages
  OT_LANES,
} ot_lane;

typedef enum ot_phase {
  OT_PHASE_SETUP,      // once: tables
  OT_PHASE_BEGIN,      // zero what a step accumulates
  OT_PHASE_FORWARD,    // F
  OT_PHASE_RECOMPUTE,  // R: F emitted again, as far as needed
  OT_PHASE_INPUT,      // I: gradients of inputs
  OT_PHASE_WEIGHT,     // W: gradients of weights
  OT_PHASE_BACKWARD,   // B: I and W, op by op
  OT_PHASE_TIE,        // sum the accumulators of tied uses
  OT_PHASE_NORM,       // squared gradient norms, part by part
  OT_PHASE_CLIP,       // the norm and the clip factor
  OT_PHASE_UPDATE,     // optimizer
  OT_PHASE_GATHER,     // a bucket of weights is put together
  OT_PHASE_REDUCE,     // a bucket of gradients is summed over ranks
  OT_PHASE_SEND,       // what crosses a cut of the pipeline leaves
  OT_PHASE_RECEIVE,    // and comes
  OT_PHASES,
} ot_phase;

// What an operand's offset counts from; an entry says where each is in the arena.
typedef enum ot_base {
  OT_BASE_NONE,            // absent operand
  OT_BASE_WEIGHT,          // bucket of the block's weights, whole
  OT_BASE_WEIGHT_PIECE,    // this rank's piece of it
  OT_BASE_TIED,            // bucket that holds a tied weight
  OT_BASE_GRADIENT,        // bucket of the block's accumulators
  OT_BASE_GRADIENT_PIECE,  // this rank's piece of the sum over ranks
  OT_BASE_TIED_GRADIENT,   // accumulator of a tied use, a bucket of the shape of the owner's
  OT_BASE_MOMENT_1,        // first moments (momentum)
  OT_BASE_MOMENT_2,        // second moments
  OT_BASE_MASTER,          // full-precision copy of the weights
  OT_BASE_SLOT,            // what F of (block, micro-batch) keeps to the end of I
  OT_BASE_SLOT_LONG,       // what F keeps to the end of W
  OT_BASE_SLOT_WEIGHT,     // what I keeps for W
  OT_BASE_INPUT,           // activation that enters the block
  OT_BASE_OUTPUT,          // activation that leaves it
  OT_BASE_D_OUTPUT,        // gradient that enters the block backwards
  OT_BASE_D_INPUT,         // gradient that leaves it
  OT_BASE_STACK,           // what blocks of the chunk put on the stack, and those before it
  OT_BASE_STACK_OUT,       // where the next chunk, or a message to it, has them
  OT_BASE_D_STACK,         // their gradients
  OT_BASE_D_STACK_OUT,     // where the chunk before has those
  OT_BASE_SCRATCH,         // transients of one segment (or of R and what follows it)
  OT_BASE_BATCH,           // fields of the micro-batch
  OT_BASE_CONSTANT,        // tables
  OT_BASE_SCALAR,          // ot_step_scalar, float64
  OT_BASE_STATISTIC,       // ot_block_statistic of the block, float64
  OT_BASE_EXPERTS,         // ot_expert_sum of the block, float64
  OT_BASE_SQUARES,         // squared gradient norm of each part of the block, float64
  OT_BASE_UPDATES,  // squared update and weight norm of each part of the block, float64 pairs
  OT_BASE_CACHE,    // key-value cache of the block
  OT_BASE_RESULT,   // what score and decode hand out
  OT_BASES,
} ot_base;

typedef struct ot_operand {
  ot_base base;
  int value;       // value of the program it stands for, -1 at step level
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
  int wait;  // earlier task of the segment, on another lane, that must be done first, or -1; tasks
             // of that lane before it are done then, too
} ot_task;

typedef struct ot_segment {
  const char *name;  // "layer_0.B", "update.layer_0"
  ot_phase phase;
  int num_tasks;
  ot_task *tasks;  // [num_tasks]
  int64_t scratch_bytes;
  uint64_t hash;  // equal segments are one
} ot_segment;

typedef struct ot_entry {
  ot_phase phase;
  ot_lane lane;
  int segment;
  int block;               // -1 for the whole step
  int micro_batch;         // -1 for the whole step
  int wait[OT_LANES];      // by lane: entry that must be done first, or -1; with it, all earlier
                           // entries of its lane (pipeline: that one alone)
  int64_t base[OT_BASES];  // bytes from the start of the arena; -1 where nothing is bound
} ot_entry;

typedef enum ot_order_kind {
  OT_ORDER_SETUP,
  OT_ORDER_STEP,      // one for each number of micro-batches that the run uses
  OT_ORDER_EVALUATE,  // one micro-batch
  OT_ORDER_SCORE,
  OT_ORDER_LOGITS,
  OT_ORDER_PREFILL,
  OT_ORDER_DECODE,
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

// A named range of the arena. Regions of different orders may share addresses; persistent ones
// never do.
typedef struct ot_region {
  const char *name;
  ot_memory_class class;
  bool persistent;
  int order;  // index of the order kind it belongs to when not persistent
  int64_t offset, bytes;
} ot_region;

// Bytes of each class at the moment of the peak of the training step, and the whole.
typedef struct ot_memory_bill {
  int64_t class_bytes[OT_MEMORY_CLASSES];
  int64_t peak_bytes;  // arena
} ot_memory_bill;

// The ranks that a communication of this rank is among.
typedef struct ot_group {
  int size;    // 0 where the schedule has no such group
  int index;   // of this rank
  int *ranks;  // [size] world ranks, ascending
} ot_group;

typedef struct ot_schedule {
  int rank, ranks;  // of the world
  ot_group group[OT_GROUP_KINDS];
  int threads;  // of each kernel
  ot_dtype compute;
  ot_dtype gradients;  // of accumulators: compute, or OT_BF16
  int num_segments;
  ot_segment *segments;  // [num_segments]
  int num_orders;
  ot_order *orders;  // [num_orders]
  int num_regions;
  ot_region *regions;  // [num_regions], by offset within persistent, then by order
  int num_blocks;
  ot_bucket *buckets;   // [num_blocks] what this rank holds of each block
  int num_parts;        // of all parameters, in parameter order
  int slots_per_part;   // squares has so many entries for each part, updates twice as many: one for
                        // each rank of tp, times one for each piece
  int64_t guard_bytes;  // free bytes behind each buffer, for canaries in tests
  int64_t arena_bytes;
  ot_memory_bill bill;
} ot_schedule;

// Proves, before anything runs: operands lie inside the arena; nothing is read that was not
// written, or was overwritten since by another buffer; nobody writes what a later entry still
// reads; micro-batches reach each accumulator in their order; the highest byte is the planned peak.
ot_status ot_schedule_check(const ot_schedule *schedule, ot_arena *arena);

// Stable text of segments and orders.
const char *ot_schedule_print(const ot_schedule *schedule, ot_arena *arena);

uint64_t ot_schedule_hash(const ot_schedule *schedule);

// The order of `kind` with `micro_batches` (any when 0), or -1.
int ot_schedule_find_order(const ot_schedule *schedule, ot_order_kind kind, int micro_batches);

// The region named `name`; a bug when there is none.
const ot_region *ot_schedule_region(const ot_schedule *schedule, const char *name);

const char *ot_phase_name(ot_phase phase);
const char *ot_lane_name(ot_lane lane);
const char *ot_base_name(ot_base base);
const char *ot_memory_class_name(ot_memory_class class);
const char *ot_order_name(ot_order_kind kind);

// What kind of task an op makes.
ot_task_kind ot_task_kind_of(ot_op_kind op);

// The lane that a task of `entry` runs on: the entry's, but for tensor tasks of compute entries.
ot_lane ot_task_lane(const ot_entry *entry, const ot_task *task);

// Name of what a task does: its op's.
const char *ot_task_name(const ot_task *task);

// Types of its operands.
ot_op_types ot_task_types(const ot_task *task);

// Cost of one task: matrix FLOPs, other FLOPs, bytes.
ot_cost ot_task_cost(const ot_task *task);

// Matrix FLOPs of a segment, without those of bodies of repeats: none runs where loads fit.
// `model_only` leaves out what gradients make again (repeated_flops).
double ot_segment_flops(const ot_segment *segment, bool model_only);

// Matrix FLOPs of an order; `model_only` leaves out what is made a second time (recompute, and the
// scores in attention's gradient) and the optimizer, as MFU does: 3 x forward.
double ot_order_flops(const ot_schedule *schedule, int order, bool model_only);
