// SPDX-License-Identifier: Apache-2.0
// Copies rows of parameters between callers, which address the whole model, and this rank's
// buckets.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/elements.h"
#include "runtime/runtime_state.h"
#include "runtime/slices.h"
#include "schedule/block_view.h"
#include "schedule/update.h"

static_assert((int)OT_COPY_WEIGHT == (int)OT_BUCKET_WEIGHT &&
                  (int)OT_COPY_MASTER == (int)OT_BUCKET_MASTER,
              "one order of copies");

bool ot_runtime_has_copy(const ot_runtime *runtime, ot_parameter_copy copy) {
  for (int i = 0; i < runtime->schedule.num_blocks; i++) {
    if (runtime->schedule.buckets[i].copy[copy].count > 0) return true;
  }
  return false;
}

ot_dtype ot_runtime_copy_dtype(const ot_runtime *runtime, ot_parameter_copy copy) {
  const ot_graph_request *const request = &runtime->shape->request;
  switch (copy) {
    case OT_COPY_WEIGHT:
      return request->storage;
    case OT_COPY_GRADIENT:
      return ot_graph_gradient_type(request);
    case OT_COPY_MOMENT_1:
    case OT_COPY_MOMENT_2:
      return ot_graph_moment_type(request);
    case OT_COPY_MASTER:
      return request->compute;
    case OT_COPIES:
      break;
  }
  OT_UNREACHABLE();
}

ot_bucket_range ot_runtime_held_range(const ot_runtime *runtime, int block,
                                      ot_parameter_copy copy) {
  return runtime->schedule.buckets[block].copy[copy];
}

// The first of the ranks that hold the same shard of the block's bucket, or all of it.
static bool counts(const ot_runtime *runtime, int block, bool whole) {
  const ot_block *const shape = &runtime->shape->blocks[block];
  if (!shape->experts) return whole ? runtime->counts_buckets : runtime->counts_shards;
  const ot_schedule *const schedule = &runtime->schedule;
  const bool first = ot_view_group(schedule, shape, OT_GROUP_SHARD)->index == 0;
  return (first || !whole) && ot_view_group(schedule, shape, OT_GROUP_REPLICATE)->index == 0;
}

static bool counts_copy(const ot_runtime *runtime, int block, ot_parameter_copy copy) {
  const ot_bucket *const bucket = &runtime->schedule.buckets[block];
  // Second moments may be kept of a part only; the first ones tell whether ranks share them out.
  const bool second = copy == OT_COPY_MOMENT_2;
  const bool whole = bucket->copy[second ? OT_COPY_MOMENT_1 : copy].count >= bucket->elements;
  return bucket->counted && counts(runtime, block, whole);
}

// Elements [first, first + count) of the parameter of `range` that this rank holds, or of those the
// ones that it counts.
static ot_slices slices_of(const ot_runtime *runtime, const ot_parameter_rows *range,
                           ot_slice_request wanted) {
  const ot_parameter *const local = &runtime->shape->parameters[range->parameter];
  const ot_bucket_range *const held = &runtime->schedule.buckets[local->block].copy[range->copy];
  wanted.whole = &runtime->whole->parameters[range->parameter];
  wanted.local = local;
  wanted.held_first = held->first;
  wanted.held_count =
      wanted.counted && !counts_copy(runtime, local->block, range->copy) ? 0 : held->count;
  return ot_slices_of(&wanted);
}

// Copies slices between the arena and `memory`, whose first element is element `first` of the
// parameter.
typedef struct transfer {
  ot_executor *executor;
  ot_bucket_range held;
  int64_t size;  // bytes per element
  int64_t first;
  char *to;          // null: write
  const char *from;  // null: read
} transfer;

static void copy_slice(const transfer *t, const ot_slice *slice) {
  const int64_t offset = t->held.offset + (slice->bucket - t->held.first) * t->size;
  const int64_t place = (slice->whole - t->first) * t->size;
  const int64_t bytes = slice->count * t->size;
  if (t->to) {
    ot_executor_read(t->executor, offset, t->to + place, bytes);
  } else {
    ot_executor_write(t->executor, offset, t->from + place, bytes);
  }
}

// Elements [t->first, t->first + count) of parameter `range->parameter`.
static void copy_elements(const ot_runtime *runtime, const ot_parameter_rows *range, transfer *t,
                          int64_t count) {
  const int block = runtime->shape->parameters[range->parameter].block;
  t->executor = runtime->executor;
  t->held = ot_runtime_held_range(runtime, block, range->copy);
  t->size = ot_dtype_bytes(ot_runtime_copy_dtype(runtime, range->copy));
  const ot_slice_request wanted = {.first = t->first, .count = count, .counted = t->to != NULL};
  ot_slices slices = slices_of(runtime, range, wanted);
  for (ot_slice slice; ot_slices_next(&slices, &slice);) copy_slice(t, &slice);
}

static int64_t first_element(const ot_runtime *runtime, const ot_parameter_rows *range,
                             int64_t *count) {
  const ot_parameter *const whole = &runtime->whole->parameters[range->parameter];
  OT_ASSERT(range->first_row >= 0 && range->first_row + range->rows <= whole->rows);
  *count = range->rows * whole->cols;
  return range->first_row * whole->cols;
}

// Elements [first, first + count), filling in those that this rank counts.
static void collect(const ot_runtime *runtime, const ot_parameter_rows *range, int64_t first,
                    int64_t count, char *to) {
  transfer t = {.first = first, .to = to};
  copy_elements(runtime, range, &t, count);
}

ot_status ot_runtime_read(ot_runtime *runtime, const ot_parameter_rows *range, void *to) {
  int64_t count;
  const int64_t first = first_element(runtime, range, &count);
  const int64_t size = ot_dtype_bytes(ot_runtime_copy_dtype(runtime, range->copy));
  if (!runtime->exchange) {
    collect(runtime, range, first, count, to);
    return OT_OK;
  }
  const int64_t word = sizeof(int64_t);
  char *const words = (char *)ot_host_allreduce_words(runtime->exchange);
  const int64_t most = ot_host_allreduce_capacity(runtime->exchange) * word / size;
  for (int64_t done = 0; done < count; done += most) {
    const int64_t n = count - done < most ? count - done : most;
    const int64_t num_words = (n * size + word - 1) / word;
    memset(words, 0, (size_t)(num_words * word));
    collect(runtime, range, first + done, n, words);
    OT_TRY(ot_host_allreduce_integers(runtime->exchange, num_words));
    if (to) memcpy((char *)to + done * size, words, (size_t)(n * size));
  }
  return OT_OK;
}

// ---- reads led by rank 0 ----

// The words of an announcement; all zero: dismiss.
enum { READS, PARAMETER, COPY, FIRST_ROW, ROWS, ANNOUNCED_WORDS };

static ot_status announce(ot_runtime *runtime, const ot_parameter_rows *range) {
  int64_t *const words = ot_host_allreduce_words(runtime->exchange);
  memset(words, 0, ANNOUNCED_WORDS * sizeof *words);
  if (range) {
    words[READS] = 1;
    words[PARAMETER] = range->parameter;
    words[COPY] = range->copy;
    words[FIRST_ROW] = range->first_row;
    words[ROWS] = range->rows;
  }
  return ot_host_allreduce_integers(runtime->exchange, ANNOUNCED_WORDS);
}

ot_status ot_runtime_read_leader(ot_runtime *runtime, const ot_parameter_rows *range, void *to) {
  if (runtime->exchange) OT_TRY(announce(runtime, range));
  return ot_runtime_read(runtime, range, to);
}

ot_status ot_runtime_end_reads(ot_runtime *runtime) {
  return runtime->exchange ? announce(runtime, NULL) : OT_OK;
}

ot_status ot_runtime_serve_reads(ot_runtime *runtime) {
  while (runtime->exchange) {
    OT_TRY(announce(runtime, NULL));
    const int64_t *const words = ot_host_allreduce_words(runtime->exchange);
    if (!words[READS]) break;
    const ot_parameter_rows range = {.parameter = (int)words[PARAMETER],
                                     .copy = (ot_parameter_copy)words[COPY],
                                     .first_row = words[FIRST_ROW],
                                     .rows = words[ROWS]};
    OT_TRY(ot_runtime_read(runtime, &range, NULL));
  }
  return OT_OK;
}

// ---- weights to generators ----

static int last_parameter(const ot_graph *whole) {
  int last = whole->num_parameters - 1;
  while (whole->parameters[last].tied_to >= 0) last--;
  return last;
}

ot_status ot_runtime_publish_block(void *runtime, int block) {
  ot_runtime *const r = runtime;
  const ot_weight_taker *const taker = &r->taker;
  const ot_block *const b = &r->whole->blocks[block];
  for (int i = b->first_parameter; i < b->first_parameter + b->num_parameters; i++) {
    const ot_parameter *const p = &r->whole->parameters[i];
    if (p->tied_to >= 0) continue;
    OT_TRY(ot_runtime_read(r, &(ot_parameter_rows){i, OT_COPY_WEIGHT, 0, p->rows}, r->published));
    if (!taker->take) continue;
    OT_TRY(taker->take(taker->context, p, r->published, i == last_parameter(r->whole)));
  }
  return taker->bucket ? taker->bucket(taker->context) : OT_OK;
}

ot_status ot_runtime_publish(ot_runtime *runtime, const ot_weight_taker *taker) {
  const int order = ot_schedule_find_order(&runtime->schedule, OT_ORDER_PUBLISH, 0);
  OT_ASSERT(order >= 0);
  runtime->taker = taker ? *taker : (ot_weight_taker){0};
  return ot_executor_run(runtime->executor, order);
}

// ---- shares ----

bool ot_runtime_counts(const ot_runtime *runtime, int block, ot_parameter_copy copy) {
  return ot_runtime_held_range(runtime, block, copy).count > 0 && counts_copy(runtime, block, copy);
}

ot_slices ot_runtime_counted(const ot_runtime *runtime, const ot_parameter_rows *range) {
  ot_slice_request wanted = {.counted = true};
  wanted.first = first_element(runtime, range, &wanted.count);
  return slices_of(runtime, range, wanted);
}

ot_slices ot_runtime_held(const ot_runtime *runtime, const ot_parameter_rows *range) {
  const ot_parameter *const local = &runtime->shape->parameters[range->parameter];
  const bool counted = runtime->schedule.buckets[local->block].counted;
  const bool used = counted || ot_update_is_tied_to(runtime->shape, local);
  ot_slice_request wanted = {0};
  wanted.first = first_element(runtime, range, &wanted.count);
  if (!used) wanted.count = 0;
  return slices_of(runtime, range, wanted);
}

bool ot_runtime_holds(const ot_runtime *runtime, const ot_parameter_rows *range) {
  ot_slice_request wanted = {0};
  ot_slice slice;
  wanted.first = first_element(runtime, range, &wanted.count);
  ot_slices slices = slices_of(runtime, range, wanted);
  return ot_slices_next(&slices, &slice);
}

// ---- writing ----

void ot_runtime_write(ot_runtime *runtime, const ot_parameter_rows *range, const void *from) {
  int64_t count;
  const int64_t first = first_element(runtime, range, &count);
  transfer t = {.first = first, .from = from};
  copy_elements(runtime, range, &t, count);
}

// ---- copies of weights ----

// Some rows at a time: no rank needs the memory of a whole model.
typedef struct copying {
  ot_runtime *from, *to;  // to: null on ranks that only share what they have
  const ot_weight_copy *how;
  int64_t most;           // elements of the rows
  void *raw, *converted;  // [most] of 8 bytes
} copying;

// The parameter with weights of its own of that name; -1: none.
static int find_target(const copying *c, const char *name) {
  const ot_parameter *const p = c->to ? ot_graph_parameter(c->to->whole, name) : NULL;
  return p && p->tied_to < 0 ? (int)(p - c->to->whole->parameters) : -1;
}

static void write_converted(const copying *c, ot_parameter_rows range) {
  const ot_parameter *const p = &c->to->whole->parameters[range.parameter];
  const ot_dtype type = ot_runtime_copy_dtype(c->to, OT_COPY_WEIGHT);
  const int64_t count = range.rows * p->cols;
  ot_elements_convert(ot_runtime_copy_dtype(c->from, c->how->copy), c->raw, type, c->converted,
                      count);
  if (c->how->is_zero && c->how->is_zero(c->how->context, p->name)) {
    memset(c->converted, 0, (size_t)(count * ot_dtype_bytes(type)));
  }
  ot_runtime_write(c->to, &range, c->converted);
}

static ot_status copy_parameter(const copying *c, int index) {
  const ot_parameter *const p = &c->from->whole->parameters[index];
  const int source = p->tied_to >= 0 ? p->tied_to : index, target = find_target(c, p->name);
  if (c->to ? target < 0 : p->tied_to >= 0) return OT_OK;
  for (int64_t row = 0, rows; row < p->rows; row += rows) {
    rows = c->most / p->cols;
    if (rows > p->rows - row) rows = p->rows - row;
    OT_TRY(ot_runtime_read(c->from, &(ot_parameter_rows){source, c->how->copy, row, rows}, c->raw));
    if (target < 0) continue;
    write_converted(c, (ot_parameter_rows){target, OT_COPY_WEIGHT, row, rows});
  }
  return OT_OK;
}

ot_status ot_runtime_copy(ot_runtime *from, ot_runtime *to, const ot_weight_copy *how) {
  enum { ELEMENTS = 1 << 18 };
  const int64_t widest = ot_graph_widest_row(from->whole);
  copying c = {.from = from, .to = to, .how = how, .most = widest > ELEMENTS ? widest : ELEMENTS};
  double *const memory = malloc(2 * (size_t)c.most * sizeof *memory);
  OT_CHECK(memory, OT_ENVIRONMENT, "out of memory for some rows of weights");
  c.raw = memory;
  c.converted = memory + c.most;
  ot_status status = OT_OK;
  for (int i = 0; status == OT_OK && i < from->whole->num_parameters; i++) {
    status = copy_parameter(&c, i);
  }
  free(memory);
  return status;
}

ot_status ot_runtime_copy_weights(ot_runtime *from, ot_runtime *to) {
  return ot_runtime_copy(from, to, &(ot_weight_copy){.copy = OT_COPY_WEIGHT});
}
