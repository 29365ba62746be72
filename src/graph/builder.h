// SPDX-License-Identifier: Apache-2.0
// Writing one block's forward program: values are named, ops are appended with their output types
// inferred from the catalog, parameters are registered in the block's bucket as they are used.
// The first failure is kept in `status` and everything after it does nothing, so that a builder
// reads straight down.
#pragma once

#include "graph/graph.h"

typedef struct ot_builder {
  ot_graph *graph;
  ot_arena *arena;
  ot_block *block;
  ot_program *program;
  int64_t parameters_capacity;
  ot_status status;
} ot_builder;

// Attributes that every op of the graph shares: threads, compute, sequence length.
ot_op_attributes ot_builder_attributes(const ot_builder *builder);

// One op to append.
typedef struct ot_op_description {
  ot_op_kind kind;
  const ot_op_attributes *attributes;
  const char *name;  // of output 0
  int num_in;
  int in[OT_MAX_INPUTS];  // [num_in] values, -1 = absent
  const int *out;         // null, or [OT_MAX_OUTPUTS]: the outputs that are not inferred
                          // (accumulators and effects), -1 for the others
} ot_op_description;

// Appends the op and returns the value of its output 0; further inferred outputs follow it.
int ot_builder_op(ot_builder *builder, const ot_op_description *description);

// A value that comes from outside the block.
int ot_builder_external(ot_builder *builder, ot_value_kind kind, int index, const char *name,
                        ot_tensor_type type);
int ot_builder_batch(ot_builder *builder, ot_batch_field field);
int ot_builder_scalar(ot_builder *builder, ot_step_scalar scalar, const char *name);

// Registers `parameter` (block, offset and name completed here: `parameter->name` is local, as
// "attention.qkv.weight") and returns its value.
int ot_builder_parameter(ot_builder *builder, const ot_parameter *parameter);
