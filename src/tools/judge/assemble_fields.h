// SPDX-License-Identifier: Apache-2.0
// The fields of batches: found, compared and read for assemble_rows.c.
#pragma once

#include "judge/assemble.h"

// Rows under construction. The arrays are those of the result.
typedef struct ot_row_building {
  const ot_recorded_step *step;
  ot_arena *arena;
  ot_step_rows *rows;
  int32_t *ids, *targets, *positions, *sequences, *documents, *batches;
  float *weights;
  ot_step_batch *batch;
  ot_batch_difference *differences;
  int64_t capacity;  // of `differences`
} ot_row_building;

// The fields of one batch; null: not recorded.
typedef struct ot_batch_fields {
  const ot_recorded_tensor *ids, *labels, *positions, *documents, *weight;
  bool shifted;
  int64_t sequences, length;
  ot_step_batch *batch;
} ot_batch_fields;

// "DIR/rank-00000.safetensors: tensor batch/0.ids".
const char *ot_field_label(const ot_row_building *b, const ot_recorded_tensor *field);

// The field `name` of the batch with the dp_rank and micro of `ids`, or null.
const ot_recorded_tensor *ot_field_find(const ot_row_building *b, const ot_recorded_tensor *ids,
                                        const char *name);

// The fields of the batch with these ids, of equal shapes; adds the ranks that have others to
// b->differences.
ot_status ot_fields_find(ot_row_building *b, const ot_recorded_tensor *ids, ot_batch_fields *out);

// The values that a field may have, within 32 bits.
typedef struct ot_field_range {
  int64_t least, most;
  bool may_ignore;  // also -100 and -1
  const char *hint;
} ot_field_range;

// Reads the integers of a field to `out` [elements].
ot_status ot_field_read(const ot_row_building *b, const ot_recorded_tensor *field,
                        const ot_field_range *range, int32_t *out);
