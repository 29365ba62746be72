// SPDX-License-Identifier: Apache-2.0
// Walks an order and, in each entry, the tasks of its segment: the skeleton of execute/execute.c.
// Where that runs a kernel, this moves the clock of the entry's lane. Prices are looked up once, at
// create.
#include "simulate/simulate.h"

#include "base/dtype.h"
#include "ops/catalog.h"

typedef struct simulator {
  const ot_schedule *schedule;
  const ot_simulation *simulation;
  ot_arena *arena;
  double clock_s[OT_LANES];
  double *end_s;     // [entries of the order]
  double **price_s;  // [num_segments][num_tasks]; null for a segment that the order lacks
  ot_timeline *timeline;
} simulator;

// ---- create ----

static ot_status price_compute(const ot_simulation *simulation, const ot_task *task,
                               double *price_s) {
  const ot_device_kind *const device = &simulation->cluster->device;
  const ot_cost cost = ot_task_cost(task);
  const double rate = device->flops[task->attributes.compute];
  OT_CHECK(rate > 0 || cost.matrix_flops == 0, OT_USAGE,
           "cluster %s: device %s has no flops of %s, which op %s needs", simulation->cluster->name,
           device->name, ot_dtype_name(task->attributes.compute), ot_op_info_of(task->op)->name);
  const double matrix_s = cost.matrix_flops > 0 ? cost.matrix_flops / rate : 0;
  const double memory_s = (cost.bytes_read + cost.bytes_written) / device->memory_bytes_per_s;
  *price_s = (matrix_s > memory_s ? matrix_s : memory_s) +
             cost.other_flops / simulation->other_flops_per_s + simulation->launch_s;
  return OT_OK;
}

static ot_status bind_segment(simulator *s, int index) {
  if (s->price_s[index]) return OT_OK;
  const ot_segment *const segment = &s->schedule->segments[index];
  double *const price_s = ot_arena_array(s->arena, segment->num_tasks + 1, sizeof *price_s);
  for (int i = 0; i < segment->num_tasks; i++) {
    OT_TRY(price_compute(s->simulation, &segment->tasks[i], &price_s[i]));
  }
  s->price_s[index] = price_s;
  return OT_OK;
}

static void create_timeline(simulator *s, int order) {
  const ot_order *const played = &s->schedule->orders[order];
  ot_timeline *const timeline = s->timeline;
  *timeline = (ot_timeline){.order = order};
  for (int i = 0; i < played->num_entries; i++) {
    timeline->capacity += s->schedule->segments[played->entries[i].segment].num_tasks;
  }
  timeline->spans = ot_arena_array(s->arena, timeline->capacity + 1, sizeof *timeline->spans);
}

static ot_status check(const ot_simulation *simulation) {
  OT_TRY(ot_cluster_check(simulation->cluster));
  OT_CHECK(simulation->other_flops_per_s > 0, OT_USAGE,
           "simulate: other_flops_per_s=%g; allowed: above 0", simulation->other_flops_per_s);
  OT_CHECK(simulation->launch_s >= 0, OT_USAGE, "simulate: launch_s=%g; allowed: 0 or more",
           simulation->launch_s);
  return OT_OK;
}

static ot_status create(simulator *s, int order) {
  const ot_schedule *const schedule = s->schedule;
  const ot_order *const played = &schedule->orders[order];
  OT_TRY(check(s->simulation));
  s->end_s = ot_arena_array(s->arena, played->num_entries + 1, sizeof *s->end_s);
  s->price_s = ot_arena_array(s->arena, schedule->num_segments + 1, sizeof *s->price_s);
  for (int i = 0; i < played->num_entries; i++) {
    const ot_entry *const entry = &played->entries[i];
    for (int lane = 0; lane < OT_LANES; lane++) {
      OT_CHECK(entry->wait[lane] < i, OT_BUG,
               "schedule: entry %d waits for entry %d, which comes later", i, entry->wait[lane]);
    }
    OT_TRY(bind_segment(s, entry->segment));
  }
  create_timeline(s, order);
  return OT_OK;
}

// ---- run ----

static void run_compute(simulator *s, const ot_entry *entry, int index) {
  s->clock_s[entry->lane] += s->price_s[entry->segment][index];
}

static void run_task(simulator *s, const ot_entry *entry, int index) {
  switch (s->schedule->segments[entry->segment].tasks[index].kind) {
    case OT_TASK_COMPUTE:
      run_compute(s, entry, index);
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

static void run_entry(simulator *s, int index, const ot_entry *entry) {
  const ot_segment *const segment = &s->schedule->segments[entry->segment];
  double *const clock_s = &s->clock_s[entry->lane];
  for (int lane = 0; lane < OT_LANES; lane++) {
    const double ready_s = entry->wait[lane] >= 0 ? s->end_s[entry->wait[lane]] : 0;
    if (*clock_s < ready_s) *clock_s = ready_s;
  }
  for (int i = 0; i < segment->num_tasks; i++) {
    const double before_s = *clock_s;
    run_task(s, entry, i);
    record(s->timeline, (ot_span){.entry = index,
                                  .task = i,
                                  .start_s = before_s,
                                  .end_s = *clock_s,
                                  .lane = (int32_t)entry->lane});
  }
  s->end_s[index] = *clock_s;
}

ot_status ot_schedule_simulate(const ot_schedule *schedule, int order,
                               const ot_simulation *simulation, ot_arena *arena,
                               ot_timeline *timeline) {
  OT_ASSERT(order >= 0 && order < schedule->num_orders);
  const ot_order *const played = &schedule->orders[order];
  simulator s = {
      .schedule = schedule, .simulation = simulation, .arena = arena, .timeline = timeline};
  OT_TRY(create(&s, order));
  for (int i = 0; i < played->num_entries; i++) run_entry(&s, i, &played->entries[i]);
  for (int i = 0; i < OT_LANES; i++) {
    if (s.clock_s[i] > timeline->total_s) timeline->total_s = s.clock_s[i];
  }
  return OT_OK;
}
