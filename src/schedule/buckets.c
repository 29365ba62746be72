// SPDX-License-Identifier: Apache-2.0
// Sizes of buckets.
#include "schedule/buckets.h"

#include "base/math.h"

enum { LINE_ELEMENTS = 32 };  // a whole cache line in every type

static int64_t padded(int64_t elements, int64_t unit) {
  return (elements + unit - 1) / unit * unit;
}

// Room that the parameter takes less here than on the rank of tp that has most rows of it. Each
// parameter is padded, so rows that are missing may take none.
static int64_t missing_elements(const ot_parameter *parameter, int tp) {
  if (tp <= 1 || parameter->num_parts != 1) return 0;
  const ot_parameter_part *const part = &parameter->parts[0];
  if (part->rows == part->hf_rows) return 0;
  const int64_t most = (part->hf_rows + tp - 1) / tp;
  return padded(most * parameter->cols, LINE_ELEMENTS) -
         padded(part->rows * parameter->cols, LINE_ELEMENTS);
}

int64_t ot_bucket_elements(const ot_graph *graph, int block, int pieces) {
  const ot_block *const b = &graph->blocks[block];
  const int64_t unit = (int64_t)LINE_ELEMENTS * pieces;
  int64_t elements = b->weight_elements;
  for (int i = 0; i < b->num_parameters; i++) {
    const ot_parameter *const parameter = &graph->parameters[b->first_parameter + i];
    if (parameter->tied_to < 0) elements += missing_elements(parameter, graph->request.split.tp);
  }
  return padded(elements, unit);
}
