// SPDX-License-Identifier: Apache-2.0
// `audit overlap`: runs one warm-up step and then some with tracing. Sums timelines over steps and
// ranks; overlap_judge.c evaluates them.
#include "audit/overlap.h"

#include <stddef.h>
#include <string.h>

#include "audit/audit.h"
#include "host/cores.h"
#include "ops/collective.h"

// ---- one step ----

static void add_span(ot_overlap *overlap, const ot_task *task, const ot_span *span) {
  const ot_timeline_axis axis = ot_timeline_axis_of(task->attributes.group);
  ot_overlap_flow *const flow = &overlap->flow[axis][ot_communication_index(task->op)];
  flow->calls++;
  const ot_op_types types = ot_task_types(task);
  flow->bytes += ot_collective_sent_bytes(task->op, &task->attributes, &types);
  flow->busy_s += span->end_s - span->start_s;
}

void ot_overlap_add(ot_overlap *overlap, const ot_timeline *timeline, const ot_schedule *schedule) {
  const ot_timeline_summary summary = ot_timeline_summarize(timeline, schedule);
  const ot_order *const order = &schedule->orders[timeline->order];
  overlap->steps++;
  overlap->step_s += summary.total_s;
  overlap->compute_s += summary.compute_s;
  overlap->exposed_s += summary.exposed_s;
  overlap->bubble_s += summary.bubble_s;
  for (int axis = 0; axis < OT_TIMELINE_AXES; axis++) {
    overlap->exposed_axis_s[axis] += summary.exposed_axis_s[axis];
    for (int op = 0; op < OT_COMMUNICATIONS; op++) {
      overlap->flow[axis][op].exposed_s += summary.exposed_op_s[axis][op];
    }
  }
  for (int64_t i = 0; i < timeline->num_spans; i++) {
    const ot_span *const span = &timeline->spans[i];
    const ot_segment *const segment = &schedule->segments[order->entries[span->entry].segment];
    const ot_task *const task = &segment->tasks[span->task];
    if (ot_op_communicates(task->op)) add_span(overlap, task, span);
  }
}

// ---- all ranks ----

enum {
  FIRST = offsetof(ot_overlap, step_s),
  SUMS = (offsetof(ot_overlap, slowest_compute_s) - FIRST) / sizeof(double),
};

static double *sums_of(ot_overlap *overlap) { return (double *)((char *)overlap + FIRST); }

static ot_status gather(ot_overlap *overlap, ot_comm *comm, double *all) {
  if (!comm || ot_comm_size(comm) == 1) {
    memcpy(all, sums_of(overlap), SUMS * sizeof(double));
    return OT_OK;
  }
  return ot_comm_run(comm, &(ot_comm_call){.kind = OT_COMM_ALL_GATHER,
                                           .group = OT_GROUP_WORLD,
                                           .send = sums_of(overlap),
                                           .receive = all,
                                           .count = SUMS,
                                           .dtype = OT_F64,
                                           .sum = OT_F64,
                                           .name = "the audit of overlap"});
}

ot_status ot_overlap_merge(ot_overlap *overlap, ot_comm *comm, ot_arena *arena) {
  const int ranks = comm ? ot_comm_size(comm) : 1;
  double *const all = ot_arena_array(arena, (int64_t)ranks * SUMS, sizeof *all);
  OT_TRY(gather(overlap, comm, all));
  ot_overlap merged = {.ranks = ranks, .steps = overlap->steps};
  for (int rank = 0; rank < ranks; rank++) {
    ot_overlap theirs = {0};
    memcpy(sums_of(&theirs), all + (int64_t)rank * SUMS, SUMS * sizeof(double));
    for (int i = 0; i < SUMS; i++) {
      sums_of(&merged)[i] += sums_of(&theirs)[i] / (ranks * overlap->steps);
    }
    const double compute_s = theirs.compute_s / overlap->steps;
    if (compute_s > merged.slowest_compute_s) merged.slowest_rank = rank;
    if (compute_s > merged.slowest_compute_s) merged.slowest_compute_s = compute_s;
  }
  *overlap = merged;
  return OT_OK;
}

// ---- the command ----

ot_status ot_audit_overlap(const ot_audit_request *request, ot_arena *arena,
                           ot_audit_report *report) {
  enum { STEPS = 5 };
  ot_trainer *const trainer = request->trainer;
  ot_world *const world = ot_trainer_world(trainer);
  const ot_schedule *const schedule = ot_runtime_schedule(ot_trainer_runtime(trainer));
  const int steps = request->steps > 0 ? request->steps : STEPS;
  ot_overlap overlap = {0};
  ot_step_report step;
  OT_TRY(ot_trainer_step(trainer, &step));
  ot_trainer_set_trace(trainer, true);
  OT_TRY(ot_world_agree(world, ot_trainer_set_events(trainer, true)));
  for (int i = 0; i < steps; i++) {
    OT_TRY(ot_trainer_step(trainer, &step));
    ot_overlap_add(&overlap, ot_trainer_timeline(trainer), schedule);
  }
  ot_trainer_set_trace(trainer, false);
  OT_TRY(ot_world_agree(world, ot_trainer_set_events(trainer, false)));
  OT_TRY(ot_overlap_merge(&overlap, ot_world_comm(world), arena));
  const ot_overlap_run run = {
      .run = ot_trainer_run(trainer),
      .micro_batches = ot_trainer_micro_batches(trainer),
      .shares_cores = ot_world_core_sharers(world) * schedule->threads > ot_host_cores(),
  };
  *report = (ot_audit_report){.audit = "overlap", .arena = arena};
  ot_overlap_judge(&overlap, &run, report);
  return OT_OK;
}
