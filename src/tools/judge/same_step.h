// SPDX-License-Identifier: Apache-2.0
// Whether two records are of one step: the same model, samples, settings of the optimizer, and the
// same values before the step. Samples are sequences with their targets, in any division over
// batches and ranks; values are those of whole tensors, in any division and any type.
#pragma once

#include "judge/assemble.h"

// A record, read.
typedef struct ot_step_record {
  const ot_recorded_step *step;
  const ot_step_rows *rows;
} ot_step_record;

// OT_USAGE, naming the first setting, sample or tensor that differs, with both places and values.
// Reads all weights and moments before the step of both. Works in `scratch`.
ot_status ot_same_step_check(const ot_step_record *first, const ot_step_record *second,
                             ot_arena *scratch);

// The failure of both, with "not the same step: " before it and what to try after it.
ot_status ot_same_step_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

// The part of it that is about samples.
ot_status ot_same_samples_check(const ot_step_record *first, const ot_step_record *second,
                                ot_arena *scratch);

// A sequence that is equal to an earlier one of the same record in all that a sequence has.
typedef struct ot_repeated_sample {
  int64_t row, earlier;  // first rows of both
} ot_repeated_sample;

typedef struct ot_repeated_samples {
  int64_t count;
  const ot_repeated_sample *list;  // [count]
} ot_repeated_samples;

// The repeated sequences of a record that have at least `least` rows, in `arena`.
ot_repeated_samples ot_same_samples_repeated(const ot_step_record *record, int64_t least,
                                             ot_arena *arena);

// The record whose names of tensors the other one has, too: experts by themselves are found in
// stacks, but not the other way round.
const ot_recorded_step *ot_finer_names(const ot_recorded_step *first,
                                       const ot_recorded_step *second);

// Tensors with the same number of elements, which are read side by side.
typedef struct ot_paired_views {
  int count;                         // at most 3
  const ot_recorded_step *steps[3];  // [count] that each is of
  ot_recorded_view views[3];         // [count]
} ot_paired_views;

// Receives elements [first, first + count) of each, values [views->count][count] as float64.
typedef void ot_values_receiver(void *context, double *const *values, int64_t first, int64_t count);

// Calls `receive` with one chunk after another, until all elements are read. Blocks.
ot_status ot_paired_views_read(const ot_paired_views *views, ot_values_receiver *receive,
                               void *context);

// Whether the same rows are in the same batches of the same ranks of data parallelism.
bool ot_same_batches(const ot_step_rows *first, const ot_step_rows *second);
