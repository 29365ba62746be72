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

// The part of `row` in the requested and the held range; false: none.
static bool cut(const ot_slice_request *request, const ot_slice *row, ot_slice *run) {
  const int64_t shift = row->bucket - row->whole;
  range r = {row->whole, row->whole + row->count};
  r = intersect(r, (range){request->first, request->first + request->count});
  r = intersect(
      r, (range){request->held_first - shift, request->held_first + request->held_count - shift});
  if (r.first >= r.end) return false;
  *run = (ot_slice){r.first, r.first + shift, r.end - r.first};
  return true;
}

// The rows of the tensor that part `a` of the whole and part `b` of this rank share, without those
// outside the requested range.
static void begin_rows(ot_slices *s, const ot_parameter_part *a, const ot_parameter_part *b) {
  const ot_parameter *const whole = s->request.whole, *const local = s->request.local;
  const range rows = intersect((range){a->hf_first, a->hf_first + a->rows},
                               (range){b->hf_first, b->hf_first + b->rows});
  s->rows = 0;
  if (rows.first >= rows.end) return;
  const int64_t whole_row = a->first_row + rows.first - a->hf_first;
  const int64_t local_row = b->first_row + rows.first - b->hf_first;
  const int64_t count = rows.end - rows.first, last = s->request.first + s->request.count - 1;
  const bool joined = local->cols == whole->cols;
  const range wanted = {s->request.first / whole->cols - whole_row,
                        last / whole->cols - whole_row + 1};
  const range taken = joined ? (range){0, 1} : intersect((range){0, count}, wanted);
  s->rows = taken.end - taken.first;
  s->row = (ot_slice){
      .whole = (whole_row + taken.first) * whole->cols + b->hf_first_col - a->hf_first_col,
      .bucket = local->offset + (local_row + taken.first) * local->cols,
      .count = joined ? count * local->cols : local->cols};
}

// Goes on with the next pair of parts of the same tensor; false: there is none.
static bool begin_parts(ot_slices *s) {
  const ot_parameter *const whole = s->request.whole, *const local = s->request.local;
  while (s->part < local->num_parts) {
    const ot_parameter_part *const b = &local->parts[s->part];
    const bool skipped = s->request.counted && !b->counted;
    if (skipped || s->whole_part == whole->num_parts) {
      s->part++;
      s->whole_part = 0;
      continue;
    }
    const ot_parameter_part *const a = &whole->parts[s->whole_part++];
    if (!ot_text_equal(a->hf_name, b->hf_name)) continue;
    begin_rows(s, a, b);
    return true;
  }
  return false;
}

ot_slices ot_slices_of(const ot_slice_request *request) {
  const bool empty = request->count <= 0 || request->held_count <= 0;
  return (ot_slices){.request = *request, .part = empty ? request->local->num_parts : 0};
}

bool ot_slices_next(ot_slices *slices, ot_slice *run) {
  const ot_slice_request *const request = &slices->request;
  do {
    while (slices->rows > 0) {
      const bool found = cut(request, &slices->row, run);
      slices->row.whole += request->whole->cols;
      slices->row.bucket += request->local->cols;
      slices->rows--;
      if (found) return true;
    }
  } while (begin_parts(slices));
  return false;
}
