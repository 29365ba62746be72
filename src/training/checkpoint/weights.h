// SPDX-License-Identifier: Apache-2.0
// Maps our parameters to the tensors of HF files. A parameter is a matrix [rows, cols] made of
// parts; a part is a slice of the rows (the output dimension) of one HF tensor, which HF may store
// transposed (GPT-2). Every tensor of a model is assembled from its parts, and split into them,
// with every element accounted for.
#pragma once

#include "checkpoint/checkpoint.h"
#include "describe/model.h"
#include "graph/parameter.h"

// Rows [first_row, first_row + rows) of a parameter are the tensor's rows from hf_first on.
typedef struct ot_weight_slice {
  int parameter;
  int64_t first_row, rows;
  int64_t hf_first;
} ot_weight_slice;

// One HF tensor as [rows, cols] in our orientation; in files [cols, rows] if transposed, with
// permuted rows if interleaved. A name that ends in "[i]" is one of several tensors that files
// store as one (weight_stack.h).
typedef struct ot_weight_tensor {
  const char *name;
  int rank;        // 1 or 2
  int64_t dim[2];  // in files
  int64_t rows, cols;
  bool transposed;
  bool interleaved;  // rows i and rows / 2 + i are adjacent in files
  int num_pieces;
  ot_weight_slice *pieces;  // [num_pieces], covering the rows in order
} ot_weight_tensor;

// The row of the file that holds our row `row`.
static inline int64_t ot_weight_file_row(const ot_weight_tensor *tensor, int64_t row) {
  if (!tensor->interleaved) return row;
  const int64_t half = tensor->rows / 2;
  return row < half ? 2 * row : 2 * (row - half) + 1;
}

typedef struct ot_weight_map {
  const ot_parameter *parameters;  // as given
  int num_tensors;
  ot_weight_tensor *tensors;  // [num_tensors] in the order of the parameters
  int *by_name;               // [num_tensors] indices sorted by name
  int tied_tensor;            // the tensor that a tied head shares, or -1
  const ot_model *files;      // model of the files' configuration; null: our own files
} ot_weight_map;

// Keeps `parameters` [num_parameters] and their names. Parts that do not cover their tensors are a
// bug of the graph.
ot_status ot_weight_map_build(ot_arena *arena, const ot_parameter *parameters, int num_parameters,
                              ot_weight_map *map);

// The tensor called `name`, with or without the prefix "transformer." or "model."; -1: none.
int ot_weight_map_find(const ot_weight_map *map, const char *name);

// Access to one kind of value (weights, a moment, master copies) of all parameters: whole rows of a
// parameter, contiguous, of `dtype`. Reading may involve other ranks, and so fail.
typedef struct ot_weight_access {
  ot_dtype dtype;
  ot_status (*read)(void *context, const ot_weight_slice *rows, void *to);
  void (*write)(void *context, const ot_weight_slice *rows, const void *from);
  void *context;
  // False if none of the rows would be stored: the tensor is then not read. Null: always true.
  bool (*holds)(void *context, const ot_weight_slice *rows);
} ot_weight_access;

// Staging memory for rows, about a megabyte.
typedef struct ot_weight_stage {
  const ot_weight_map *map;
  const ot_weight_access *access;
  void *block;         // rows of a parameter
  int64_t block_rows;  // rows of any tensor that fit, at least 1
  void *turned;        // same size as `block`, for tensors that HF stores transposed
} ot_weight_stage;

// Keeps `map` and `access`.
void ot_weight_stage_build(ot_arena *arena, const ot_weight_map *map,
                           const ot_weight_access *access, ot_weight_stage *stage);

// Writes elements [range.first, + range.count) of tensor `range.tensor`, in HF's order, as `dtype`,
// to `out` [range.count].
ot_status ot_weights_assemble(ot_weight_stage *stage, ot_safetensors_range range, ot_dtype dtype,
                              void *out);

// ---- saving ----

// Where a tensor of a map is among the sources of a checkpoint, and so in its layout.
typedef struct ot_weight_place {
  int tensor;     // index of the source; -1: not saved
  int64_t first;  // its first element in it: not 0 in a stack
} ot_weight_place;

// Sources of a checkpoint, one per HF tensor: PREFIX + name ("", "m.", "v.", "master."), of `dtype`
// in the file, read through `access` when saved. `selected` [num_tensors] excludes tensors; null:
// none. `sources` has space for num_tensors; *count are filled. places [num_tensors], or null,
// receives the place of each tensor.
typedef struct ot_weight_export {
  const ot_weight_map *map;
  const ot_weight_access *access;
  const char *prefix;
  ot_dtype dtype;
  const bool *selected;
} ot_weight_export;
void ot_weight_sources_build(ot_arena *arena, const ot_weight_export *what,
                             ot_tensor_source *sources, int *count, ot_weight_place *places);

// Elements [element, element + count) of a parameter, row-major, that this process writes: of all
// processes that write a checkpoint, each element belongs to one. They are at byte `offset` of its
// memory.
typedef struct ot_weight_run {
  int64_t element, count, offset;
} ot_weight_run;

typedef struct ot_weight_runs {
  int64_t num;
  const ot_weight_run *run;  // [num]
} ot_weight_runs;

// Memory of a process: of its host, or read by `read` through `stage`.
typedef struct ot_weight_memory {
  const char *host;  // null: on a device
  void (*read)(void *context, int64_t offset, void *to, int64_t bytes);
  void *context;
  char *stage;  // [stage_bytes]
  int64_t stage_bytes;
} ot_weight_memory;

// Memory to bring tensors that HF stores transposed or interleaved into the order of files, a block
// of file rows at a time; none if the map has no such tensor.
typedef struct ot_weight_turn {
  int64_t bytes;         // of `block`
  char *block;           // [bytes] in the order of the file
  unsigned char *given;  // [bytes] by element: whether it is in `block`
} ot_weight_turn;
void ot_weight_turn_build(ot_arena *arena, const ot_weight_map *map, ot_weight_turn *turn);

// Writes the elements of tensor `tensor` of `map` that `runs` list, to `place`.
typedef struct ot_weight_writing {
  const ot_weight_map *map;
  ot_dtype dtype;              // as in memory and in the file
  const ot_weight_runs *runs;  // [num_pieces of the tensor]
  const ot_weight_memory *memory;
  const ot_weight_turn *turn;
  ot_safetensors_writer *writer;
} ot_weight_writing;
ot_status ot_weights_write(const ot_weight_writing *what, int tensor, ot_weight_place place);

// ---- loading ----

// The tensors that a load skipped, as information for the user; text in the arena of the load.
typedef struct ot_weight_notes {
  int num_ignored;      // buffers of old HF versions that are not needed
  const char *ignored;  // their names
  bool tied_head;       // the file repeats a tied head; it was equal
  int num_scaled;       // tensors of fp8, dequantised
  int num_further;      // tensors of layers for multi-token prediction: skipped
} ot_weight_notes;

// The scales of an fp8 tensor: one for each block of rows x cols elements; blocks at the edges are
// smaller.
typedef struct ot_block_scales {
  int index;  // of the scales in the files
  int64_t rows, cols;
} ot_block_scales;

// The location of a tensor in the files: from element `first` of tensor `index` on.
typedef struct ot_weight_source {
  int index;
  int64_t first;  // not 0 for a matrix of an expert in a stack of all experts (transformers 5)
  const ot_block_scales *scales;  // null: the elements are the weights
} ot_weight_source;

// A tensor being read.
typedef struct ot_weight_reader {
  ot_checkpoint *checkpoint;
  ot_checkpoint_set set;
  ot_weight_source source;
  bool counted;  // for ot_checkpoint_check_complete
} ot_weight_reader;

// Writes weights [first, first + count) of a tensor as `dtype` to `out` [count].
ot_status ot_weight_read(const ot_weight_reader *reading, int64_t first, int64_t count,
                         ot_dtype dtype, void *out);

// Finds the model tensors of `checkpoint` that belong to `map`: source [map->num_tensors] receives
// their locations. Fails as ot_weights_import does, and reads only a repeated head.
ot_status ot_weights_match(ot_arena *arena, const ot_weight_map *map, ot_checkpoint *checkpoint,
                           ot_weight_source *source, ot_weight_notes *notes);

typedef struct ot_weight_import {
  const ot_weight_map *map;
  const ot_weight_access *access;  // [num_access]: each gets all weights (storage, then master)
  int num_access;
} ot_weight_import;

// Loads the weights from the model tensors of an HF directory or a checkpoint. Fails, naming the
// tensors, if one is missing, unknown to the model or of another shape, or if a repeated tied head
// differs; and unless every element of the files was read once.
ot_status ot_weights_import(ot_arena *arena, const ot_weight_import *into,
                            ot_checkpoint *checkpoint, ot_weight_notes *notes);

// Reads back the optimizer tensors that ot_weight_sources_build saved under `what->prefix`: all
// names must exist. ot_checkpoint_check_complete checks that there are no others.
ot_status ot_weights_restore(ot_arena *arena, const ot_weight_export *what,
                             ot_checkpoint *checkpoint);
