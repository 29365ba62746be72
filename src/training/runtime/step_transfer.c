// SPDX-License-Identifier: Apache-2.0
// Both buffers are images of a range of the arena: a place in them is an offset minus the start of
// the range.
#include "runtime/step_transfer.h"

#include <stdlib.h>
#include <string.h>

// A range of the arena and its image.
typedef struct image {
  int64_t begin, bytes;
  char *data;  // [bytes]
} image;

struct ot_step_transfer {
  ot_runtime *runtime;
  image given, result;
  int64_t squares, experts, scalars;  // offsets in the arena
};

static ot_status create_image(int64_t begin, int64_t end, image *out) {
  *out = (image){.begin = begin, .bytes = end - begin, .data = malloc((size_t)(end - begin))};
  OT_CHECK(out->data, OT_ENVIRONMENT, "out of memory for the transfers of a step");
  return OT_OK;
}

// Offset of micro-batch `count`, the end of the ones before it.
static int64_t end_of_batches(const ot_runtime *runtime, int count) {
  return ot_runtime_batch_offset(runtime, OT_MODE_TRAIN, count, OT_BATCH_TOKENS);
}

static int most_micro_batches(const ot_schedule *schedule) {
  int most = 0;
  for (int i = 0; i < schedule->num_orders; i++) {
    const ot_order *const order = &schedule->orders[i];
    if (order->kind == OT_ORDER_STEP && order->micro_batches > most) most = order->micro_batches;
  }
  return most;
}

static ot_status create(ot_step_transfer *t, bool squares) {
  const ot_schedule *const schedule = ot_runtime_schedule(t->runtime);
  const bool experts = ot_runtime_any_graph(t->runtime)->request.model->moe.num_experts > 0;
  const int64_t end = end_of_batches(t->runtime, most_micro_batches(schedule));
  t->scalars = ot_schedule_region(schedule, "scalars")->offset;
  t->experts = experts ? ot_schedule_region(schedule, "expert_sums")->offset : t->scalars;
  t->squares = squares ? ot_schedule_region(schedule, "squares")->offset : t->experts;
  OT_ASSERT(t->squares <= t->experts && t->experts <= t->scalars && t->scalars < end);
  OT_TRY(create_image(t->scalars, end, &t->given));
  OT_TRY(create_image(t->squares, t->scalars + OT_STEP_SCALARS * 8, &t->result));
  // Bytes between the fields keep their values.
  ot_executor_read(ot_runtime_executor(t->runtime), t->given.begin, t->given.data, t->given.bytes);
  return OT_OK;
}

ot_status ot_step_transfer_create(ot_runtime *runtime, bool squares, ot_step_transfer **out) {
  *out = calloc(1, sizeof **out);
  OT_CHECK(*out, OT_ENVIRONMENT, "out of memory for the transfers of a step");
  (*out)->runtime = runtime;
  const ot_status status = create(*out, squares);
  if (status != OT_OK) ot_step_transfer_destroy(out);
  return status;
}

void ot_step_transfer_destroy(ot_step_transfer **transfer) {
  if (!transfer || !*transfer) return;
  free((*transfer)->given.data);
  free((*transfer)->result.data);
  free(*transfer);
  *transfer = NULL;
}

static void fill(image *to, int64_t offset, const void *from, int64_t bytes) {
  OT_ASSERT(offset >= to->begin && offset + bytes <= to->begin + to->bytes);
  memcpy(to->data + (offset - to->begin), from, (size_t)bytes);
}

static const double *result_at(const ot_step_transfer *t, int64_t offset) {
  return (const double *)(const void *)(t->result.data + (offset - t->result.begin));
}

void ot_step_transfer_set_field(ot_step_transfer *t, int micro_batch, ot_batch_field field,
                                const void *data) {
  const int64_t offset = ot_runtime_batch_offset(t->runtime, OT_MODE_TRAIN, micro_batch, field);
  fill(&t->given, offset, data, ot_runtime_batch_bytes(t->runtime, OT_MODE_TRAIN, field));
}

void ot_step_transfer_set_scalar(ot_step_transfer *t, ot_step_scalar scalar, double value) {
  fill(&t->given, t->scalars + (int64_t)scalar * 8, &value, sizeof value);
}

void ot_step_transfer_write(ot_step_transfer *t, int micro_batches) {
  const int64_t bytes = end_of_batches(t->runtime, micro_batches) - t->given.begin;
  OT_ASSERT(bytes <= t->given.bytes);
  ot_executor_write(ot_runtime_executor(t->runtime), t->given.begin, t->given.data, bytes);
}

void ot_step_transfer_read(ot_step_transfer *t) {
  ot_executor_read(ot_runtime_executor(t->runtime), t->result.begin, t->result.data,
                   t->result.bytes);
}

double ot_step_transfer_scalar(const ot_step_transfer *t, ot_step_scalar scalar) {
  return result_at(t, t->scalars)[scalar];
}

const double *ot_step_transfer_squares(const ot_step_transfer *t) {
  return result_at(t, t->squares);
}

void ot_step_transfer_expert_sums(const ot_step_transfer *t, double sums[OT_EXPERT_SUMS]) {
  const double *const blocks = result_at(t, t->experts);
  const int num_sums = ot_runtime_schedule(t->runtime)->num_blocks * OT_EXPERT_SUMS;
  for (int k = 0; k < OT_EXPERT_SUMS; k++) sums[k] = 0;
  for (int i = 0; i < num_sums; i++) sums[i % OT_EXPERT_SUMS] += blocks[i];
}
