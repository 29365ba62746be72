// SPDX-License-Identifier: Apache-2.0
// Writes a step of a run as a record that `orthant judge` reads (docs/record.md): of each rank the
// tensors that it holds and their places. Only files say what was recorded: the reader shares no
// code with this writer but names and safetensors. All functions are local and block; the caller
// lets the ranks agree.
#pragma once

#include "data/micro_batch.h"
#include "state/training_state.h"

typedef struct ot_step_record ot_step_record;

typedef struct ot_step_record_request {
  const char *directory;  // exists, seen by all ranks, and has no files of this rank
  const ot_run *run;
  const ot_tokenizer *tokenizer;  // of config.json; or null
  ot_runtime *runtime;
  ot_world *world;       // null: one rank
  ot_position position;  // before the step
  int micro_batches;     // of the step, per rank
} ot_step_record_request;

// Lists the tensors of this rank and creates their file at its full size, so that a full disk shows
// here. Keeps the members of `request` until destroy.
ot_status ot_step_record_create(const ot_step_record_request *request, ot_step_record **out);
void ot_step_record_destroy(ot_step_record **record);

// Weights, moments and master weights before the step.
ot_status ot_step_record_write_before(ot_step_record *record);

// A micro-batch with whole sequences; a later call for the same one replaces it.
ot_status ot_step_record_write_batch(ot_step_record *record, int micro_batch,
                                     const ot_micro_batch *rows);

// Reduced gradients, and weights, moments and master weights after the step.
ot_status ot_step_record_write_after(ot_step_record *record);

// Numbers of the step; NaN: unknown.
typedef struct ot_step_record_numbers {
  double loss, norm;  // as ot_step_report has them
} ot_step_record_numbers;

// Syncs the tensors and writes the text of this rank, and on the leader config.json.
ot_status ot_step_record_finish(ot_step_record *record, const ot_step_record_numbers *numbers);

// Removes the files of this rank; null: none.
void ot_step_record_remove(const ot_step_record *record);
