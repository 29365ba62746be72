// SPDX-License-Identifier: Apache-2.0
// Host access to the arena between runs.
#include "base/backend_rules.h"
#include "execute/executor.h"
#include "kernels/kernels.h"

void ot_executor_write(ot_executor *executor, int64_t offset, const void *from, int64_t bytes) {
  OT_ASSERT(offset >= 0 && offset + bytes <= executor->schedule->arena_bytes);
  executor->transfers->writes++;
  ot_failure_take(executor->copies,
                  ot_device_write(executor->device, executor->memory, offset, from, bytes));
}

void ot_executor_read(const ot_executor *executor, int64_t offset, void *to, int64_t bytes) {
  OT_ASSERT(offset >= 0 && offset + bytes <= executor->schedule->arena_bytes);
  executor->transfers->reads++;
  ot_failure_take(executor->copies,
                  ot_device_read(executor->device, executor->memory, offset, to, bytes));
}

void ot_executor_fill(ot_executor *executor, int64_t offset, unsigned char byte, int64_t bytes) {
  OT_ASSERT(offset >= 0 && offset + bytes <= executor->schedule->arena_bytes);
  ot_failure_take(executor->copies,
                  ot_device_fill(executor->device, executor->memory, offset, byte, bytes));
}

static ot_status draw_initial(ot_executor *executor, const ot_initial_draw *draw) {
  const ot_schedule *const schedule = executor->schedule;
  ot_stream *const stream = executor->streams.lane[OT_LANE_COMPUTE];
  OT_TRY(ot_device_bind(executor->device));
  ot_kernel_draw_initial(schedule->backend, ot_stream_native(stream), schedule->threads, draw,
                         executor->memory);
  return ot_stream_synchronize(stream);
}

void ot_executor_draw(ot_executor *executor, const ot_initial_draw *draw) {
  for (int i = 0; i < draw->num_targets; i++) {
    const ot_initial_target *const to = &draw->target[i];
    OT_ASSERT(to->offset >= 0 && to->offset + (to->end - to->first) * ot_dtype_bytes(to->dtype) <=
                                     executor->schedule->arena_bytes);
  }
  ot_failure_take(executor->copies, draw_initial(executor, draw));
}

const char *ot_executor_host_memory(const ot_executor *executor) {
  return ot_backend_rules_of(executor->schedule->backend)->host ? executor->memory : NULL;
}

ot_executor_transfers ot_executor_count_transfers(const ot_executor *executor) {
  return *executor->transfers;
}

ot_status ot_executor_device_memory(const ot_executor *executor, int64_t *free_bytes,
                                    int64_t *total_bytes) {
  return ot_device_memory(executor->device, free_bytes, total_bytes);
}

double ot_executor_scalar(const ot_executor *executor, ot_step_scalar scalar) {
  double value = 0;
  ot_executor_read(executor, executor->scalars + (int64_t)scalar * 8, &value, sizeof value);
  return value;
}

void ot_executor_set_scalar(ot_executor *executor, ot_step_scalar scalar, double value) {
  ot_executor_write(executor, executor->scalars + (int64_t)scalar * 8, &value, sizeof value);
}
