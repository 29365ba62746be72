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

typedef void (*ot_slice_visitor)(void *context, const ot_slice *slice);

// Calls `visit` for every run. O(runs): one for whole rows, else one per row.
void ot_slices_visit(const ot_slice_request *request, ot_slice_visitor visit, void *context);
