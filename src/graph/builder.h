// SPDX-License-Identifier: Apache-2.0
// Writing one block's forward program: values are named, ops are appended with their output types
// inferred from the catalog, parameters are registered in the block's bucket as they are used.
// The first failure is kept in `status` and everything after it does nothing, so that a builder
// reads straight down.
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

// Attributes that every op of the graph shares: threads, compute, rows of each sequence.
ot_op_attributes ot_builder_attributes(const ot_builder *builder);

// Adds the ranks of `group` (tensor, context, expert or sequence) and this one's place among them;
// nothing where it is alone.
void ot_builder_set_group(const ot_builder *builder, ot_group_kind group,
                          ot_op_attributes *attributes);

// Adds which pieces of each sequence this rank has.
void ot_builder_set_context(const ot_builder *builder, ot_op_attributes *attributes);

// Appends the op and returns the value of its output 0; further inferred outputs follow it.
int ot_builder_op(ot_builder *builder, const ot_op_description *description);

// The same with all outputs: `made` receives the op, with -1 for its values after a failure.
int ot_builder_emit(ot_builder *builder, const ot_op_description *description, ot_op *made);

// As a value that lives on the ranks of tp as `tensor`, on those of cp as `context` and on those of
// dp as `data` says; in the expert view on those of ep as `experts` and on those of edp as `data`
// says. An axis along which nothing is split has I.
typedef struct ot_lives {
  ot_placement tensor, context, data, experts;
} ot_lives;

// A value that comes from outside the block.
int ot_builder_external(ot_builder *builder, const ot_value *value, ot_lives lives);

// The hidden rows that enter the block [own_rows, C]; they leave it likewise.
int ot_builder_input(ot_builder *builder);

// The `size` values [size, own_rows, C] that are on the stack when the block begins.
int ot_builder_stack(ot_builder *builder, int64_t size);

// Puts `x` [own_rows, C] on the stack.
void ot_builder_push(ot_builder *builder, int x);

// A constant of the graph, the same everywhere.
int ot_builder_constant(ot_builder *builder, int index, const char *name);

// A cache or result, of this rank's own samples.
int ot_builder_own(ot_builder *builder, ot_value_kind kind, int index, const char *name,
                   ot_tensor_type type);

// A batch field, or `rows` of its entries from `first` on.
int ot_builder_batch(ot_builder *builder, ot_batch_field field);
int ot_builder_batch_rows(ot_builder *builder, ot_batch_field field, int64_t first, int64_t rows);

// A sum over the step, by every rank of cp and dp of its own part.
int ot_builder_sum(ot_builder *builder, ot_step_scalar scalar, const char *name);

// A number that is known everywhere.
int ot_builder_scalar(ot_builder *builder, ot_step_scalar scalar, const char *name);

// What is added up about the experts of the block (ot_expert_sum), by every rank of its own rows.
int ot_builder_expert_sums(ot_builder *builder);

// A maximum over what each rank has.
int ot_builder_statistic(ot_builder *builder, ot_block_statistic statistic, const char *name);

// Collectives over the ranks of tp; on one rank they return `x`. Entering a tensor-parallel region:
// all rows of x; leaving it: the rows of this rank of the sum of x.
int ot_builder_gather(ot_builder *builder, int x, const char *name);
int ot_builder_scatter(ot_builder *builder, int x, const char *name);

// What all ranks of `group` have of x, one behind the other; `x` where it has one rank.
int ot_builder_gather_over(ot_builder *builder, ot_group_kind group, int x, const char *name);

// Registers `parameter` (block, offset and name completed here: `parameter->name` is local, as
// "attention.qkv.weight"), which the ranks of tp divide by `cut`, and returns its value.
int ot_builder_parameter(ot_builder *builder, const ot_parameter *parameter, ot_shard_axis cut);

// Gives the parameters of the block their places in its bucket: first those that are summed over
// tp, so that they are one range, then the others, each in the order of registration.
void ot_builder_place_parameters(ot_builder *builder);
