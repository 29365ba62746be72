// SPDX-License-Identifier: Apache-2.0
// Whole tensors and batches of a recorded step, from what its ranks hold. Copies of one part are
// compared bit by bit: a difference between ranks is the best evidence of a missing reduction, so
// it is reported and not an error. Parts that leave holes, or overlap with other values, are.
#pragma once

#include "judge/recorded.h"

// ---- tensors ----

typedef struct ot_assembly_request {
  const ot_recorded_view *view;
  int64_t first, count;  // elements of the view
  ot_dtype dtype;        // of the result: OT_F32, which rounds, or OT_F64
  uint32_t sum_axes;     // axes, by bits, over which copies are summed as if they were partial
  // The copy that is used: the first, or one that a rank at `coordinate` of `axis` holds.
  bool choose;
  int axis, coordinate;
} ot_assembly_request;

// A copy that differs from the one that is used.
typedef struct ot_copy_difference {
  int rank, other;   // the first ranks of this copy, and of the one that is used
  uint32_t axes;     // on which their coordinates differ
  int64_t elements;  // that differ
  int64_t first;     // of these, as an element of the view
  double relative;  // norm of the difference / norm of the copy that is used; where both are finite
} ot_copy_difference;

typedef struct ot_assembly {
  uint32_t copied_axes;     // over which there are copies
  uint32_t differing_axes;  // over which they differ: between ranks that differ on this axis only
  int64_t num_differences;
  const ot_copy_difference *differences;  // [num_differences]
} ot_assembly;

// Writes elements [first, first + count) of a view to `out` [count] of request->dtype: partial
// pieces are summed, in float64 and in the order of their ranks. `report` is in `arena`. OT_USAGE,
// naming tensor, elements and ranks, where no rank holds an element, ranks hold different values
// for overlapping parts, or a partial piece is missing. Reads each piece once; memory: a bit for
// each element. A null report is not made, and needs no arena. Blocks.
ot_status ot_assemble(const ot_recorded_step *step, const ot_assembly_request *request,
                      ot_arena *arena, void *out, ot_assembly *report);

// ---- batches ----

// A batch of the step; it counts once, on however many ranks it is.
typedef struct ot_step_batch {
  int dp_rank, micro;
  int rank;                    // the first that recorded it
  int64_t first_row, rows;     //
  int64_t sequences, targets;  // sequences, and rows with a target
  double weight;               // sum over the rows with a target
} ot_step_batch;

// Two ranks that should have read the same batch recorded different ones.
typedef struct ot_batch_difference {
  int dp_rank, micro;
  const char *field;  // "ids"
  int rank, other;
} ot_batch_difference;

// The tokens of a step, one row each, in the order of dp_rank, micro, sequence and position.
typedef struct ot_step_rows {
  int64_t count;
  const int32_t *ids;        // [count] in the vocabulary
  const int32_t *targets;    // [count] the id that the row predicts; -1: none
  const int32_t *positions;  // [count]
  const int32_t *sequences;  // [count] first row of its sequence
  const int32_t *documents;  // [count] first row that it may attend to: of its document
  const float *weights;      // [count] of its loss; 0 without a target
  const int32_t *batches;    // [count] index of its batch
  int64_t num_batches;
  const ot_step_batch *batch;  // [num_batches]
  int64_t num_differences;
  const ot_batch_difference *differences;  // [num_differences]
} ot_step_rows;

// Reads all batches into `arena`. OT_USAGE, naming file, tensor, element and value, for ids and
// labels outside of the vocabulary, fields of other shapes than the ids, documents that are in two
// parts, and ranks without a batch where other ranks have none of the same data.
ot_status ot_assemble_rows(const ot_recorded_step *step, ot_arena *arena, ot_step_rows *out);
