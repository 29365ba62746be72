// SPDX-License-Identifier: Apache-2.0
// Tensors that a record has for each layer and batch: outputs of layers, their gradients, and
// choices of experts. Modules belong to layers by their names: "model.layers.3", "transformer.h.3",
// "model.layers.3.mlp.gate".
#pragma once

#include "judge/assemble.h"

typedef struct ot_layer_tensor {
  int layer;
  int64_t batch;  // in the rows of the step
  const ot_recorded_tensor *tensor;
} ot_layer_tensor;

typedef struct ot_recorded_layers {
  const ot_recorded_step *step;
  const ot_step_rows *rows;
  ot_recorded_kind kind;
  int64_t width;  // elements of a row: hidden size, or experts of a token
  int64_t count, capacity;
  ot_layer_tensor *list;  // [count]
  int64_t left_out;       // tensors of layers with other sizes than the rows of their batch
} ot_recorded_layers;

// The layer of a module, or -1; *rest: what follows in its name, "" or ".mlp.gate".
int ot_layer_of_module(const char *name, const char **rest);

// The tensors of kind OT_RECORDED_ACT or OT_RECORDED_ACT_GRAD of whole layers, or of kind
// OT_RECORDED_ROUTES of modules in layers, whose last dimension is `width` and which have a row for
// each token of their batch. In `arena`.
ot_recorded_layers ot_recorded_layers_find(const ot_recorded_step *step, const ot_step_rows *rows,
                                           ot_recorded_kind kind, int64_t width, ot_arena *arena);

// The first batch without a tensor of `layer`, or -1: all have one.
int64_t ot_recorded_layers_lack(const ot_recorded_layers *layers, int layer, ot_arena *scratch);

// Reads real tensors of a layer to the rows of the step. Rows of a batch without a tensor, or with
// copies that differ between ranks, are left as they are.
//   out [rows->count, width], known [rows->count]: set to whether the row was read
ot_status ot_recorded_layers_read(const ot_recorded_layers *layers, int layer, ot_arena *scratch,
                                  double *out, bool *known);
