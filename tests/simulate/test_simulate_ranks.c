// SPDX-License-Identifier: Apache-2.0
// run: any machine. Simulates the built schedules of all ranks of a mesh: for any split, every
// instruction and task starts after what it waits for, no lane runs two things at once, the world
// starts together, and a second replay gives the same times.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "describe/mesh.h"
#include "runtime/model_runtime.h"
#include "simulate/simulate.h"
#include "support/tiny_model.h"

enum { MAX_STAGES = 4, MICRO_BATCHES = 4 };

typedef struct layout {
  int pp, vpp, shard, cp, tp, zero;
  ot_pipeline pipeline;
} layout;

typedef struct planned {
  ot_heap heap;
  ot_arena arena;
  ot_model model;
  ot_run run;
  ot_mesh mesh;
  ot_schedule schedules[MAX_STAGES];  // of the first rank of each stage
} planned;

static void must(ot_status status) {
  if (status != OT_OK) fail_msg("%s", ot_fail_message());
}

static void plan_stage(planned *p, int stage) {
  static const int micro_batches = MICRO_BATCHES;
  const ot_rank_request wanted = {
      .modes = 1u << OT_MODE_TRAIN | 1u << OT_MODE_EVALUATE,
      .graph = {.model = &p->model,
                .micro_batch_size = 2,
                .sequence_length = 8,
                .compute = OT_F32,
                .storage = OT_F32,
                .threads = 1,
                .head_chunk_rows = 5},
      .schedule = {.run = &p->run,
                   .micro_batches = &micro_batches,
                   .num_micro_batches = 1,
                   .mesh = &p->mesh,
                   .rank = stage * p->mesh.ranks / p->mesh.degree[OT_AXIS_PP]}};
  ot_graph *const graphs = ot_arena_array(&p->arena, OT_MODES, sizeof *graphs);
  must(ot_runtime_plan(&wanted, &p->arena, graphs, &p->schedules[stage]));
}

static void plan_all(planned *p, const layout *c) {
  *p = (planned){.model = tiny_llama()};
  p->model.num_heads = p->model.num_kv_heads = 4;
  p->model.head_dim = 6;
  p->model.rotary_dim = 6;
  p->model.num_layers = 6;
  p->arena = ot_heap_arena_create(&p->heap);
  p->run = tiny_run(&p->model);
  ot_run_parallel *const parallel = &p->run.parallel;
  *parallel = (ot_run_parallel){.recompute = parallel->recompute,
                                .num_recompute = 1,
                                .reshard = parallel->reshard,
                                .num_reshard = 1,
                                .pp = c->pp,
                                .vpp = c->vpp,
                                .tp = c->tp,
                                .cp = c->cp,
                                .ep = 1,
                                .etp = 1,
                                .dp_replicate = 1,
                                .zero = c->zero,
                                .pipeline = c->pipeline,
                                .prefetch = 1};
  must(ot_mesh_build(parallel, c->pp * c->shard * c->cp * c->tp, &p->mesh));
  for (int stage = 0; stage < c->pp; stage++) plan_stage(p, stage);
}

static void replay(planned *p, ot_order_kind kind, ot_timeline *timelines) {
  const ot_schedule *schedules[MAX_STAGES];
  for (int i = 0; i < MAX_STAGES; i++) schedules[i] = &p->schedules[i];
  ot_cluster cluster = {
      .name = "paper",
      .num_devices = p->mesh.ranks,
      .device = {.name = "abacus", .memory_bytes_per_s = 1e9, .memory_bytes = 1 << 30},
      .num_levels = 2,
      .level = {{.name = "pair", .size = 2, .bytes_per_s = 1e9, .latency_s = 1e-6},
                {.name = "net", .size = 1024, .bytes_per_s = 1e8, .latency_s = 1e-5}}};
  cluster.device.flops[OT_F32] = 1e10;
  const ot_simulation simulation = {
      .cluster = &cluster, .other_flops_per_s = 1e10, .launch_s = 1e-6};
  const ot_pipeline_replay wanted = {schedules, p->mesh.degree[OT_AXIS_PP], kind,
                                     kind == OT_ORDER_STEP ? MICRO_BATCHES : 0};
  must(ot_schedules_simulate(&wanted, &simulation, &p->arena, timelines));
}

// ---- invariants, checked span by span ----

typedef struct reading {
  const ot_schedule *schedule;
  const ot_timeline *timeline;
} reading;

static const ot_entry *entry_at(const reading *r, int entry) {
  return &r->schedule->orders[r->timeline->order].entries[entry];
}

static double end_of_entry(const reading *r, int entry) {
  double end = 0;
  for (int64_t i = 0; i < r->timeline->num_spans; i++) {
    const ot_span *const span = &r->timeline->spans[i];
    if (span->entry == entry && span->end_s > end) end = span->end_s;
  }
  return end;
}

static void expect_waits(const reading *r, const ot_span *span) {
  const ot_entry *const entry = entry_at(r, span->entry);
  const ot_task *const tasks = r->schedule->segments[entry->segment].tasks;
  for (int lane = 0; lane < OT_LANES; lane++) {
    if (entry->wait[lane] < 0) continue;
    assert_true(span->start_s >= end_of_entry(r, entry->wait[lane]));
  }
  for (int64_t i = 0; i < r->timeline->num_spans; i++) {
    const ot_span *const other = &r->timeline->spans[i];
    if (other->entry != span->entry || other->task > tasks[span->task].wait) continue;
    if (other->lane == OT_LANE_TENSOR) assert_true(span->start_s >= other->end_s);
  }
}

static void expect_one_thing_at_a_time(const reading *r) {
  double reached[OT_LANES] = {0};
  for (int64_t i = 0; i < r->timeline->num_spans; i++) {
    const ot_span *const span = &r->timeline->spans[i];
    assert_true(span->start_s >= reached[span->lane] && span->end_s > span->start_s);
    reached[span->lane] = span->lane == OT_LANE_PIPELINE ? span->start_s : span->end_s;
    assert_true(span->end_s <= r->timeline->total_s);
  }
}

// Start of the `index`-th collective over the world, -1 after the last.
static double world_start(const reading *r, int index) {
  for (int64_t i = 0; i < r->timeline->num_spans; i++) {
    const ot_span *const span = &r->timeline->spans[i];
    const ot_segment *const segment = &r->schedule->segments[entry_at(r, span->entry)->segment];
    const ot_task *const task = &segment->tasks[span->task];
    const bool world = task->kind == OT_TASK_COLLECTIVE && task->attributes.group == OT_GROUP_WORLD;
    if (world && index-- == 0) return span->start_s;
  }
  return -1;
}

static void expect_order(planned *p, ot_order_kind kind) {
  ot_timeline timelines[MAX_STAGES], again[MAX_STAGES];
  replay(p, kind, timelines);
  replay(p, kind, again);
  const reading first = {&p->schedules[0], &timelines[0]};
  for (int stage = 0; stage < p->mesh.degree[OT_AXIS_PP]; stage++) {
    const reading r = {&p->schedules[stage], &timelines[stage]};
    const ot_timeline *const timeline = r.timeline;
    assert_int_equal(timeline->rank, r.schedule->rank);
    assert_int_equal(timeline->num_spans, again[stage].num_spans);
    assert_memory_equal(timeline->spans, again[stage].spans,
                        (size_t)timeline->num_spans * sizeof *timeline->spans);
    for (int64_t i = 0; i < timeline->num_spans; i++) expect_waits(&r, &timeline->spans[i]);
    expect_one_thing_at_a_time(&r);
    for (int i = 0; world_start(&first, i) >= 0; i++) {
      assert_true(world_start(&r, i) == world_start(&first, i));
    }
  }
}

static void everything_starts_after_what_it_waits_for(void **state) {
  (void)state;
  static const layout layouts[] = {
      {1, 1, 1, 1, 2, 1, OT_PIPELINE_1F1B},        {2, 1, 1, 1, 2, 1, OT_PIPELINE_1F1B},
      {1, 1, 4, 1, 1, 3, OT_PIPELINE_1F1B},        {2, 1, 2, 2, 1, 2, OT_PIPELINE_GPIPE},
      {2, 2, 2, 1, 2, 3, OT_PIPELINE_INTERLEAVED}, {4, 1, 2, 1, 1, 1, OT_PIPELINE_ZB_H1},
      {4, 2, 1, 1, 1, 0, OT_PIPELINE_ZB_V},        {2, 2, 2, 1, 1, 3, OT_PIPELINE_ZB_V},
      {2, 2, 2, 1, 1, 0, OT_PIPELINE_DUALPIPE_V},
  };
  for (int i = 0; i < OT_COUNT(layouts); i++) {
    planned p;
    plan_all(&p, &layouts[i]);
    expect_order(&p, OT_ORDER_STEP);
    expect_order(&p, OT_ORDER_EVALUATE);
    ot_heap_release(&p.heap);
  }
}

static ot_timeline_summary step_of(const layout *c) {
  planned p;
  ot_timeline timelines[MAX_STAGES];
  plan_all(&p, c);
  replay(&p, OT_ORDER_STEP, timelines);
  const ot_timeline_summary summary = ot_timeline_summarize(&timelines[0], &p.schedules[0]);
  ot_heap_release(&p.heap);
  return summary;
}

static void an_axis_is_exposed_where_it_is_split(void **state) {
  (void)state;
  static const struct {
    layout layout;
    bool exposed[OT_TIMELINE_AXES];
  } cases[] = {
      {{1, 1, 1, 1, 2, 1, OT_PIPELINE_1F1B}, {[OT_TIMELINE_TP] = true}},
      // The number of targets, reduced over all ranks with different tokens, belongs to no axis.
      {{1, 1, 1, 2, 1, 1, OT_PIPELINE_1F1B}, {[OT_TIMELINE_CP] = true}},
      {{1, 1, 2, 1, 1, 3, OT_PIPELINE_1F1B}, {[OT_TIMELINE_DP] = true}},
      {{2, 1, 1, 1, 1, 1, OT_PIPELINE_1F1B}, {[OT_TIMELINE_PP] = true}},
  };
  for (int i = 0; i < OT_COUNT(cases); i++) {
    const ot_timeline_summary summary = step_of(&cases[i].layout);
    for (int axis = 0; axis < OT_TIMELINE_AXES; axis++) {
      const bool world = axis == OT_TIMELINE_WORLD;
      assert_int_equal(summary.exposed_axis_s[axis] > 0, world || cases[i].exposed[axis]);
      assert_true(summary.exposed_axis_s[axis] <= summary.exposed_s);
    }
    assert_true(summary.exposed_s <= summary.idle_s * (1 + 1e-12));
    assert_int_equal(summary.bubble_s > 1e-9, cases[i].layout.pp > 1);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(everything_starts_after_what_it_waits_for),
      cmocka_unit_test(an_axis_is_exposed_where_it_is_split),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
