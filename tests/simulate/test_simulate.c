// SPDX-License-Identifier: Apache-2.0
// run: any machine. Step times against sums computed here task by task, against a two-lane program
// timed by hand, and model FLOPs against the closed formula. Rates are powers of two if times must
// agree to the last bit: every sum is exact then.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "simulate/simulate.h"
#include "support/tiny_plan.h"

enum { MICRO_BATCHES = 2 };

static const double far = 0x1p200;  // a rate so high that nothing takes time

// A device with infinite rates; each test slows down the one it examines.
static ot_cluster cluster_of(double flops, double bytes_per_s) {
  ot_cluster cluster = {
      .name = "paper",
      .num_devices = 1,
      .device = {.name = "abacus", .memory_bytes_per_s = bytes_per_s, .memory_bytes = 1 << 30}};
  cluster.device.flops[OT_F32] = flops;
  return cluster;
}

static ot_timeline replay(tiny_plan *plan, int order, const ot_simulation *simulation) {
  ot_timeline timeline;
  if (ot_schedule_simulate(&plan->schedule, order, simulation, &plan->arena, &timeline) != OT_OK) {
    fail_msg("%s", ot_fail_message());
  }
  return timeline;
}

static int step_of(const tiny_plan *plan) {
  return ot_schedule_find_order(&plan->schedule, OT_ORDER_STEP, MICRO_BATCHES);
}

static double step_seconds(tiny_plan *plan, const ot_simulation *simulation) {
  return replay(plan, step_of(plan), simulation).total_s;
}

// The formulas of the header, coded again.
static double price(const ot_task *task, const ot_simulation *s) {
  const ot_cost cost = ot_task_cost(task);
  const double other_s = cost.other_flops / s->other_flops_per_s;
  const double matrix_s = cost.matrix_flops / s->cluster->device.flops[OT_F32];
  const double memory_s =
      (cost.bytes_read + cost.bytes_written) / s->cluster->device.memory_bytes_per_s;
  if (s->cluster->device.packs) {
    const double padded_s = cost.padded_flops / s->cluster->device.flops[OT_F32];
    return matrix_s + padded_s + (memory_s > other_s ? memory_s : other_s) + s->launch_s;
  }
  return (matrix_s > memory_s ? matrix_s : memory_s) + other_s + s->launch_s;
}

static double phase_seconds(const tiny_plan *plan, ot_phase phase, const ot_simulation *s) {
  const ot_order *const order = &plan->schedule.orders[step_of(plan)];
  double sum = 0;
  for (int i = 0; i < order->num_entries; i++) {
    const ot_segment *const segment = &plan->schedule.segments[order->entries[i].segment];
    for (int k = 0; order->entries[i].phase == phase && k < segment->num_tasks; k++) {
      sum += price(&segment->tasks[k], s);
    }
  }
  return sum;
}

// ---- one lane ----

static void expect_the_sum_of_tasks(bool packs) {
  const ot_model models[] = {tiny_gpt2(), tiny_llama(), tiny_gemma()};
  ot_cluster cluster = cluster_of(0x1p33, 0x1p32);
  cluster.device.packs = packs;
  const ot_simulation simulation = {
      .cluster = &cluster, .other_flops_per_s = 0x1p30, .launch_s = 0x1p-20};
  for (int m = 0; m < 3; m++) {
    tiny_plan plan;
    tiny_plan_create(
        &models[m],
        &(tiny_request){.recompute = OT_RECOMPUTE_SELECTIVE, .micro_batches = MICRO_BATCHES},
        &plan);
    double sum = 0;
    for (int phase = 0; phase < OT_PHASES; phase++) {
      sum += phase_seconds(&plan, (ot_phase)phase, &simulation);
    }
    assert_true(sum > 0);
    assert_true(step_seconds(&plan, &simulation) == sum);
    tiny_plan_destroy(&plan);
  }
}

static void the_step_takes_the_sum_of_its_tasks(void **state) {
  (void)state;
  expect_the_sum_of_tasks(false);
  expect_the_sum_of_tasks(true);
}

static void expect_a_span_for_each_task(const ot_schedule *schedule, const ot_timeline *timeline) {
  const ot_order *const order = &schedule->orders[timeline->order];
  int64_t at = 0;
  double reached_s = 0;
  for (int i = 0; i < order->num_entries; i++) {
    for (int k = 0; k < schedule->segments[order->entries[i].segment].num_tasks; k++) {
      const ot_span *const span = &timeline->spans[at++];
      assert_int_equal(span->entry, i);
      assert_int_equal(span->task, k);
      assert_true(span->start_s == reached_s);
      assert_true(span->end_s > span->start_s);
      reached_s = span->end_s;
    }
  }
  assert_int_equal(timeline->num_spans, at);
  assert_true(timeline->capacity >= at);
  assert_true(timeline->total_s == reached_s);
}

static void spans_cover_every_order_without_a_gap(void **state) {
  (void)state;
  tiny_plan plan;
  const ot_model model = tiny_gemma();
  tiny_plan_create(&model,
                   &(tiny_request){.recompute = OT_RECOMPUTE_FULL, .micro_batches = MICRO_BATCHES},
                   &plan);
  const ot_cluster cluster = cluster_of(0x1p33, 0x1p32);
  const ot_simulation simulation = {
      .cluster = &cluster, .other_flops_per_s = 0x1p30, .launch_s = 0x1p-20};
  assert_true(plan.schedule.num_orders >= 3);  // set-up, step, evaluation
  for (int i = 0; i < plan.schedule.num_orders; i++) {
    const ot_timeline timeline = replay(&plan, i, &simulation);
    assert_int_equal(timeline.order, i);
    expect_a_span_for_each_task(&plan.schedule, &timeline);
    const ot_timeline_summary summary = ot_timeline_summarize(&timeline, &plan.schedule);
    assert_true(summary.total_s == timeline.total_s && summary.compute_s == timeline.total_s);
    assert_true(summary.bubble_fraction == 0 && summary.exposed_s == 0);
  }
  tiny_plan_destroy(&plan);
}

static double seconds_at(tiny_plan *plan, double flops, double bytes_per_s) {
  const ot_cluster cluster = cluster_of(flops, bytes_per_s);
  return step_seconds(
      plan, &(ot_simulation){.cluster = &cluster, .other_flops_per_s = far, .launch_s = 0});
}

static void twice_the_rate_halves_what_is_bound_by_it(void **state) {
  (void)state;
  tiny_plan plan;
  const ot_model model = tiny_llama();
  tiny_plan_create(&model, &(tiny_request){.micro_batches = MICRO_BATCHES}, &plan);
  const double matrix_s = seconds_at(&plan, 0x1p30, far);
  assert_true(matrix_s > 0);
  assert_true(matrix_s / seconds_at(&plan, 0x1p31, far) == 2);
  assert_true(matrix_s * 0x1p30 == ot_order_flops(&plan.schedule, step_of(&plan), false));
  const double memory_s = seconds_at(&plan, far, 0x1p30);
  assert_true(memory_s > 0);
  assert_true(memory_s / seconds_at(&plan, far, 0x1p31) == 2);
  // Some tasks are bound by compute, some by memory: between the larger and the sum.
  const double both_s = seconds_at(&plan, 0x1p30, 0x1p30);
  assert_true(both_s > matrix_s && both_s > memory_s && both_s < matrix_s + memory_s);

  const ot_cluster quick = cluster_of(far, far);
  const ot_timeline launches =
      replay(&plan, step_of(&plan),
             &(ot_simulation){.cluster = &quick, .other_flops_per_s = far, .launch_s = 0x1p-20});
  assert_true(launches.total_s == (double)launches.num_spans * 0x1p-20);
  tiny_plan_destroy(&plan);
}

static void recompute_costs_its_recomputed_ops(void **state) {
  (void)state;
  const ot_cluster cluster = cluster_of(0x1p33, 0x1p32);
  const ot_simulation simulation = {
      .cluster = &cluster, .other_flops_per_s = 0x1p30, .launch_s = 0x1p-20};
  const ot_model models[] = {tiny_gpt2(), tiny_llama(), tiny_gemma()};
  for (int m = 0; m < 3; m++) {
    double seconds[3], flops[3];
    for (int policy = 0; policy < 3; policy++) {
      tiny_plan plan;
      tiny_plan_create(
          &models[m],
          &(tiny_request){.recompute = (ot_recompute)policy, .micro_batches = MICRO_BATCHES},
          &plan);
      const double again_s = phase_seconds(&plan, OT_PHASE_RECOMPUTE, &simulation);
      // Gradients write again some of what is read again; only full recompute needs more.
      assert_true((policy == OT_RECOMPUTE_FULL) == (again_s > 0));
      seconds[policy] = step_seconds(&plan, &simulation);
      const double rest_s = seconds[policy] - again_s;
      if (policy == OT_RECOMPUTE_SELECTIVE) assert_true(rest_s > seconds[OT_RECOMPUTE_NONE]);
      assert_true(rest_s >= seconds[OT_RECOMPUTE_NONE]);
      flops[policy] = ot_order_flops(&plan.schedule, step_of(&plan), true);
      assert_true(flops[policy] == flops[0]);
      tiny_plan_destroy(&plan);
    }
    assert_true(seconds[OT_RECOMPUTE_NONE] < seconds[OT_RECOMPUTE_SELECTIVE]);
    assert_true(seconds[OT_RECOMPUTE_SELECTIVE] < seconds[OT_RECOMPUTE_FULL]);
  }
}

// ---- two lanes and more, by hand ----

// y = a + b over `elements` float32: 12 bytes and one other FLOP per element.
static ot_task addition(int64_t elements) {
  const ot_tensor_type type = {.dtype = OT_F32, .rank = 1, .dim = {elements}};
  ot_task task = {.kind = OT_TASK_COMPUTE, .op = OT_OP_ADD};
  task.attributes.compute = OT_F32;
  task.in[0].type = task.in[1].type = task.out[0].type = type;
  return task;
}

// Segment i has a task of i units and one of one unit; a unit is 1 s of memory traffic.
enum { NUM_SEGMENTS = 6 };

typedef struct paper {
  ot_heap heap;
  ot_arena arena;
  ot_task tasks[NUM_SEGMENTS][2];
  ot_segment segments[NUM_SEGMENTS];
  ot_order order;
  ot_schedule schedule;
  ot_timeline timeline;
} paper;

static ot_status replay_by_hand(paper *p, ot_entry *entries, int count) {
  *p = (paper){.order = {.num_entries = count, .entries = entries}};
  p->arena = ot_heap_arena_create(&p->heap);
  for (int i = 0; i < NUM_SEGMENTS; i++) {
    p->tasks[i][0] = addition(16 * i);
    p->tasks[i][1] = addition(16);
    p->segments[i] = (ot_segment){.name = "sum", .num_tasks = 2, .tasks = p->tasks[i]};
  }
  p->schedule = (ot_schedule){
      .num_segments = NUM_SEGMENTS, .segments = p->segments, .num_orders = 1, .orders = &p->order};
  const ot_cluster cluster = cluster_of(1, 16 * 12);
  return ot_schedule_simulate(
      &p->schedule, 0,
      &(ot_simulation){.cluster = &cluster, .other_flops_per_s = far, .launch_s = 0}, &p->arena,
      &p->timeline);
}

static void expect_entry(const paper *p, int entry, double start_s, double end_s) {
  const ot_span *const first = &p->timeline.spans[2 * entry];
  const ot_span *const last = &p->timeline.spans[2 * entry + 1];
  assert_int_equal(first->entry, entry);
  assert_int_equal(last->entry, entry);
  assert_true(first->end_s == last->start_s);
  if (first->start_s != start_s || last->end_s != end_s) {
    fail_msg("entry %d: %g to %g, by hand %g to %g", entry, first->start_s, last->end_s, start_s,
             end_s);
  }
}

// seconds   0   1   2   3   4   5   6   7   8   9   10  11  12  13  14  15  16  17
// gather    [0     ][2             ]
// compute           [1         ][3     ]                [5             ][8 ]
// reduce                        [4                     ][7                     ]
// pipeline  [6                     ]
// Waits for instruction `wait` of lane `on`; for nothing if `wait` is -1.
static ot_entry entry_of(ot_lane lane, int segment, ot_lane on, int wait) {
  ot_entry entry = {.lane = lane, .segment = segment};
  for (int i = 0; i < OT_LANES; i++) entry.wait[i] = -1;
  entry.wait[on] = wait;
  return entry;
}

static void lanes_run_concurrently_and_wait(void **state) {
  (void)state;
  ot_entry entries[] = {
      entry_of(OT_LANE_GATHER, 1, OT_LANE_COMPUTE, -1),    // 0: 0 to 2
      entry_of(OT_LANE_COMPUTE, 2, OT_LANE_GATHER, 0),     // 1: 2 to 5
      entry_of(OT_LANE_GATHER, 3, OT_LANE_COMPUTE, -1),    // 2: 2 to 6
      entry_of(OT_LANE_COMPUTE, 1, OT_LANE_GATHER, 0),     // 3: 5 to 7, lane busy until 5
      entry_of(OT_LANE_REDUCE, 5, OT_LANE_COMPUTE, 1),     // 4: 5 to 11
      entry_of(OT_LANE_COMPUTE, 3, OT_LANE_REDUCE, 4),     // 5: 11 to 15
      entry_of(OT_LANE_PIPELINE, 5, OT_LANE_COMPUTE, -1),  // 6: 0 to 6
      entry_of(OT_LANE_REDUCE, 5, OT_LANE_COMPUTE, 3),     // 7: 11 to 17, lane busy until 11
      entry_of(OT_LANE_COMPUTE, 0, OT_LANE_GATHER, 2),     // 8: 15 to 16
  };
  paper p;
  assert_int_equal(replay_by_hand(&p, entries, OT_COUNT(entries)), OT_OK);
  const double by_hand[][2] = {{0, 2},   {2, 5}, {2, 6},   {5, 7},  {5, 11},
                               {11, 15}, {0, 6}, {11, 17}, {15, 16}};
  for (int i = 0; i < OT_COUNT(entries); i++) {
    expect_entry(&p, i, by_hand[i][0], by_hand[i][1]);
  }
  const ot_timeline_summary summary = ot_timeline_summarize(&p.timeline, &p.schedule);
  assert_true(summary.total_s == 17);
  assert_true(summary.compute_s == 3 + 2 + 4 + 1);
  assert_true(summary.idle_s == 7);
  assert_true(summary.bubble_s == 0);  // no forward or backward here
  // Not overlapped by compute [2, 7) and [11, 16): [0, 2) on two lanes at once,
  // [7, 11) and [16, 17) by reductions.
  assert_true(summary.exposed_s == 2 + 4 + 1);
  ot_heap_release(&p.heap);
}

// ---- rejected schedules ----

static void an_entry_cannot_wait_for_a_later_one(void **state) {
  (void)state;
  ot_entry entries[] = {entry_of(OT_LANE_COMPUTE, 0, OT_LANE_GATHER, 1),
                        entry_of(OT_LANE_GATHER, 0, OT_LANE_GATHER, -1)};
  paper p;
  assert_int_equal(replay_by_hand(&p, entries, 2), OT_BUG);
  assert_non_null(strstr(ot_fail_message(), "entry 0 waits for entry 1"));
  entries[0].wait[OT_LANE_GATHER] = 0;
  ot_heap_release(&p.heap);
  assert_int_equal(replay_by_hand(&p, entries, 2), OT_BUG);
  ot_heap_release(&p.heap);
}

static void expect_refusal(tiny_plan *plan, const ot_simulation *simulation, const char *part) {
  ot_timeline timeline;
  assert_int_equal(
      ot_schedule_simulate(&plan->schedule, step_of(plan), simulation, &plan->arena, &timeline),
      OT_USAGE);
  if (!strstr(ot_fail_message(), part)) fail_msg("\"%s\" lacks \"%s\"", ot_fail_message(), part);
}

static void missing_rates_are_rejected(void **state) {
  (void)state;
  tiny_plan plan;
  const ot_model model = tiny_gpt2();
  tiny_plan_create(&model, &(tiny_request){.micro_batches = MICRO_BATCHES}, &plan);
  const ot_cluster good = cluster_of(1, 1);
  ot_cluster bad = cluster_of(0, 1);
  bad.device.flops[OT_BF16] = 1;
  expect_refusal(&plan, &(ot_simulation){.cluster = &bad, .other_flops_per_s = 1, .launch_s = 0},
                 "abacus has no flops of fp32, which op");
  expect_refusal(&plan, &(ot_simulation){.cluster = &good, .other_flops_per_s = 0, .launch_s = 0},
                 "other_flops_per_s=0");
  expect_refusal(&plan, &(ot_simulation){.cluster = &good, .other_flops_per_s = 1, .launch_s = -1},
                 "launch_s=-1");
  expect_refusal(&plan,
                 &(ot_simulation){.cluster = &good, .other_flops_per_s = 1, .more_rounds = -0.5},
                 "more_rounds=-0.5");
  bad = cluster_of(1, 0);
  expect_refusal(&plan, &(ot_simulation){.cluster = &bad, .other_flops_per_s = 1, .launch_s = 0},
                 "memory_bytes_per_s: 0; allowed: above 0");
  tiny_plan_destroy(&plan);
}

// ---- model FLOPs ----

// FLOPs of the linear layers of all instructions of a phase.
static double linear_flops(const tiny_plan *plan, ot_phase phase) {
  const ot_order *const order = &plan->schedule.orders[step_of(plan)];
  double flops = 0;
  for (int i = 0; i < order->num_entries; i++) {
    const ot_segment *const segment = &plan->schedule.segments[order->entries[i].segment];
    for (int k = 0; order->entries[i].phase == phase && k < segment->num_tasks; k++) {
      const ot_op_kind op = segment->tasks[k].op;
      const bool linear = op == OT_OP_LINEAR || op == OT_OP_LINEAR_DX || op == OT_OP_LINEAR_DW;
      if (linear) flops += ot_task_cost(&segment->tasks[k]).matrix_flops;
    }
  }
  return flops;
}

static void gradients_of_linear_layers_cost_twice_the_forward(void **state) {
  (void)state;
  const ot_model model = tiny_gpt2();
  tiny_plan whole, split;
  tiny_plan_create(&model, &(tiny_request){.micro_batches = MICRO_BATCHES}, &whole);
  tiny_plan_create(&model, &(tiny_request){.micro_batches = MICRO_BATCHES, .split_backward = true},
                   &split);
  const double forward = linear_flops(&whole, OT_PHASE_FORWARD);
  assert_true(forward > 0);
  assert_true(linear_flops(&whole, OT_PHASE_BACKWARD) == 2 * forward);
  assert_true(linear_flops(&split, OT_PHASE_FORWARD) == forward);
  assert_true(linear_flops(&split, OT_PHASE_INPUT) == forward);
  assert_true(linear_flops(&split, OT_PHASE_WEIGHT) == forward);
  assert_true(ot_order_flops(&whole.schedule, step_of(&whole), true) ==
              ot_order_flops(&split.schedule, step_of(&split), true));
  tiny_plan_destroy(&whole);
  tiny_plan_destroy(&split);
}

// Weights used in GEMMs: the matrices of layers and the head, from the model's shape.
static double matrix_parameters(const ot_model *m) {
  const int64_t q = m->num_heads * m->head_dim, kv = m->num_kv_heads * m->head_dim;
  const int64_t attention = m->hidden_size * (q + 2 * kv) + q * m->hidden_size;
  const int64_t mlp = (m->gated_mlp ? 3 : 2) * m->hidden_size * m->intermediate_size;
  return (double)(m->num_layers * (attention + mlp) + m->vocab_size * m->hidden_size);
}

// Keys visible to the queries of one sequence in a layer, counted one by one.
static double visible_keys(const ot_model *m, int layer, int64_t T) {
  double keys = 0;
  for (int64_t query = 0; query < T; query++) {
    const int64_t all = query + 1;
    const int64_t window = m->window[layer];
    keys += (double)(window > 0 && window < all ? window : all);
  }
  return keys;
}

// PaLM appendix B (Chowdhery et al. 2022), with the causal half: 6 N per token, and 12 H D for each
// visible key of a query.
static void model_flops_are_those_of_the_closed_formula(void **state) {
  (void)state;
  enum { B = 2, T = 7 };  // of tiny plans
  const ot_model models[] = {tiny_gpt2(), tiny_llama(), tiny_gemma()};
  for (int i = 0; i < 3; i++) {
    const ot_model *const m = &models[i];
    double expected = 6 * matrix_parameters(m) * B * T;
    for (int layer = 0; layer < m->num_layers; layer++) {
      expected += 12 * (double)(m->num_heads * m->head_dim) * visible_keys(m, layer, T) * B;
    }
    expected *= MICRO_BATCHES;
    tiny_plan plan;
    tiny_plan_create(
        m, &(tiny_request){.recompute = OT_RECOMPUTE_FULL, .micro_batches = MICRO_BATCHES}, &plan);
    const double counted = ot_order_flops(&plan.schedule, step_of(&plan), true);
    if (counted != expected) fail_msg("model %d: %.17g, formula %.17g", i, counted, expected);
    assert_true(ot_order_flops(&plan.schedule, step_of(&plan), false) > expected);
    tiny_plan_destroy(&plan);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_step_takes_the_sum_of_its_tasks),
      cmocka_unit_test(spans_cover_every_order_without_a_gap),
      cmocka_unit_test(twice_the_rate_halves_what_is_bound_by_it),
      cmocka_unit_test(recompute_costs_its_recomputed_ops),
      cmocka_unit_test(lanes_run_concurrently_and_wait),
      cmocka_unit_test(an_entry_cannot_wait_for_a_later_one),
      cmocka_unit_test(missing_rates_are_rejected),
      cmocka_unit_test(gradients_of_linear_layers_cost_twice_the_forward),
      cmocka_unit_test(model_flops_are_those_of_the_closed_formula),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
