// SPDX-License-Identifier: Apache-2.0
// Sorts pieces by what they hold, then by the coordinates of their ranks on the axes that are not
// summed over.
#include "judge/assemble_parts.h"

#include <string.h>

#include "base/name_list.h"
#include "base/sort.h"
#include "base/text.h"

// ---- axes ----

uint32_t ot_axes_between(const ot_recorded_step *step, int a, int b) {
  uint32_t axes = 0;
  for (int i = 0; i < step->num_axes; i++)
    if (step->ranks[a].coordinate[i] != step->ranks[b].coordinate[i]) axes |= (uint32_t)1 << i;
  return axes;
}

// Ranks in the order of their coordinates on some axes.
typedef struct rank_order {
  const ot_recorded_step *step;
  uint32_t axes;
} rank_order;

static int compare_on_axes(const rank_order *order, int a, int b) {
  for (int i = 0; i < order->step->num_axes; i++) {
    const int x = order->step->ranks[a].coordinate[i], y = order->step->ranks[b].coordinate[i];
    if ((order->axes >> i & 1) != 0 && x != y) return x < y ? -1 : 1;
  }
  return 0;
}

static int compare_ranks(const void *a, const void *b, const void *context) {
  return compare_on_axes(context, *(const int *)a, *(const int *)b);
}

// Whether no two ranks have the same coordinates on `axes`.
static bool tells_apart(const ot_recorded_step *step, uint32_t axes, ot_arena *arena) {
  const rank_order order = {step, axes};
  int *const ranks = ot_arena_array(arena, step->world, sizeof *ranks);
  for (int i = 0; i < step->world; i++) ranks[i] = i;
  ot_sort(ranks, step->world, sizeof *ranks, (ot_ordering){compare_ranks, &order}, arena);
  for (int i = 1; i < step->world; i++)
    if (compare_on_axes(&order, ranks[i - 1], ranks[i]) == 0) return false;
  return true;
}

uint32_t ot_axes_shared(const ot_recorded_step *step, uint32_t over, ot_arena *arena) {
  const uint32_t all = ((uint32_t)1 << step->num_axes) - 1;
  int64_t places = 1;
  for (int i = 0; i < step->num_axes && places <= step->world; i++) places *= step->axes[i].size;
  uint32_t kept = all;
  for (int i = step->num_axes - 1; i >= 0 && places > step->world; i--) {
    const uint32_t bit = (uint32_t)1 << i;
    if ((over & bit) == 0 && tells_apart(step, kept & ~bit, arena)) kept &= ~bit;
  }
  return kept & ~over;
}

// ---- parts ----

static int compare_numbers(const int64_t *a, const int64_t *b, int64_t count) {
  for (int64_t i = 0; i < count; i++)
    if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
  return 0;
}

static int compare_held(const ot_recorded_piece *a, const ot_recorded_piece *b) {
  int order = compare_numbers(a->offset, b->offset, OT_RECORDED_DIMS);
  if (order == 0) order = compare_numbers(a->block, b->block, OT_RECORDED_DIMS);
  if (order == 0) order = (a->num_runs > b->num_runs) - (a->num_runs < b->num_runs);
  return order != 0 ? order : compare_numbers(a->runs, b->runs, 2 * (int64_t)a->num_runs);
}

static int compare_pieces(const void *a, const void *b, const void *context) {
  const ot_recorded_piece *const x = *(const ot_recorded_piece *const *)a;
  const ot_recorded_piece *const y = *(const ot_recorded_piece *const *)b;
  const int order = compare_held(x, y);
  return order != 0 ? order : compare_on_axes(context, x->rank, y->rank);
}

static int compare_copies(const void *a, const void *b, const void *context) {
  const ot_part_copy *const x = a, *const y = b;
  (void)context;
  return (x->pieces[0]->rank > y->pieces[0]->rank) - (x->pieces[0]->rank < y->pieces[0]->rank);
}

static ot_status check_sum(const ot_recorded_step *step, const ot_recorded_tensor *tensor,
                           bool further, const ot_part_copy *copy, ot_arena *arena) {
  int64_t expected = 1;
  ot_name_list axes = ot_name_list_create(arena);
  for (int i = 0; i < step->num_axes; i++) {
    if ((tensor->partial >> i & 1) == 0) continue;
    expected *= step->axes[i].size;
    ot_name_list_add(&axes, step->axes[i].name);
  }
  const int num = copy->num_pieces;
  if (further ? num % expected == 0 : num == expected) return OT_OK;
  ot_fail(OT_USAGE,
          "%s: tensor %s/%s is partial over %s, but of the %lld pieces to be summed with that of "
          "rank %d the record has %d",
          step->path, ot_recorded_kind_name(tensor->kind), tensor->name, ot_name_list_text(&axes),
          (long long)expected, copy->pieces[0]->rank, num);
  return ot_fail_hint(OT_USAGE, "each of these ranks records its piece");
}

static void build_runs(ot_part *part, ot_arena *arena) {
  const int count = part->piece->num_runs;
  int64_t *const first = ot_arena_array(arena, count, sizeof *first);
  for (int i = 1; i < count; i++) first[i] = first[i - 1] + part->piece->runs[2 * i - 1];
  part->run_first = first;
}

// The copies among `pieces` [count], which hold the same and are sorted.
static void build_copies(const rank_order *order, const ot_recorded_piece **pieces, int count,
                         ot_arena *arena, ot_part *part) {
  part->copies = ot_arena_array(arena, count, sizeof *part->copies);
  for (int i = 0; i < count; i++) {
    const bool next = i == 0 || compare_on_axes(order, pieces[i - 1]->rank, pieces[i]->rank) != 0;
    if (next) part->copies[part->num_copies++] = (ot_part_copy){.pieces = &pieces[i]};
    part->copies[part->num_copies - 1].num_pieces++;
  }
  ot_sort(part->copies, part->num_copies, sizeof *part->copies, (ot_ordering){compare_copies, NULL},
          arena);
}

ot_status ot_parts_build(const ot_recorded_step *step, const ot_recorded_tensor *tensor,
                         uint32_t sum_axes, ot_arena *arena, ot_parts *out) {
  const int count = tensor->num_pieces;
  const uint32_t over = tensor->partial | sum_axes;
  const rank_order order = {step, ot_axes_shared(step, over, arena)};
  const ot_recorded_piece **const pieces = ot_arena_array(arena, count, sizeof *pieces);
  for (int i = 0; i < count; i++) pieces[i] = &tensor->pieces[i];
  ot_sort(pieces, count, sizeof *pieces, (ot_ordering){compare_pieces, &order}, arena);
  *out = (ot_parts){.part = ot_arena_array(arena, count, sizeof *out->part)};
  for (int first = 0, end; first < count; first = end) {
    end = first + 1;
    while (end < count && compare_held(pieces[first], pieces[end]) == 0) end++;
    if (pieces[first]->elements == 0) continue;
    ot_part *const part = &out->part[out->count++];
    *part = (ot_part){.tensor = tensor, .piece = pieces[first]};
    build_runs(part, arena);
    build_copies(&order, &pieces[first], end - first, arena, part);
    const bool further = (sum_axes & ~tensor->partial) != 0;
    for (int i = 0; i < part->num_copies; i++)
      OT_TRY(check_sum(step, tensor, further, &part->copies[i], arena));
  }
  return OT_OK;
}

// ---- elements ----

// The run that holds element `at` of a piece with runs.
static int find_run(const ot_part *part, int64_t at) {
  int low = 0, high = part->piece->num_runs;
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    if (part->run_first[middle] <= at) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// Element `at` of a piece as an element of its block.
static int64_t block_element(const ot_part *part, int64_t at) {
  if (part->piece->num_runs == 0) return at;
  const int run = find_run(part, at);
  return part->piece->runs[2 * run] + at - part->run_first[run];
}

int64_t ot_part_element(const ot_part *part, int64_t at) {
  int64_t left = block_element(part, at), element = 0, stride = 1;
  for (int i = part->tensor->num_dims - 1; i >= 0; i--) {
    element += (part->piece->offset[i] + left % part->piece->block[i]) * stride;
    left /= part->piece->block[i];
    stride *= part->tensor->shape[i];
  }
  return element;
}

int64_t ot_part_find(const ot_part *part, int64_t element) {
  int64_t low = 0, high = part->piece->elements;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (ot_part_element(part, middle) < element) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

int64_t ot_part_run(const ot_part *part, int64_t at) {
  const ot_recorded_piece *const piece = part->piece;
  int64_t length = 1;  // elements of the block that follow each other: whole inner dimensions
  for (int i = part->tensor->num_dims - 1; i >= 0; i--) {
    length *= piece->block[i];
    if (piece->block[i] != part->tensor->shape[i]) break;
  }
  const int64_t element = block_element(part, at), here = length - element % length;
  if (piece->num_runs == 0) return here;
  const int run = find_run(part, at);
  const int64_t left = part->run_first[run] + piece->runs[2 * run + 1] - at;
  return left < here ? left : here;
}
