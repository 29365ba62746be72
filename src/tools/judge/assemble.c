// SPDX-License-Identifier: Apache-2.0
// The elements of a piece are in the order of the whole tensor, so that any range of the tensor is
// one range of each piece: it is read in chunks, summed, compared with its copies and spread over
// the result.
#include "judge/assemble.h"

#include <math.h>
#include <string.h>

#include "base/name_list.h"
#include "base/text.h"
#include "files/content_hash.h"
#include "host/heap.h"
#include "judge/assemble_parts.h"

enum { CHUNK = 1 << 14, COMPARED_MAX = 1 << 10 };

// How a copy differs from the one that is used.
typedef struct copy_state {
  uint64_t hash;  // of its values
  int64_t elements, first;
  double square, base;  // sums of squares of the difference, and of the copy that is used
} copy_state;

// A part while it is read.
typedef struct part_state {
  const ot_part *part;
  int used;            // the copy that is written
  copy_state *copies;  // [part->num_copies]
} part_state;

// One call.
typedef struct assembling {
  const ot_recorded_step *step;
  const ot_assembly_request *request;
  int64_t first, end;             // of the tensor
  ot_arena *arena;                // of the report
  ot_arena *scratch;              // of this call
  unsigned char *covered;         // a bit for each element of the range
  double *values, *other, *term;  // [CHUNK]
  void *out;
  ot_assembly *report;
  ot_copy_difference *differences;
  int64_t capacity;
} assembling;

static const char *label(const assembling *a) {
  const ot_recorded_tensor *const tensor = a->request->view->tensor;
  return ot_arena_format(a->scratch, "%s: tensor %s/%s", a->step->path,
                         ot_recorded_kind_name(tensor->kind), tensor->name);
}

// ---- values ----

// Elements [at, at + count) of the sum of a copy's pieces.
static ot_status load_copy(const assembling *a, const ot_part_copy *copy, int64_t at, int64_t count,
                           double *sum) {
  const ot_recorded_tensor *const tensor = a->request->view->tensor;
  const ot_recorded_range range = {at, count, OT_F64};
  OT_TRY(ot_recorded_load(a->step, tensor, copy->pieces[0], range, sum));
  for (int i = 1; i < copy->num_pieces; i++) {
    OT_TRY(ot_recorded_load(a->step, tensor, copy->pieces[i], range, a->term));
    for (int64_t k = 0; k < count; k++) sum[k] += a->term[k];
  }
  return OT_OK;
}

static bool same_bits(double x, double y) { return memcmp(&x, &y, sizeof x) == 0; }

// Compares a->other [count], from element `at` of the part on, with a->values.
static void compare_values(const assembling *a, const ot_part *part, int64_t at, int64_t count,
                           copy_state *state) {
  for (int64_t k = 0; k < count; k++) {
    const double x = a->values[k], y = a->other[k];
    const bool finite = isfinite(x) && isfinite(y);
    if (finite) state->base += x * x;
    if (same_bits(x, y)) continue;
    if (finite) state->square += (y - x) * (y - x);
    if (state->elements++ == 0)
      state->first = ot_part_element(part, at + k) - a->request->view->first;
  }
}

static ot_status fail_overlap(const assembling *a, int64_t element, double value, int rank) {
  ot_fail(OT_USAGE,
          "%s: element %lld is %.9g at rank %d, and another value at a rank whose part overlaps",
          label(a), (long long)element, value, rank);
  return ot_fail_hint(OT_USAGE, "check the offsets of both parts; copies are the same part");
}

// Writes one value to the result, where an overlapping part has put the same one or none.
static bool store(const assembling *a, int64_t at, double value) {
  const bool wide = a->request->dtype == OT_F64;
  const float narrow = (float)value;
  const void *const from = wide ? (const void *)&value : &narrow;
  const size_t bytes = wide ? sizeof value : sizeof narrow;
  char *const to = (char *)a->out + (size_t)at * bytes;
  const unsigned char bit = (unsigned char)(1 << at % 8);
  if ((a->covered[at / 8] & bit) != 0) return memcmp(to, from, bytes) == 0;
  a->covered[at / 8] |= bit;
  memcpy(to, from, bytes);
  return true;
}

static ot_status spread(const assembling *a, const ot_part *part, int64_t at, int64_t count) {
  for (int64_t done = 0; done < count;) {
    const int64_t element = ot_part_element(part, at + done), run = ot_part_run(part, at + done);
    const int64_t many = run < count - done ? run : count - done;
    for (int64_t k = 0; k < many; k++)
      if (!store(a, element + k - a->first, a->values[done + k]))
        return fail_overlap(a, element + k - a->request->view->first, a->values[done + k],
                            part->piece->rank);
    done += many;
  }
  return OT_OK;
}

// ---- parts ----

// The copy that is used: the first, or the first with a rank at the chosen coordinate.
static int choose_copy(const assembling *a, const ot_part *part) {
  const ot_assembly_request *const request = a->request;
  for (int i = 0; request->choose && i < part->num_copies; i++) {
    const ot_part_copy *const copy = &part->copies[i];
    for (int k = 0; k < copy->num_pieces; k++)
      if (a->step->ranks[copy->pieces[k]->rank].coordinate[request->axis] == request->coordinate)
        return i;
  }
  return 0;
}

static int rank_of(const ot_part *part, int copy) { return part->copies[copy].pieces[0]->rank; }

// Adds the axes on which copies differ: those on which two of them differ that share all others;
// without such a pair, those between the first two that differ.
static void add_differing_axes(const assembling *a, const part_state *state) {
  const ot_recorded_step *const step = a->step;
  const ot_part *const part = state->part;
  const int copies = part->num_copies < COMPARED_MAX ? part->num_copies : COMPARED_MAX;
  uint32_t found = 0, between = 0;
  for (int axis = 0; axis < step->num_axes; axis++) {
    const uint32_t shared = ot_axes_shared(step, (uint32_t)1 << axis, a->scratch);
    for (int i = 1; i < copies; i++)
      for (int k = 0; k < i && (found >> axis & 1) == 0; k++) {
        const uint32_t axes = ot_axes_between(step, rank_of(part, i), rank_of(part, k));
        if (state->copies[i].hash == state->copies[k].hash) continue;
        if (between == 0) between = axes;
        if ((axes & shared) == 0 && (axes >> axis & 1) != 0) found |= (uint32_t)1 << axis;
      }
  }
  a->report->differing_axes |= found != 0 ? found : between;
}

static double ratio(const copy_state *copy) {
  return copy->square > 0 ? sqrt(copy->square) / sqrt(copy->base) : 0;
}

static void add_differences(assembling *a, const part_state *state) {
  const ot_part *const part = state->part;
  const int other = rank_of(part, state->used);
  bool differ = false;
  for (int i = 0; i < part->num_copies; i++) {
    const copy_state *const copy = &state->copies[i];
    const int rank = rank_of(part, i);
    a->report->copied_axes |= ot_axes_between(a->step, rank, other);
    if (copy->elements == 0) continue;
    differ = true;
    a->differences = ot_arena_grow(a->arena, a->differences, a->report->num_differences,
                                   &a->capacity, sizeof *a->differences);
    a->differences[a->report->num_differences++] =
        (ot_copy_difference){.rank = rank,
                             .other = other,
                             .axes = ot_axes_between(a->step, rank, other),
                             .elements = copy->elements,
                             .first = copy->first,
                             .relative = ratio(copy)};
  }
  if (differ) add_differing_axes(a, state);
}

static uint64_t hash_values(uint64_t hash, const double *values, int64_t count) {
  const uint64_t both[] = {hash, ot_content_hash_block(values, count * (int64_t)sizeof *values)};
  return ot_content_hash_block(both, sizeof both);
}

static ot_status assemble_chunk(const assembling *a, const part_state *state, int64_t at,
                                int64_t count) {
  const ot_part *const part = state->part;
  copy_state *const copies = state->copies;
  OT_TRY(load_copy(a, &part->copies[state->used], at, count, a->values));
  copies[state->used].hash = hash_values(copies[state->used].hash, a->values, count);
  for (int i = 0; i < part->num_copies; i++) {
    if (i == state->used) continue;
    OT_TRY(load_copy(a, &part->copies[i], at, count, a->other));
    copies[i].hash = hash_values(copies[i].hash, a->other, count);
    compare_values(a, part, at, count, &copies[i]);
  }
  return spread(a, part, at, count);
}

static ot_status assemble_part(assembling *a, const ot_part *part) {
  const int64_t first = ot_part_find(part, a->first), end = ot_part_find(part, a->end);
  const part_state state = {
      .part = part,
      .used = choose_copy(a, part),
      .copies = ot_arena_array(a->scratch, part->num_copies, sizeof *state.copies)};
  for (int64_t at = first; at < end; at += CHUNK) {
    const int64_t count = end - at < CHUNK ? end - at : CHUNK;
    OT_TRY(assemble_chunk(a, &state, at, count));
  }
  if (first < end) add_differences(a, &state);
  return OT_OK;
}

// ---- the whole ----

static bool is_covered(const assembling *a, int64_t at) {
  return (a->covered[at / 8] >> at % 8 & 1) != 0;
}

static ot_status check_covered(const assembling *a) {
  const ot_recorded_tensor *const tensor = a->request->view->tensor;
  const int64_t count = a->request->count;
  int64_t hole = 0;
  while (hole < count && is_covered(a, hole)) hole++;
  if (hole == count) return OT_OK;
  int64_t end = hole;
  while (end < count && !is_covered(a, end)) end++;
  ot_name_list ranks = ot_name_list_create(a->scratch);
  for (int i = 0; i < tensor->num_pieces; i++)
    ot_name_list_add(&ranks, ot_arena_format(a->scratch, "%d", tensor->pieces[i].rank));
  const int64_t shift = a->request->first;
  ot_fail(OT_USAGE, "%s: no rank holds elements %lld to %lld of [%s]; ranks %s hold others",
          label(a), (long long)(hole + shift), (long long)(end + shift - 1),
          ot_dims_text(a->scratch, a->request->view->shape, a->request->view->num_dims),
          ot_name_list_text(&ranks));
  return ot_fail_hint(OT_USAGE,
                      "each rank records its part: check offsets, and names on all ranks");
}

static ot_status assemble(assembling *a) {
  ot_parts parts;
  a->covered = ot_arena_take(a->scratch, a->request->count / 8 + 1);
  a->values = ot_arena_array(a->scratch, CHUNK, sizeof *a->values);
  a->other = ot_arena_array(a->scratch, CHUNK, sizeof *a->other);
  a->term = ot_arena_array(a->scratch, CHUNK, sizeof *a->term);
  OT_TRY(
      ot_parts_build(a->step, a->request->view->tensor, a->request->sum_axes, a->scratch, &parts));
  for (int i = 0; i < parts.count; i++) OT_TRY(assemble_part(a, &parts.part[i]));
  a->report->differences = a->differences;
  return check_covered(a);
}

ot_status ot_assemble(const ot_recorded_step *step, const ot_assembly_request *request,
                      ot_arena *arena, void *out, ot_assembly *report) {
  const ot_recorded_view *const view = request->view;
  OT_ASSERT(request->first >= 0 && request->count >= 0 &&
            request->count <= view->elements - request->first);
  OT_ASSERT(request->dtype == OT_F32 || request->dtype == OT_F64);
  OT_ASSERT(ot_dtype_is_real(view->tensor->dtype));
  ot_heap heap = {0};
  ot_arena scratch = ot_heap_arena_create(&heap);
  ot_assembly unwanted;
  ot_assembly *const to = report ? report : &unwanted;
  *to = (ot_assembly){0};
  assembling a = {.step = step,
                  .request = request,
                  .arena = report ? arena : &scratch,
                  .scratch = &scratch,
                  .first = view->first + request->first,
                  .out = out,
                  .report = to};
  a.end = a.first + request->count;
  const ot_status status = assemble(&a);
  ot_heap_release(&heap);
  return status;
}
