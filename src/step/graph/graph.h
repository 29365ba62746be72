// SPDX-License-Identifier: Apache-2.0
// A model as a chain of blocks (embedding, one per layer, head), each with a program, for one mode
// and one micro-batch shape. Over ep, a MoE layer is two blocks: attention, and in the *expert
// view* everything after it. The expert view has no tp or cp: its ranks differ in their tokens and,
// along ep, in their experts; norm, router and shared experts are replicated. Parameters and their
// offsets are the same in every mode. Pass order: build with placements -> differentiate -> expand.
// Recompute and pipeline schedule belong to schedule/.
#pragma once

#include "graph/graph_request.h"
#include "graph/local_shape.h"
#include "graph/parameter.h"
#include "graph/program.h"

typedef struct ot_block {
  const char *name;     // "embedding", "layers.3", "layers.3.experts", "head"
  int layer;            // layer index, or -1
  bool experts;         // in the expert view
  int program;          // index in graph->programs
  int first_parameter;  // in graph->parameters
  int num_parameters;
  int64_t weight_elements;  // of the bucket, with padding of each parameter; tied uses add none
  int64_t summed_elements;  // the first of them: parameters whose gradients are reduced over
                            // OT_GROUP_TENSOR_SUM or OT_GROUP_EXPERT_SUM; the others follow
} ot_block;

// A table computed once, before the first step, by one op without inputs.
typedef struct ot_constant {
  ot_op_kind op;
  ot_op_attributes attributes;
  ot_tensor_type type;
} ot_constant;

enum { OT_MAX_CONSTANTS = 2 };

typedef struct ot_graph {
  ot_graph_request request;
  ot_local_shape share;  // this rank's local shapes
  int num_blocks;
  ot_block *blocks;  // [num_blocks], each reads the output of the previous one
  int num_programs;
  ot_program *programs;  // [num_programs]
  int num_parameters;
  ot_parameter *parameters;  // [num_parameters], block by block
  int num_constants;
  ot_constant constants[OT_MAX_CONSTANTS];
} ot_graph;

// Builds the graph of `request` in `arena`, differentiated in train mode. OT_USAGE when the model
// or the micro-batch cannot be sharded that way, with degrees that work; OT_ENVIRONMENT for a mode
// that runs on one rank only.
ot_status ot_graph_build(const ot_graph_request *request, ot_arena *arena, ot_graph *graph);

// Number of blocks of layer `layer` of `model`: one, or two when the experts are a separate block.
int ot_graph_layer_blocks(const ot_model *model, const ot_split *split, int layer);

// The first block of `layer`.
int ot_graph_block_of_layer(const ot_graph *graph, int layer);

// Shape of a batch field for this graph's micro-batch.
ot_tensor_type ot_graph_batch_type(const ot_graph *graph, ot_batch_field field);

// Elements of the longest parameter row, at least 1.
int64_t ot_graph_widest_row(const ot_graph *graph);

// Elements of the largest parameter.
int64_t ot_graph_largest_parameter(const ot_graph *graph);

// The parameter named `name`, or null.
const ot_parameter *ot_graph_parameter(const ot_graph *graph, const char *name);
