// SPDX-License-Identifier: Apache-2.0
// A model as a chain of blocks (embedding, one a layer, head), each with a program, for one mode
// and one micro-batch shape. Over ep, a layer with experts is two blocks: the attention, and in the
// *expert view* all behind it, which knows of no tp or cp: its ranks differ in their rows and,
// along ep, in the experts that they have. Norm, router and shared experts are whole on each of
// them. Parameters come out the same, in the same order and place, in every mode. Pass order:
// build, placed as it is written -> differentiate -> expand; recompute and order belong to the
// schedule.
#pragma once

#include "graph/graph_request.h"
#include "graph/parameter.h"
#include "graph/program.h"
#include "graph/share.h"

typedef struct ot_block {
  const char *name;     // "embedding", "layers.3", "layers.3.experts", "head"
  int layer;            // index of the layer, or -1
  bool experts;         // in the expert view
  int program;          // index in graph->programs
  int first_parameter;  // in graph->parameters
  int num_parameters;
  int64_t weight_elements;  // of the bucket, each parameter padded; tied uses take no room
  int64_t summed_elements;  // the first of them: parameters whose gradients are sums over
                            // OT_GROUP_TENSOR_SUM or OT_GROUP_EXPERT_SUM; the others come after
} ot_block;

// A table made once, before the first step, by one op without inputs.
typedef struct ot_constant {
  ot_op_kind op;
  ot_op_attributes attributes;
  ot_tensor_type type;
} ot_constant;

enum { OT_MAX_CONSTANTS = 2 };

typedef struct ot_graph {
  ot_graph_request request;
  ot_share share;  // what part of it this rank holds
  int num_blocks;
  ot_block *blocks;  // [num_blocks], each reading the output of the one before
  int num_programs;
  ot_program *programs;  // [num_programs]
  int num_parameters;
  ot_parameter *parameters;  // [num_parameters], block by block
  int num_constants;
  ot_constant constants[OT_MAX_CONSTANTS];
} ot_graph;

// Builds the graph of `request` in `arena`, differentiated in train mode. OT_USAGE when the model
// or the micro-batch cannot be split so, naming degrees that work; OT_ENVIRONMENT for a mode that
// runs on one rank only.
ot_status ot_graph_build(const ot_graph_request *request, ot_arena *arena, ot_graph *graph);

// Blocks that layer `layer` of `model` is with this split: one, or its attention and, in the expert
// view, the rest.
int ot_graph_layer_blocks(const ot_model *model, const ot_split *split, int layer);

// The first block of `layer`.
int ot_graph_block_of_layer(const ot_graph *graph, int layer);

// Shape of a batch field for this graph's micro-batch.
ot_tensor_type ot_graph_batch_type(const ot_graph *graph, ot_batch_field field);

// Elements of the longest row of a parameter, at least 1.
int64_t ot_graph_widest_row(const ot_graph *graph);

// The parameter named `name`, or null.
const ot_parameter *ot_graph_parameter(const ot_graph *graph, const char *name);
