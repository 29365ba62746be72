// SPDX-License-Identifier: Apache-2.0
// The location on this rank of elements of a parameter of the whole model. Files, seeds and tests
// address a parameter as one matrix [rows, cols]; a rank holds some of its rows or columns (tp) as
// a run of its bucket, and possibly only a shard of the bucket (ZeRO). Both are slices of the same
// HF tensor, which relates them. Pure.
#pragma once

#include "graph/parameter.h"

// A run of elements that are contiguous on both sides.
typedef struct ot_slice {
  int64_t whole;   // first element in the parameter of the whole model, row-major
  int64_t bucket;  // first element in this rank's bucket
  int64_t count;
} ot_slice;

// Requested: elements [first, first + count) of `whole` that this rank's form of the parameter,
// `local`, has in elements [held_first, held_first + held_count) of its bucket.
typedef struct ot_slice_request {
  const ot_parameter *whole, *local;
  int64_t first, count;
  int64_t held_first, held_count;
  bool counted;  // skip the parts that another rank counts
} ot_slice_request;

// The runs of a request, in the order of this rank's parts: one for whole rows, else one per row.
typedef struct ot_slices {
  ot_slice_request request;
  int part, whole_part;  // whose rows are next; part == local->num_parts: none
  int64_t rows;          // of these that are left
  ot_slice row;          // the next of them, or all of them together
} ot_slices;

ot_slices ot_slices_of(const ot_slice_request *request);

// The next run; false: there is none.
bool ot_slices_next(ot_slices *slices, ot_slice *run);
