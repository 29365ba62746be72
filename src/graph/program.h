// SPDX-License-Identifier: Apache-2.0
// The program of one block (embedding, one layer, head): values and ops in single assignment, but
// for what bodies of repeats add to (body.h); written forward by a builder, extended by
// differentiate(). Equal layers share one program; what differs between them (parameters,
// accumulators, slots) is bound when a segment runs.
#pragma once

#include "base/arena.h"
#include "graph/placement.h"
#include "ops/op.h"

typedef enum ot_value_kind {
  OT_VALUE_INPUT,        // activation that enters the block; index = ot_port
  OT_VALUE_ACTIVATION,   // made by a forward op
  OT_VALUE_PARAMETER,    // index = parameter of the block
  OT_VALUE_BATCH,        // index = ot_batch_field
  OT_VALUE_CONSTANT,     // index = constant of the graph (rope tables)
  OT_VALUE_SCALAR,       // index = ot_step_scalar
  OT_VALUE_STATISTIC,    // index = ot_block_statistic; one float64 per block
  OT_VALUE_CACHE,        // key-value cache of the block
  OT_VALUE_RESULT,       // index = ot_result; what score, prefill and decode hand out
  OT_VALUE_GRADIENT,     // made by a backward op: the gradient of value `index`, or that value
                         // gathered again for the gradient of a weight; -1: something on the way
  OT_VALUE_ACCUMULATOR,  // gradient of parameter `index`
} ot_value_kind;

// What the sampler loads for each micro-batch, by every stage. B sequences of T tokens; R = B*T, or
// B*T/cp rows of this rank of cp: its pieces of each sequence, in the order of their places.
typedef enum ot_batch_field {
  OT_BATCH_TOKENS,      // [R] i32
  OT_BATCH_TARGETS,     // [R] i32, < 0 masked
  OT_BATCH_POSITIONS,   // [R] i32, restart at document starts when documents are masked
  OT_BATCH_DOC_STARTS,  // [R] i32, index within the whole sequence of the first token of the
                        // document; under Ulysses [B*T], of all rows of each sequence
  OT_BATCH_SAMPLE_IDS,  // [B] i64, global index of the sample
  OT_BATCH_LENGTHS,     // [B] i32, decode: tokens already in the cache
  OT_BATCH_FIELDS,
} ot_batch_field;

// What enters a block, and its gradient leaves it.
typedef enum ot_port {
  OT_PORT_HIDDEN,  // what the block before made
  OT_PORT_STACK,   // what blocks before it put on the stack
} ot_port;

typedef enum ot_block_statistic {
  OT_STATISTIC_MAX_ACTIVATION,  // max |block output| of the step
  OT_STATISTIC_MAX_LOGIT,       // max scaled attention logit of the step
  OT_BLOCK_STATISTICS,          // those above are maxima, side by side
  OT_STATISTIC_EXPERTS,         // ot_expert_sum of the block, apart from them
} ot_block_statistic;

typedef enum ot_result {
  OT_RESULT_LOGPROBS,  // [R] f64
  OT_RESULT_GREEDY,    // [R] i32
  OT_RESULT_LOGITS,    // [R, V]
  OT_RESULTS,
} ot_result;

typedef struct ot_value {
  const char *name;
  ot_value_kind kind;
  ot_tensor_type type;
  int index;      // by kind, see above
  int64_t first;  // OT_VALUE_BATCH: elements of the field before these (a slice of its rows)
  ot_placement placement[OT_PLACED_AXES];
} ot_value;

// The part of a step an op belongs to.
typedef enum ot_part { OT_PART_FORWARD, OT_PART_INPUT, OT_PART_WEIGHT } ot_part;

// "F", "I", "W".
const char *ot_part_name(ot_part part);

typedef struct ot_op {
  ot_op_kind kind;
  ot_part part;
  ot_op_attributes attributes;
  int in[OT_MAX_INPUTS];    // value, or -1
  int out[OT_MAX_OUTPUTS];  // value, or -1
} ot_op;

enum { OT_MAX_PUSHED = 2 };

// Beside the one value that goes from block to block there may be a stack of such values, which
// later blocks read and nobody changes. Where a value lies on it is known when the program is
// written: behind those that enter. Its gradient is a stack, too, to which each block adds what it
// owes to those that entered, from the last block to the first.
typedef struct ot_program {
  const char *name;  // "embedding", "layer", "layer.window", "head", ...
  int num_values;
  ot_value *values;  // [num_values]
  int num_ops;
  ot_op *ops;    // [num_ops]: forward ops, then (after differentiate) backward ops in order
  int input;     // value that enters, or -1 (embedding)
  int output;    // value that leaves, or -1 (head)
  int d_output;  // gradient of output, or -1; set by differentiate
  int d_input;   // gradient of input, or -1; set by differentiate
  int stack;     // value [n, R, C] of those on the stack when the block begins, or -1
  int d_stack;   // its gradient as later blocks leave it, or -1; set by differentiate
  int num_pushed;
  int pushed[OT_MAX_PUSHED];    // values [R, C] that the block puts behind them
  int d_pushed[OT_MAX_PUSHED];  // their gradients, complete; set by differentiate
  int64_t values_capacity, ops_capacity;
} ot_program;

// Appends a value; returns its index.
int ot_program_add_value(ot_program *program, ot_arena *arena, const ot_value *value);

// Appends an op; returns its index.
int ot_program_add_op(ot_program *program, ot_arena *arena, const ot_op *op);

// Operand types of `op`, absent operands with rank 0.
void ot_program_types(const ot_program *program, const ot_op *op, ot_op_types *types);

// Whether an op of `part` reads `value`; false for -1.
bool ot_program_reads(const ot_program *program, int value, ot_part part);

// Values on the stack when the block begins, and when it ends.
int64_t ot_program_stack_size(const ot_program *program);
int64_t ot_program_stack_end(const ot_program *program);

// The place on the stack, in values from its bottom, of `value` or of what is its gradient: of what
// is put there, and of the stack as a whole, which begins at 0; -1 for any other.
int64_t ot_program_stack_place(const ot_program *program, int value);

// True when other blocks give the value: a gradient that enters backwards.
bool ot_program_enters_backwards(const ot_program *program, int value);

// True when the value is on the stack, where it stays for the backward.
bool ot_program_is_pushed(const ot_program *program, int value);

// The repeat whose body op `op` is part of, or -1.
int ot_program_repeat_of(const ot_program *program, int op);

// Two programs with the same hash run the same ops on values of the same types.
uint64_t ot_program_hash(const ot_program *program);

// Stable text, one op a line; in `arena`.
const char *ot_program_print(const ot_program *program, ot_arena *arena);
