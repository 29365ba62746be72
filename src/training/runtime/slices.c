// SPDX-License-Identifier: Apache-2.0
// Intersections from the outside in: parts by the rows of their tensor, then rows (single rows if
// columns are sharded) with the requested and the held range.
#include "runtime/slices.h"

#include "base/text.h"

typedef struct range {
  int64_t first, end;
} range;

static range intersect(range a, range b) {
  return (range){a.first > b.first ? a.first : b.first, a.end < b.end ? a.end : b.end};
}

// A run of `count` elements at `whole` in the parameter and at `bucket` on this rank.
static void visit_run(const ot_slice_request *request, const ot_slice *run, ot_slice_visitor visit,
                      void *context) {
  const int64_t shift = run->bucket - run->whole;
  range r = {run->whole, run->whole + run->count};
  r = intersect(r, (range){request->first, request->first + request->count});
  r = intersect(
      r, (range){request->held_first - shift, request->held_first + request->held_count - shift});
  if (r.first >= r.end) return;
  const ot_slice found = {r.first, r.first + shift, r.end - r.first};
  visit(context, &found);
}

// Rows of the tensor that part `a` of the whole and part `b` of this rank share.
static void visit_parts(const ot_slice_request *request, const ot_parameter_part *a,
                        const ot_parameter_part *b, ot_slice_visitor visit, void *context) {
  const ot_parameter *const whole = request->whole, *const local = request->local;
  const range rows = intersect((range){a->hf_first, a->hf_first + a->rows},
                               (range){b->hf_first, b->hf_first + b->rows});
  if (rows.first >= rows.end) return;
  const int64_t whole_row = a->first_row + rows.first - a->hf_first;
  const int64_t local_row = b->first_row + rows.first - b->hf_first;
  const bool joined = local->cols == whole->cols;
  ot_slice run = {.whole = whole_row * whole->cols + b->hf_first_col - a->hf_first_col,
                  .bucket = local->offset + local_row * local->cols,
                  .count = joined ? (rows.end - rows.first) * local->cols : local->cols};
  // Skips rows outside the requested range.
  int64_t from = joined ? 0 : request->first / whole->cols - whole_row;
  int64_t to = joined ? 1 : (request->first + request->count - 1) / whole->cols - whole_row + 1;
  if (from < 0) from = 0;
  if (to > rows.end - rows.first) to = rows.end - rows.first;
  run.whole += from * whole->cols;
  run.bucket += from * local->cols;
  for (int64_t row = from; row < to; row++) {
    visit_run(request, &run, visit, context);
    run.whole += whole->cols;
    run.bucket += local->cols;
  }
}

void ot_slices_visit(const ot_slice_request *request, ot_slice_visitor visit, void *context) {
  const ot_parameter *const whole = request->whole, *const local = request->local;
  if (request->count <= 0 || request->held_count <= 0) return;
  for (int i = 0; i < local->num_parts; i++) {
    const ot_parameter_part *const part = &local->parts[i];
    if (request->counted && !part->counted) continue;
    for (int k = 0; k < whole->num_parts; k++) {
      if (!ot_text_equal(whole->parts[k].hf_name, part->hf_name)) continue;
      visit_parts(request, &whole->parts[k], part, visit, context);
    }
  }
}
