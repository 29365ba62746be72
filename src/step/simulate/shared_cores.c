// SPDX-License-Identifier: Apache-2.0
// Finds the stretch by the secant method: the length of a step is convex and piecewise linear in
// it.
#include "simulate/shared_cores.h"

#include "base/sort.h"
#include "simulate/price_measured.h"

enum { MOST_PLAYS = 6 };

static const double close_enough = 0.002;
static const double rounding = 1e-9;

// Seconds of a collective in which its members move data. Ranks that are processes of several hosts
// sleep while they wait for each other and for links: the bytes as within a host, without latency;
// at the rate of memory if nothing was measured there, because each host has one rank.
static double moving_s(const ot_simulation *simulation, const ot_task *task, double seconds) {
  if (!ot_cluster_has_hosts(simulation->cluster)) return seconds;
  ot_cluster one_host = *simulation->cluster;
  one_host.host_devices = 0;
  ot_simulation inside = *simulation;
  inside.cluster = &one_host;
  ot_group_shape shapes[OT_GROUP_KINDS] = {{0}};
  const ot_group_shape shape = {.size = task->attributes.group_size, .first = 0, .stride = 1};
  shapes[task->attributes.group] = shape;
  const char *const op = ot_task_name(task);
  double waiting_s = 0;
  if (!ot_price_measured_collective(&one_host, op, &shape, 0, &waiting_s)) {
    one_host.num_levels = 1;
    one_host.level[0] = (ot_link_level){.size = one_host.num_devices,
                                        .bytes_per_s = one_host.device.memory_bytes_per_s};
  }
  ot_price price;
  if (ot_price_task(&inside, shapes, task, &price) != OT_OK) return seconds;
  const double bytes_s = price.device_s - waiting_s;
  return bytes_s < seconds ? bytes_s : seconds;
}

// Cores that one rank uses during a span; `threads` of them for a kernel. If a collective has more
// members than cores, they take turns; its price includes that.
static double cores_of(const ot_simulation *simulation, const ot_span *span, const ot_task *task) {
  const int cores = simulation->cluster->measured.cores;
  const double seconds = span->end_s - span->start_s;
  switch (task->kind) {
    case OT_TASK_COMPUTE:
      return task->attributes.threads;
    case OT_TASK_COLLECTIVE: {
      const int members = task->attributes.group_size;
      const double share = seconds > 0 ? moving_s(simulation, task, seconds) / seconds : 0;
      return members > cores ? share * cores / members : share;
    }
    case OT_TASK_SEND:
    case OT_TASK_RECEIVE:
    case OT_TASK_REPEAT:
    case OT_TASK_PUBLISH:
      return 0;
    case OT_TASK_KINDS:
      break;
  }
  OT_UNREACHABLE();
}

// When cores become busy, or (below 0) idle.
typedef struct change {
  double at_s, cores;
} change;

static int compare_changes(const void *a, const void *b, const void *context) {
  (void)context;
  const change *const x = a, *const y = b;
  return (x->at_s > y->at_s) - (x->at_s < y->at_s);
}

// Appends the changes by the ranks of one stage; returns the end of the list.
static change *list_changes(const ot_simulation *simulation, const ot_timeline *timeline,
                            const ot_schedule *schedule, double ranks, change *list) {
  const ot_order *const order = &schedule->orders[timeline->order];
  for (int64_t i = 0; i < timeline->num_spans; i++) {
    const ot_span *const span = &timeline->spans[i];
    const ot_segment *const segment = &schedule->segments[order->entries[span->entry].segment];
    const double cores = ranks * cores_of(simulation, span, &segment->tasks[span->task]);
    if (cores == 0 || span->end_s <= span->start_s) continue;
    *list++ = (change){span->start_s, cores};
    *list++ = (change){span->end_s, -cores};
  }
  return list;
}

// Time that the step takes longer because the cores are fewer than what runs at once. All that runs
// then advances equally slowly, so the step is that of ranks with cores of their own, moment by
// moment as many times as long as more cores are wanted than there are.
static double crowded_s(const ot_pipeline_replay *replay, const ot_simulation *simulation,
                        const ot_timeline *timelines, ot_arena *arena) {
  const ot_measured_machine *const m = &simulation->cluster->measured;
  const ot_schedule *const first = replay->schedules[0];
  const bool turns = first->ranks * first->threads > m->cores && m->sharing > 1;
  int64_t spans = 0;
  for (int i = 0; i < replay->num_stages; i++) spans += timelines[i].num_spans;
  change *const changes = ot_arena_array(arena, 2 * spans + 1, sizeof *changes), *end = changes;
  for (int i = 0; i < replay->num_stages; i++) {
    const ot_schedule *const schedule = replay->schedules[i];
    const double ranks = (double)schedule->ranks / replay->num_stages;
    end = list_changes(simulation, &timelines[i], schedule, ranks, end);
  }
  ot_sort(changes, end - changes, sizeof *changes, (ot_ordering){compare_changes, NULL}, arena);
  double wanted = 0, more_s = 0;
  for (const change *c = changes; c < end; c++) {
    wanted += c->cores;
    const double seconds = c + 1 < end ? c[1].at_s - c->at_s : 0;
    if (wanted <= m->cores * (1 + rounding)) continue;
    more_s += seconds * (wanted / m->cores * (turns ? m->sharing : 1) - 1);
  }
  return more_s;
}

static double longest_s(const ot_pipeline_replay *replay, const ot_timeline *timelines) {
  double longest = 0;
  for (int i = 0; i < replay->num_stages; i++) {
    if (timelines[i].total_s > longest) longest = timelines[i].total_s;
  }
  return longest;
}

// A stretch, and how long the step takes with it.
typedef struct point {
  double stretch, step_s;
} point;

// The stretch at which the line through `a` and `b` reaches `step_s`; 0 if it never does.
static double intersect(point a, point b, double step_s) {
  if (b.step_s == a.step_s) return 0;
  return a.stretch + (step_s - a.step_s) * (b.stretch - a.stretch) / (b.step_s - a.step_s);
}

ot_status ot_schedules_simulate_shared(const ot_pipeline_replay *replay,
                                       const ot_simulation *simulation, ot_arena *arena,
                                       ot_timeline *timelines, double *stretch) {
  const int cores = simulation->cluster->measured.cores;
  *stretch = simulation->stretch;
  if (cores == 0) return ot_schedules_simulate(replay, simulation, arena, timelines);
  ot_simulation now = *simulation;
  now.stretch = *stretch = 1;
  OT_TRY(ot_schedules_simulate(replay, &now, arena, timelines));
  const double wanted_s =
      longest_s(replay, timelines) + crowded_s(replay, simulation, timelines, arena);
  // Two points below, or one below and one above.
  point below = {1, longest_s(replay, timelines)}, other = {0, 0};
  now.stretch = wanted_s / below.step_s;
  for (int i = 1; i < MOST_PLAYS && now.stretch > 1 + close_enough; i++) {
    *stretch = now.stretch;
    OT_TRY(ot_schedules_simulate(replay, &now, arena, timelines));
    const point last = {now.stretch, longest_s(replay, timelines)};
    const double ratio = last.step_s / wanted_s;
    if (ratio > 1 - close_enough && ratio < 1 + close_enough) return OT_OK;
    if (last.step_s < wanted_s && other.step_s <= wanted_s) other = below;
    *(last.step_s < wanted_s ? &below : &other) = last;
    now.stretch = intersect(below, other, wanted_s);
  }
  if (*stretch == below.stretch) return OT_OK;
  now.stretch = *stretch = below.stretch;
  return ot_schedules_simulate(replay, &now, arena, timelines);
}
