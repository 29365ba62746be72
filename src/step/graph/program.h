// SPDX-License-Identifier: Apache-2.0
// The program of one block (embedding, one layer, head): values and ops in single assignment,
// except for loop-carried values (body.h). A builder writes it forward, differentiate() extends it.
// Equal layers share one program; their parameters, accumulators and saved-activation buffers are
// bound when a segment runs.
#pragma once

#include "base/arena.h"
#include "describe/recompute_modules.h"
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
  OT_VALUE_RESULT,       // index = ot_result; outputs of score, prefill and decode
  OT_VALUE_GRADIENT,     // made by a backward op: the gradient of value `index`, or that value
                         // gathered again for the gradient of a weight; -1: an intermediate
  OT_VALUE_ACCUMULATOR,  // gradient of parameter `index`
} ot_value_kind;

// Fields that the data loader fills for each micro-batch, on every stage. B sequences of T tokens;
// R = B*T, or the B*T/cp tokens of this rank of cp: its blocks of each sequence, in sequence order.
typedef enum ot_batch_field {
  OT_BATCH_TOKENS,      // [R] i32
  OT_BATCH_TARGETS,     // [R] i32, < 0 masked
  OT_BATCH_POSITIONS,   // [R] i32, restart at document starts when documents are masked
  OT_BATCH_DOC_STARTS,  // [R] i32, index within the whole sequence of the first token of the
                        // document; under Ulysses [B*T], of all tokens of each sequence
  OT_BATCH_SAMPLE_IDS,  // [B] i64, global index of the sample
  OT_BATCH_IDS,         // [R, K] i32, weighted targets (ops/head.h), K = request.weighted_targets
  OT_BATCH_WEIGHTS,     // [R, K] f32, their weights
  OT_BATCH_PICKS,       // [B] i32, prefill: [S], rows whose logits are wanted
  OT_BATCH_SEQUENCES,   // [R] i32, prefill and decode: whose token it is; < 0: idle
  OT_BATCH_PAGES,       // [S, M] i32, prefill and decode: page table (ops/decode.h)
  OT_BATCH_KEYS,        // [R] i64, keys of draws (ops/head_draw.h); score with request.draw_ids
  OT_BATCH_FIELDS,
} ot_batch_field;

// Activations that enter a block; their gradients leave it in the backward.
typedef enum ot_port {
  OT_PORT_HIDDEN,  // output of the previous block
  OT_PORT_STACK,   // values that earlier blocks pushed on the stack
} ot_port;

typedef enum ot_block_statistic {
  OT_STATISTIC_MAX_ACTIVATION,  // max |block output| of the step
  OT_STATISTIC_MAX_LOGIT,       // max scaled attention logit of the step
  OT_BLOCK_STATISTICS,          // number of the above; all are maxima, stored together
  OT_STATISTIC_EXPERTS,         // ot_expert_sum of the block, stored separately
} ot_block_statistic;

typedef enum ot_result {
  OT_RESULT_LOGPROBS,  // [R] f64; over tp see ops/head.h, OT_OP_HEAD_SCORE
  OT_RESULT_GREEDY,    // [R] i32
  OT_RESULT_BEST,      // [R] f64, prefill: log-probability of the greedy choice
  OT_RESULT_SUM,       // [R] f64, prefill over tp
  OT_RESULT_LOGITS,    // [R, V]; prefill: [S, V]; V of this rank of tp
  OT_RESULT_IDS,       // [R, K] i32, score with request.draw_ids = K
  OT_RESULT_WEIGHTS,   // [R, K] f32
  OT_RESULT_ENTROPY,   // [R] f64
  OT_RESULTS,
} ot_result;

typedef struct ot_value {
  const char *name;
  ot_value_kind kind;
  ot_tensor_type type;
  int index;      // by kind, see above
  int64_t first;  // OT_VALUE_BATCH: elements of the field before this slice of its tokens
  ot_placement placement[OT_PLACED_AXES];
} ot_value;

// The phase of a step that an op belongs to.
typedef enum ot_part { OT_PART_FORWARD, OT_PART_INPUT, OT_PART_WEIGHT } ot_part;

// "F", "I", "W".
const char *ot_part_name(ot_part part);

typedef struct ot_op {
  ot_op_kind kind;
  ot_part part;
  ot_op_attributes attributes;
  int in[OT_MAX_INPUTS];    // value, or -1
  int out[OT_MAX_OUTPUTS];  // value, or -1
  ot_module_set modules;    // of forward ops: those it is a part of
} ot_op;

enum { OT_MAX_PUSHED = 2 };

// In addition to the one value that passes from block to block there may be a stack of such values,
// which later blocks only read. The index of a value on it is known when the program is written:
// pushed values follow those that enter. Its gradient is a stack too; from the last block to the
// first, each block accumulates its gradient contribution for the values that entered.
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
  int d_stack;   // its gradient from later blocks, or -1; set by differentiate
  int num_pushed;
  int pushed[OT_MAX_PUSHED];    // values [R, C] that the block pushes after them
  int d_pushed[OT_MAX_PUSHED];  // their gradients, complete; set by differentiate
  int64_t values_capacity, ops_capacity;
  ot_module_set modules;  // of the ops that are being written
} ot_program;

// Appends a value; returns its index.
int ot_program_add_value(ot_program *program, ot_arena *arena, const ot_value *value);

// Appends an op; returns its index.
int ot_program_add_op(ot_program *program, ot_arena *arena, const ot_op *op);

// Operand types of `op`, absent operands with rank 0.
void ot_program_types(const ot_program *program, const ot_op *op, ot_op_types *types);

// Whether an op of phase `part` reads `value`; false for -1.
bool ot_program_reads(const ot_program *program, int value, ot_part part);

// Values on the stack at the start and at the end of the block.
int64_t ot_program_stack_size(const ot_program *program);
int64_t ot_program_stack_end(const ot_program *program);

// The stack index, in values from the bottom, of a pushed value or its gradient; 0 for the stack as
// a whole; -1 for any other value.
int64_t ot_program_stack_index(const ot_program *program, int value);

// True for gradients that other blocks produce: they enter in the backward.
bool ot_program_enters_backwards(const ot_program *program, int value);

// True when the value is on the stack, where it stays until the backward.
bool ot_program_is_pushed(const ot_program *program, int value);

// The repeat op whose body contains op `op`, or -1 (body.h).
int ot_program_repeat_of(const ot_program *program, int op);

// Two programs with the same hash run the same ops on values of the same types.
uint64_t ot_program_hash(const ot_program *program);

// Stable text, one op per line; in `arena`.
const char *ot_program_print(const ot_program *program, ot_arena *arena);
