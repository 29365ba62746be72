// SPDX-License-Identifier: Apache-2.0
// Between our parameters and the tensors of HF files. A parameter is a matrix [rows, cols] made of
// parts; a part is a slice of the rows (the output dimension) of one HF tensor, which HF may store
// transposed (GPT-2). Every tensor of a model is put together from its parts, and taken apart, with
// every element accounted for.
#pragma once

#include "checkpoint/checkpoint.h"
#include "describe/model.h"
#include "graph/parameter.h"

// Rows [first_row, first_row + rows) of a parameter are the rows from hf_first on of the tensor.
typedef struct ot_weight_piece {
  int parameter;
  int64_t first_row, rows;
  int64_t hf_first;
} ot_weight_piece;

// One HF tensor as [rows, cols] in our orientation; in files [cols, rows] when transposed, with our
// rows in another order when interleaved. A name that ends in "[i]" is that of one of several which
// files have as one (weight_stack.h).
typedef struct ot_weight_tensor {
  const char *name;
  int rank;        // 1 or 2
  int64_t dim[2];  // in files
  int64_t rows, cols;
  bool transposed;
  bool interleaved;  // rows i and rows / 2 + i are neighbours in files
  int num_pieces;
  ot_weight_piece *pieces;  // [num_pieces], covering the rows in order
} ot_weight_tensor;

// Where row `row` of ours is among the rows of the file.
static inline int64_t ot_weight_file_row(const ot_weight_tensor *tensor, int64_t row) {
  if (!tensor->interleaved) return row;
  const int64_t half = tensor->rows / 2;
  return row < half ? 2 * row : 2 * (row - half) + 1;
}

typedef struct ot_weight_map {
  const ot_parameter *parameters;  // as given
  int num_tensors;
  ot_weight_tensor *tensors;  // [num_tensors] in the order of the parameters
  int *by_name;               // [num_tensors] indices in the order of names
  int tied_tensor;            // the tensor that a tied head shares, or -1
  const ot_model *files;      // what the configuration of the files says; null: they are our own
} ot_weight_map;

// Keeps `parameters` [num_parameters] and their names. Parts that do not cover their tensors are a
// bug of the graph.
ot_status ot_weight_map_build(ot_arena *arena, const ot_parameter *parameters, int num_parameters,
                              ot_weight_map *map);

// The tensor called `name`, with or without "transformer." or "model." before it; -1: none.
int ot_weight_map_find(const ot_weight_map *map, const char *name);

// Where one kind of value (weights, a moment, master copies) of all parameters is: whole rows of a
// parameter, contiguous, of `dtype`. Reading may need other ranks, and so fail.
typedef struct ot_weight_access {
  ot_dtype dtype;
  ot_status (*read)(void *context, const ot_weight_piece *rows, void *to);
  void (*write)(void *context, const ot_weight_piece *rows, const void *from);
  void *context;
  // False when nothing of the rows would be written: the tensor is then not read. Null: always
  // true.
  bool (*holds)(void *context, const ot_weight_piece *rows);
} ot_weight_access;

// Memory through which rows pass on their way, about a megabyte.
typedef struct ot_weight_stage {
  const ot_weight_map *map;
  const ot_weight_access *access;
  void *block;         // rows of a parameter
  int64_t block_rows;  // rows of any tensor that fit, at least 1
  void *turned;        // as `block`, for tensors that HF stores transposed
} ot_weight_stage;

// Keeps `map` and `access`.
void ot_weight_stage_build(ot_arena *arena, const ot_weight_map *map,
                           const ot_weight_access *access, ot_weight_stage *stage);

// Writes elements [range.first, + range.count) of tensor `range.tensor`, in HF's order, as `dtype`,
// to `out` [range.count].
ot_status ot_weights_assemble(ot_weight_stage *stage, ot_safetensors_range range, ot_dtype dtype,
                              void *out);

// ---- saving ----

// Sources of a checkpoint, one for each HF tensor: PREFIX + name ("", "m.", "v.", "master."), of
// `dtype` in the file, read through `access` when they are saved. `selected` [num_tensors] leaves
// tensors out; null: none. `sources` has room for num_tensors; *count of them are filled.
typedef struct ot_weight_export {
  const ot_weight_map *map;
  const ot_weight_access *access;
  const char *prefix;
  ot_dtype dtype;
  const bool *selected;
} ot_weight_export;
void ot_weight_sources_build(ot_arena *arena, const ot_weight_export *what,
                             ot_tensor_source *sources, int *count);

// ---- loading ----

// What a load left aside, for the user to know; text in the arena of the load.
typedef struct ot_weight_notes {
  int num_ignored;      // buffers that HF once saved and no one needs
  const char *ignored;  // their names
  bool tied_head;       // the file repeats a tied head; it was equal
  int num_scaled;       // tensors of fp8, dequantised
  int num_further;      // of layers that predict further tokens: left out
} ot_weight_notes;

// What a tensor of fp8 elements is multiplied by: a scale for each block of rows x cols of them; at
// the edges blocks are smaller.
typedef struct ot_block_scales {
  int index;  // of the tensor of scales in the files
  int64_t rows, cols;
} ot_block_scales;

// Where the elements of a tensor are in the files: from `first` of tensor `index` on.
typedef struct ot_weight_source {
  int index;
  int64_t first;  // not 0 for a matrix of an expert in a stack of all experts (transformers 5)
  const ot_block_scales *scales;  // null: the elements are the weights
} ot_weight_source;

// A tensor that is being read.
typedef struct ot_weight_reading {
  ot_checkpoint *checkpoint;
  ot_checkpoint_set set;
  ot_weight_source source;
  bool counted;  // for ot_checkpoint_account
} ot_weight_reading;

// Writes weights [first, first + count) of a tensor as `dtype` to `out` [count].
ot_status ot_weight_read(const ot_weight_reading *reading, int64_t first, int64_t count,
                         ot_dtype dtype, void *out);

// Finds the model tensors of `checkpoint` that are those of `map`: source [map->num_tensors]
// receives their places in the files. Fails as ot_weights_import does, and reads nothing but a
// repeated head.
ot_status ot_weights_match(ot_arena *arena, const ot_weight_map *map, ot_checkpoint *checkpoint,
                           ot_weight_source *source, ot_weight_notes *notes);

typedef struct ot_weight_import {
  const ot_weight_map *map;
  const ot_weight_access *access;  // [num_access]: each gets all weights (storage, then master)
  int num_access;
} ot_weight_import;

// Fills the weights from the model tensors of an HF directory or a checkpoint. Fails, naming the
// tensors, when one is missing, has no place in the model or another shape, or when a repeated tied
// head differs; and unless every element of the files was read once.
ot_status ot_weights_import(ot_arena *arena, const ot_weight_import *into,
                            ot_checkpoint *checkpoint, ot_weight_notes *notes);

// Reads back what ot_weight_sources_build had saved of the optimizer under `what->prefix`: the
// names must be there. ot_checkpoint_account checks that nothing else was.
ot_status ot_weights_restore(ot_arena *arena, const ot_weight_export *what,
                             ot_checkpoint *checkpoint);
