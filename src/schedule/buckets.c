// SPDX-License-Identifier: Apache-2.0
// Sizes of buckets.
#include "schedule/buckets.h"

#include "base/math.h"

enum { LINE_ELEMENTS = 32 };  // a whole cache line in every type

// Rows that this rank has less than the rank of tp that has most, times the columns.
static int64_t missing_elements(const ot_parameter *parameter, int tp) {
  if (tp <= 1 || parameter->num_parts != 1) return 0;
  const ot_parameter_part *const part = &parameter->parts[0];
  if (part->rows == part->hf_rows) return 0;
  const int64_t most = (part->hf_rows + tp - 1) / tp;
  return (most - part->rows) * parameter->cols;
}

int64_t ot_bucket_elements(const ot_graph *graph, int block, int pieces) {
  const ot_block *const b = &graph->blocks[block];
  const int64_t unit = (int64_t)LINE_ELEMENTS * pieces;
  int64_t elements = b->weight_elements;
  for (int i = 0; i < b->num_parameters; i++) {
    const ot_parameter *const parameter = &graph->parameters[b->first_parameter + i];
    if (parameter->tied_to < 0) elements += missing_elements(parameter, graph->request.split.tp);
  }
  return (elements + unit - 1) / unit * unit;
}
