// SPDX-License-Identifier: Apache-2.0
// Shared by the files that write the record of a step. Private to state/.
#pragma once

#include "base/json_writer.h"
#include "host/heap.h"
#include "state/held_tensors.h"
#include "state/step_record.h"

// A tensor of the file of this rank.
typedef struct ot_recorded_values {
  const char *key;              // "grad/model.norm.weight"
  const ot_held_tensors *held;  // null: a field of a micro-batch
  int tensor;                   // of these; of a batch the field
  int micro_batch;              // of a batch
  bool after;                   // recorded after the step
} ot_recorded_values;

struct ot_step_record {
  ot_heap heap;
  ot_arena arena;
  ot_step_record_request request;
  ot_state_view view;
  ot_held_access access;
  ot_held_tensors held[OT_COPIES];  // of copies that are not kept without tensors
  int num_values;
  ot_recorded_values *values;  // [num_values] in the order of `file`
  ot_safetensors_layout file;
  ot_safetensors_writer *writer;
  const char *text_path, *config_path;
};

// The text of this rank.
const char *ot_step_record_text(const ot_step_record *record, ot_arena *arena,
                                const ot_step_record_numbers *numbers);
