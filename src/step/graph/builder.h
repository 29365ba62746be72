// SPDX-License-Identifier: Apache-2.0
// Writes the forward program of one block: values are named, ops are appended with output types
// inferred from the catalog, parameters are registered in the block's bucket at their first use.
// The first failure is kept in `status` and later calls do nothing, so that a builder needs no
// error checks between calls.
#pragma once

#include "graph/emit.h"
#include "graph/graph.h"
#include "graph/hf_names.h"

typedef struct ot_builder {
  ot_graph *graph;
  ot_arena *arena;
  ot_block *block;
  ot_program *program;
  int64_t parameters_capacity;
  ot_status status;
} ot_builder;

// Attributes that every op of the graph shares: threads, compute dtype, tokens of each sequence.
ot_op_attributes ot_builder_attributes(const ot_builder *builder);

// Sets the size of `group` (tensor, context, expert or sequence) and this rank's index in it; does
// nothing for a group of one rank.
void ot_builder_set_group(const ot_builder *builder, ot_group_kind group,
                          ot_op_attributes *attributes);

// Sets which blocks of each sequence this rank holds.
void ot_builder_set_context(const ot_builder *builder, ot_op_attributes *attributes);

// Until `leave`, ops are parts of `module`, too. Returns the modules before, for `leave`.
ot_module_set ot_builder_enter(ot_builder *builder, ot_recompute_module module);
void ot_builder_leave(ot_builder *builder, ot_module_set before);

// Appends the op and returns the value of its output 0; further inferred outputs follow it.
int ot_builder_op(ot_builder *builder, const ot_op_description *description);

// The same with all outputs: `made` receives the op; its values are -1 after a failure.
int ot_builder_emit(ot_builder *builder, const ot_op_description *description, ot_op *made);

// Placement of a value over the mesh: `tensor` over tp, `context` over cp, `data` over dp; in the
// expert view `experts` over ep and `data` over edp. An axis that splits nothing has I.
typedef struct ot_axis_placements {
  ot_placement tensor, context, data, experts;
} ot_axis_placements;

// A value that the block receives from outside.
int ot_builder_external(ot_builder *builder, const ot_value *value, ot_axis_placements lives);

// The hidden states that enter the block [own_rows, C]; it leaves with the same shape.
int ot_builder_input(ot_builder *builder);

// The `size` hidden states [size, own_rows, C] that are on the stack when the block begins.
int ot_builder_stack(ot_builder *builder, int64_t size);

// Pushes `x` [own_rows, C] on the stack.
void ot_builder_push(ot_builder *builder, int x);

// A constant of the graph, equal on all ranks.
int ot_builder_constant(ot_builder *builder, int index, const char *name);

// A cache or a result, of this rank's samples and its heads or vocabulary.
int ot_builder_own(ot_builder *builder, ot_value_kind kind, int index, const char *name,
                   ot_tensor_type type);

// A batch field, or `rows` of its elements starting at `first`.
int ot_builder_batch(ot_builder *builder, ot_batch_field field);
int ot_builder_batch_rows(ot_builder *builder, ot_batch_field field, int64_t first, int64_t rows);

// A step-level sum: each rank of cp and dp adds its contribution.
int ot_builder_sum(ot_builder *builder, ot_step_scalar scalar, const char *name);

// A scalar that every rank knows.
int ot_builder_scalar(ot_builder *builder, ot_step_scalar scalar, const char *name);

// Statistics of the block's experts (ot_expert_sum), accumulated by every rank over its tokens.
int ot_builder_expert_sums(ot_builder *builder);

// A maximum over the values of all ranks.
int ot_builder_statistic(ot_builder *builder, ot_block_statistic statistic, const char *name);

// Collectives over the ranks of tp; `x` on one rank. Entry of a tensor-parallel region: all-gather
// of the tokens of x. Exit: reduce-scatter of x to the tokens of this rank.
int ot_builder_gather(ot_builder *builder, int x, const char *name);
int ot_builder_scatter(ot_builder *builder, int x, const char *name);

// All-gather of x over `group`, concatenated in rank order; `x` for a group of one rank.
int ot_builder_gather_over(ot_builder *builder, ot_group_kind group, int x, const char *name);

// Registers `parameter` (block, offset and full name are set here: `parameter->name` is local, as
// in "attention.qkv.weight"), sharded over tp by `cut`, and returns its value.
int ot_builder_parameter(ot_builder *builder, const ot_parameter *parameter, ot_shard_axis cut);

// Assigns the parameters their offsets in the block's bucket: first those whose gradients are
// reduced over tp, so that they form one range, then the others, each in registration order.
void ot_builder_place_parameters(ot_builder *builder);
