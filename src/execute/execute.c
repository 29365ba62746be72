// SPDX-License-Identifier: Apache-2.0
// Walks an order and, in each entry, the tasks of its segment. Kernels are looked up once, at
// create; operands become pointers by adding the entry's bases.
#include "execute/execute.h"

#include <stdlib.h>

#include "base/dtype.h"
#include "execute/guard.h"
#include "ops/catalog.h"
#include "ops/kernels.h"

struct ot_executor {
  const ot_schedule *schedule;
  ot_executor_options options;
  ot_device *device;
  ot_stream *stream[OT_LANES];
  char *memory;        // [schedule->arena_bytes]
  ot_kernel **kernel;  // [num_segments][num_tasks]
  ot_guard *guard;     // with options.poison
  ot_timeline timeline;
  int64_t scalars;  // offset in the arena
};

// ---- create ----

static ot_status bind_segment(const ot_segment *segment, ot_kernel **kernels) {
  *kernels = calloc((size_t)segment->num_tasks + 1, sizeof **kernels);
  OT_CHECK(*kernels, OT_ENVIRONMENT, "executor: out of memory");
  for (int i = 0; i < segment->num_tasks; i++) {
    const ot_task *const task = &segment->tasks[i];
    (*kernels)[i] = ot_kernel_cpu(task->op, task->attributes.compute);
    OT_CHECK((*kernels)[i], OT_ENVIRONMENT, "executor: no %s kernel for op %s on this device",
             ot_dtype_name(task->attributes.compute), ot_op_info_of(task->op)->name);
  }
  return OT_OK;
}

static int64_t longest_order(const ot_schedule *schedule) {
  int64_t longest = 0;
  for (int i = 0; i < schedule->num_orders; i++) {
    int64_t tasks = 0;
    for (int k = 0; k < schedule->orders[i].num_entries; k++) {
      tasks += schedule->segments[schedule->orders[i].entries[k].segment].num_tasks;
    }
    if (tasks > longest) longest = tasks;
  }
  return longest;
}

static ot_status create_timeline(ot_executor *executor) {
  ot_timeline *const timeline = &executor->timeline;
  timeline->capacity = longest_order(executor->schedule);
  timeline->spans = calloc((size_t)timeline->capacity + 1, sizeof *timeline->spans);
  OT_CHECK(timeline->spans, OT_ENVIRONMENT, "executor: out of memory");
  return OT_OK;
}

static ot_status run_setup(ot_executor *executor) {
  const int setup = ot_schedule_find_order(executor->schedule, OT_ORDER_SETUP, 0);
  return setup < 0 ? OT_OK : ot_executor_run(executor, setup);
}

static ot_status create(ot_executor *executor) {
  const ot_schedule *const schedule = executor->schedule;
  OT_TRY(ot_device_create(OT_BACKEND_CPU, &executor->device));
  for (int i = 0; i < OT_LANES; i++) {
    OT_TRY(ot_stream_create(executor->device, &executor->stream[i]));
  }
  executor->kernel = calloc((size_t)schedule->num_segments + 1, sizeof *executor->kernel);
  OT_CHECK(executor->kernel, OT_ENVIRONMENT, "executor: out of memory");
  for (int i = 0; i < schedule->num_segments; i++) {
    OT_TRY(bind_segment(&schedule->segments[i], &executor->kernel[i]));
  }
  OT_TRY(create_timeline(executor));
  void *memory = NULL;
  OT_TRY(ot_device_allocate(executor->device, schedule->arena_bytes, &memory));
  executor->memory = memory;
  executor->scalars = ot_schedule_region(schedule, "scalars")->offset;
  if (executor->options.poison) {
    OT_TRY(ot_guard_create(schedule, executor->memory, &executor->guard));
  }
  return run_setup(executor);
}

ot_status ot_executor_create(const ot_schedule *schedule, const ot_executor_options *options,
                             ot_executor **executor) {
  *executor = calloc(1, sizeof **executor);
  OT_CHECK(*executor, OT_ENVIRONMENT, "executor: out of memory");
  (*executor)->schedule = schedule;
  (*executor)->options = *options;
  const ot_status status = create(*executor);
  if (status != OT_OK) ot_executor_destroy(executor);
  return status;
}

void ot_executor_destroy(ot_executor **executor) {
  if (!executor || !*executor) return;
  ot_executor *const e = *executor;
  void *memory = e->memory;
  if (e->device) ot_device_release(e->device, &memory, e->schedule->arena_bytes);
  for (int i = 0; e->kernel && i < e->schedule->num_segments; i++) free(e->kernel[i]);
  free(e->kernel);
  free(e->timeline.spans);
  ot_guard_destroy(&e->guard);
  for (int i = 0; i < OT_LANES; i++) ot_stream_destroy(&e->stream[i]);
  ot_device_destroy(&e->device);
  free(e);
  *executor = NULL;
}

// ---- run ----

static ot_tensor tensor_at(const ot_executor *executor, const ot_entry *entry,
                           const ot_operand *operand) {
  if (operand->base == OT_BASE_NONE) return (ot_tensor){0};
  const int64_t base = entry->base[operand->base];
  OT_ASSERT(base >= 0);
  return (ot_tensor){.data = executor->memory + base + operand->offset, .type = operand->type};
}

static void run_compute(const ot_executor *executor, const ot_entry *entry, int index) {
  const ot_task *const task = &executor->schedule->segments[entry->segment].tasks[index];
  ot_tensor in[OT_MAX_INPUTS], out[OT_MAX_OUTPUTS];
  for (int i = 0; i < OT_MAX_INPUTS; i++) in[i] = tensor_at(executor, entry, &task->in[i]);
  for (int i = 0; i < OT_MAX_OUTPUTS; i++) out[i] = tensor_at(executor, entry, &task->out[i]);
  const int64_t scratch = entry->base[OT_BASE_SCRATCH];
  const ot_kernel_call call = {
      .attributes = &task->attributes,
      .in = in,
      .out = out,
      .workspace = task->workspace_bytes > 0 ? executor->memory + scratch + task->workspace : NULL,
  };
  executor->kernel[entry->segment][index](&call);
}

static void run_task(const ot_executor *executor, const ot_entry *entry, int index) {
  switch (executor->schedule->segments[entry->segment].tasks[index].kind) {
    case OT_TASK_COMPUTE:
      run_compute(executor, entry, index);
      return;
    case OT_TASK_COLLECTIVE:
    case OT_TASK_SEND:
    case OT_TASK_RECEIVE:
    case OT_TASK_KINDS:
      break;
  }
  OT_UNREACHABLE();
}

static void record(ot_timeline *timeline, ot_span span) {
  if (timeline->num_spans < timeline->capacity) timeline->spans[timeline->num_spans++] = span;
}

static void run_entry(ot_executor *executor, int index, const ot_entry *entry, double start_s) {
  const ot_segment *const segment = &executor->schedule->segments[entry->segment];
  double before_s = executor->options.trace ? ot_device_now_s() : 0;
  for (int i = 0; i < segment->num_tasks; i++) {
    run_task(executor, entry, i);
    if (!executor->options.trace) continue;
    const double after_s = ot_device_now_s();
    record(
        &executor->timeline,
        (ot_span){
            .entry = index, .task = i, .start_s = before_s - start_s, .end_s = after_s - start_s});
    before_s = after_s;
  }
}

ot_status ot_executor_run(ot_executor *executor, int order) {
  const ot_order *const played = &executor->schedule->orders[order];
  executor->timeline.order = order;
  executor->timeline.num_spans = 0;
  const double start_s = ot_device_now_s();
  if (executor->guard) ot_guard_begin(executor->guard, order);
  for (int i = 0; i < played->num_entries; i++) {
    run_entry(executor, i, &played->entries[i], start_s);
    if (executor->guard) OT_TRY(ot_guard_after(executor->guard, i));
  }
  ot_stream_synchronize(executor->stream[OT_LANE_COMPUTE]);
  executor->timeline.total_s = ot_device_now_s() - start_s;
  return OT_OK;
}

// ---- host access ----

void ot_executor_write(ot_executor *executor, int64_t offset, const void *from, int64_t bytes) {
  OT_ASSERT(offset >= 0 && offset + bytes <= executor->schedule->arena_bytes);
  ot_device_write(executor->device, executor->memory, offset, from, bytes);
}

void ot_executor_read(const ot_executor *executor, int64_t offset, void *to, int64_t bytes) {
  OT_ASSERT(offset >= 0 && offset + bytes <= executor->schedule->arena_bytes);
  ot_device_read(executor->device, executor->memory, offset, to, bytes);
}

void ot_executor_fill(ot_executor *executor, int64_t offset, unsigned char byte, int64_t bytes) {
  OT_ASSERT(offset >= 0 && offset + bytes <= executor->schedule->arena_bytes);
  ot_device_fill(executor->device, executor->memory, offset, byte, bytes);
}

double ot_executor_scalar(const ot_executor *executor, ot_step_scalar scalar) {
  double value = 0;
  ot_executor_read(executor, executor->scalars + (int64_t)scalar * 8, &value, sizeof value);
  return value;
}

void ot_executor_set_scalar(ot_executor *executor, ot_step_scalar scalar, double value) {
  ot_executor_write(executor, executor->scalars + (int64_t)scalar * 8, &value, sizeof value);
}

const ot_timeline *ot_executor_timeline(const ot_executor *executor) {
  return executor->options.trace ? &executor->timeline : NULL;
}

void ot_executor_set_trace(ot_executor *executor, bool on) { executor->options.trace = on; }

int64_t ot_executor_touched_bytes(const ot_executor *executor) {
  return executor->guard ? ot_guard_touched_bytes(executor->guard) : 0;
}
