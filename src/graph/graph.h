// SPDX-License-Identifier: Apache-2.0
// A model as a chain of blocks (embedding, one a layer, head), each with a program, for one mode
// and one micro-batch shape. Parameters come out the same, in the same order and place, in every
// mode. Pass order: build -> place -> differentiate; recompute and order belong to the schedule.
#pragma once

#include "describe/model.h"
#include "graph/parameter.h"
#include "graph/program.h"

typedef enum ot_mode {
  OT_MODE_TRAIN,     // loss and gradients
  OT_MODE_EVALUATE,  // sum of nats and number of targets
  OT_MODE_SCORE,     // log-probability of each target and the greedy choice
  OT_MODE_LOGITS,    // logits of every row
  OT_MODE_PREFILL,   // fills the key-value cache; no head
  OT_MODE_DECODE,    // one token a sequence against the cache, to logits
  OT_MODES,
} ot_mode;

// Which part of each block a rank works on. All zero: the whole of it.
typedef struct ot_split {
  int tp, tp_index;  // heads, MLP columns, vocabulary; between them rows of the micro-batch
  int cp, cp_index;  // pieces of each sequence
  ot_context_parallel context;
} ot_split;

// What is built.
typedef struct ot_graph_request {
  const ot_model *model;  // kept; must outlive the graph
  ot_mode mode;
  int64_t micro_batch_size;  // B >= 1
  int64_t sequence_length;   // T >= 1; 1 in decode
  int64_t cache_positions;   // P of the key-value cache; prefill and decode only
  ot_dtype compute;          // OT_F32 or OT_F64
  ot_dtype storage;          // of weights and activations: compute, or OT_BF16
  int64_t head_chunk_rows;   // rows whose logits exist at once; 0 = the head op's choice
  int threads;               // of each kernel
  uint64_t seed;             // of dropout
  ot_split split;
} ot_graph_request;

typedef struct ot_block {
  const char *name;     // "embedding", "layers.3", "head"
  int layer;            // index of the layer, or -1
  int program;          // index in graph->programs
  int first_parameter;  // in graph->parameters
  int num_parameters;
  int64_t weight_elements;    // of the bucket, each parameter padded; tied uses take no room
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
  int num_blocks;
  ot_block *blocks;  // [num_blocks], each reading the output of the one before
  int num_programs;
  ot_program *programs;  // [num_programs]
  int num_parameters;
  ot_parameter *parameters;  // [num_parameters], block by block
  int num_constants;
  ot_constant constants[OT_MAX_CONSTANTS];
} ot_graph;

// Builds the graph of `request` in `arena`, differentiated in train mode.
ot_status ot_graph_build(const ot_graph_request *request, ot_arena *arena, ot_graph *graph);

// Shape of a batch field for this graph's micro-batch.
ot_tensor_type ot_graph_batch_type(const ot_graph *graph, ot_batch_field field);

// The parameter named `name`, or null.
const ot_parameter *ot_graph_parameter(const ot_graph *graph, const char *name);
