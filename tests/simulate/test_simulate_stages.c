// SPDX-License-Identifier: Apache-2.0
// run: any machine. Communication costs and replay: collectives against their formulas on both
// levels of a cluster, lanes and stages against hand drawings, 1F1B against its closed form, and
// errors. A kernel takes one second, so times are integers.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "simulate/simulate.h"
#include "support/hand_made.h"

enum {
  PLACE_BYTES = HAND_N * 8,
  KERNEL_BYTES = 3 * PLACE_BYTES,  // of hand_add
};

static const double far = 0x1p200;  // a rate so high that nothing takes time

// Devices in pairs; a kernel of hand_add takes a second, links take no time.
static ot_cluster cluster_of(int devices) {
  ot_cluster cluster = {
      .name = "paper",
      .num_devices = devices,
      .device = {.name = "abacus", .memory_bytes_per_s = KERNEL_BYTES, .memory_bytes = 1 << 30},
      .num_levels = 2,
      .level = {{.name = "pair", .size = 2, .bytes_per_s = far},
                {.name = "net", .size = 1024, .bytes_per_s = far}}};
  cluster.device.flops[OT_F64] = far;
  return cluster;
}

// Hand-written stages and the result of their replay.
typedef struct pipeline {
  int num_stages;
  hand_made *stage[HAND_MAX_RANKS];
  ot_cluster cluster;
  ot_timeline timelines[HAND_MAX_RANKS];
} pipeline;

static void create(pipeline *p, int num_stages) {
  *p = (pipeline){.num_stages = num_stages, .cluster = cluster_of(num_stages)};
  for (int i = 0; i < num_stages; i++) {
    p->stage[i] = malloc(sizeof *p->stage[i]);
    assert_non_null(p->stage[i]);
    hand_create(p->stage[i], i, num_stages);
  }
}

static void destroy(pipeline *p) {
  for (int i = 0; i < p->num_stages; i++) {
    hand_destroy(p->stage[i]);
    free(p->stage[i]);
  }
}

static ot_status replay(pipeline *p) {
  const ot_schedule *schedules[HAND_MAX_RANKS];
  for (int i = 0; i < p->num_stages; i++) schedules[i] = &p->stage[i]->schedule;
  const ot_pipeline_replay replay = {schedules, p->num_stages, OT_ORDER_STEP, 1};
  const ot_simulation simulation = {
      .cluster = &p->cluster, .other_flops_per_s = far, .launch_s = 0};
  return ot_schedules_simulate(&replay, &simulation, &p->stage[0]->arena, p->timelines);
}

static void replay_well(pipeline *p) {
  if (replay(p) != OT_OK) fail_msg("%s", ot_fail_message());
}

static void expect_task(const pipeline *p, int stage, int entry, int task, const double *by_hand) {
  const ot_timeline *const timeline = &p->timelines[stage];
  for (int64_t i = 0; i < timeline->num_spans; i++) {
    const ot_span *const span = &timeline->spans[i];
    if (span->entry != entry || span->task != task) continue;
    if (span->start_s == by_hand[0] && span->end_s == by_hand[1]) return;
    fail_msg("stage %d, entry %d, task %d: %g to %g, by hand %g to %g", stage, entry, task,
             span->start_s, span->end_s, by_hand[0], by_hand[1]);
  }
  fail_msg("stage %d: no span of entry %d, task %d", stage, entry, task);
}

#define EXPECT(stage, entry, task, start, end) \
  expect_task(&p, stage, entry, task, (const double[]){start, end})

static ot_timeline_summary summary_of(const pipeline *p, int stage) {
  return ot_timeline_summarize(&p->timelines[stage], &p->stage[stage]->schedule);
}

// ---- costs ----

// Cost of one collective `op` on ranks 0 .. n-1 times `stride`, from and to whole slots.
static double price_of(ot_op_kind op, int n, int stride) {
  pipeline p;
  create(&p, 1);
  hand_made *const h = p.stage[0];
  int ranks[HAND_MAX_RANKS];
  for (int i = 0; i < n; i++) ranks[i] = i * stride;
  h->schedule.group[OT_GROUP_TENSOR] = (ot_group){.size = n, .ranks = ranks};
  h->schedule.group[OT_GROUP_STAGES] = (ot_group){.size = n, .ranks = ranks};
  const bool message = op == OT_OP_SEND || op == OT_OP_RECEIVE;
  const int entry = hand_entry(h, message ? OT_LANE_PIPELINE : OT_LANE_COMPUTE, "one");
  if (op == OT_OP_SEND) hand_send(h, entry, 0, 1, 0);
  if (op == OT_OP_RECEIVE) hand_receive(h, entry, 0, 1, 0);
  if (!message) hand_all_reduce(h, entry, OT_GROUP_TENSOR, 0, 1);
  h->tasks[entry][0].op = op;
  h->tasks[entry][0].attributes.group_size = n;
  p.cluster = cluster_of(8);
  p.cluster.level[0].latency_s = 0x1p-10;
  p.cluster.level[0].bytes_per_s = PLACE_BYTES;
  p.cluster.level[1].latency_s = 0x1p-5;
  p.cluster.level[1].bytes_per_s = PLACE_BYTES / 4;
  const ot_simulation simulation = {
      .cluster = &p.cluster, .other_flops_per_s = HAND_N * 4, .launch_s = 0x1p-20};
  if (ot_schedule_simulate(&h->schedule, 0, &simulation, &h->arena, p.timelines) != OT_OK) {
    fail_msg("%s", ot_fail_message());
  }
  const double seconds = p.timelines[0].total_s;
  destroy(&p);
  return seconds - 0x1p-20;
}

static void expect_price(ot_op_kind op, int n, int stride, double by_formula) {
  const double found = price_of(op, n, stride);
  const double error = found - by_formula;
  if (error > 1e-12 || error < -1e-12) {
    fail_msg("op %d among %d ranks %d apart: %.15g s, by formula %.15g", (int)op, n, stride, found,
             by_formula);
  }
}

static void communication_costs_latency_bytes_and_sums(void **state) {
  (void)state;
  const double a[] = {0x1p-10, 0x1p-5}, b[] = {1, 4};  // seconds per message, per slot
  const double read = 1.0 / 3, add = 1.0 / 4;          // seconds to read a slot, to add one
  expect_price(OT_OP_ALL_GATHER, 2, 1, a[0] + b[0] / 2);
  expect_price(OT_OP_ALL_GATHER, 4, 1, 3 * a[1] + 3 * b[1] / 4);
  expect_price(OT_OP_ALL_GATHER, 2, 2, a[1] + b[1] / 2);
  expect_price(OT_OP_ALL_TO_ALL, 3, 2, 2 * a[1] + 2 * b[1] / 3);
  expect_price(OT_OP_REDUCE_SCATTER, 2, 1, a[0] + b[0] / 2 + read + add / 2);
  expect_price(OT_OP_REDUCE_SCATTER, 4, 2, 3 * a[1] + 3 * b[1] / 4 + read + 3 * add / 4);
  expect_price(OT_OP_ALL_REDUCE, 4, 1, 6 * a[1] + 6 * b[1] / 4 + read + 3 * add / 4);
  expect_price(OT_OP_SHIFT, 4, 1, a[1] + b[1]);
  expect_price(OT_OP_SHIFT, 2, 1, a[0] + b[0]);
  expect_price(OT_OP_SEND, 4, 1, a[0] + b[0]);
  expect_price(OT_OP_SEND, 4, 2, a[1] + b[1]);
  expect_price(OT_OP_RECEIVE, 4, 2, a[1] + b[1]);
}

// Weights of one slot from `ranks` ranks to `generators`.
static double price_of_publishing(int ranks, int generators) {
  static const int members[] = {0, 1, 2, 3};
  pipeline p;
  create(&p, 1);
  hand_made *const h = p.stage[0];
  if (ranks > 1) h->schedule.group[OT_GROUP_WORLD] = (ot_group){ranks, 0, (int *)members};
  const int entry = hand_entry(h, OT_LANE_GATHER, "one");
  hand_all_reduce(h, entry, OT_GROUP_WORLD, 0, 1);
  ot_task *const task = &h->tasks[entry][0];
  task->op = OT_OP_PUBLISH;
  task->kind = OT_TASK_PUBLISH;
  task->attributes.generators = generators;
  task->attributes.whole_elements = HAND_N;
  p.cluster = cluster_of(8);
  p.cluster.level[0].latency_s = 0x1p-10;
  p.cluster.level[0].bytes_per_s = PLACE_BYTES;
  p.cluster.level[1].latency_s = 0x1p-5;
  p.cluster.level[1].bytes_per_s = PLACE_BYTES / 4;
  const ot_simulation simulation = {
      .cluster = &p.cluster, .other_flops_per_s = HAND_N * 4, .launch_s = 0x1p-20};
  if (ot_schedule_simulate(&h->schedule, 0, &simulation, &h->arena, p.timelines) != OT_OK) {
    fail_msg("%s", ot_fail_message());
  }
  const double seconds = p.timelines[0].total_s;
  destroy(&p);
  return seconds - 0x1p-20 * ((ranks > 1) + generators);
}

// The ranks sum 8-byte words, of which each has its own; then a message to each generator, which
// are the devices after the ranks: here the first level joins two.
static void publishing_costs_a_message_to_each_generator(void **state) {
  (void)state;
  const double a[] = {0x1p-10, 0x1p-5}, b[] = {1, 4};
  const double joined = 2 * a[0] + b[0] + 1.0 / 3 + 1.0 / 4 / 2;
  assert_true(fabs(price_of_publishing(1, 1) - (a[0] + b[0])) < 1e-12);
  assert_true(fabs(price_of_publishing(1, 3) - (a[0] + b[0] + 2 * (a[1] + b[1]))) < 1e-12);
  assert_true(fabs(price_of_publishing(2, 1) - (joined + a[1] + b[1])) < 1e-12);
  assert_true(fabs(price_of_publishing(2, 4) - (joined + 4 * (a[1] + b[1]))) < 1e-12);
}

// ---- lanes of one stage ----

// A collective takes 3 s. The second one on the tensor lane waits for the first; the third task
// waits for the first only, the instruction for both.
//
// seconds   0   1   2   3   4   5   6   7   8   9
// compute   [1 ][2 ]    [4 ]        [next]
// tensor    [0         ][3         ]
static void tensor_collectives_overlap_the_tasks_after_them(void **state) {
  (void)state;
  pipeline p;
  create(&p, 2);
  p.cluster.level[0].latency_s = 1.5;
  for (int i = 0; i < 2; i++) {
    hand_made *const h = p.stage[i];
    const int entry = hand_entry(h, OT_LANE_COMPUTE, "block");
    hand_all_reduce(h, entry, OT_GROUP_TENSOR, 0, 10);
    hand_on_tensor_lane(h, entry);
    hand_add(h, entry, 1, 1, 11);
    hand_add(h, entry, 1, 1, 12);
    hand_all_reduce(h, entry, OT_GROUP_TENSOR, 11, 13);
    hand_on_tensor_lane(h, entry);
    hand_add(h, entry, 10, 12, 14);
    hand_task_waits(h, entry, 0);
    hand_add(h, hand_entry(h, OT_LANE_COMPUTE, "next"), 13, 14, 15);
  }
  p.cluster.device.memory_bytes_per_s = KERNEL_BYTES;
  replay_well(&p);
  // An all_reduce of two ranks sends two messages and reads its addends: a third of a kernel.
  const double t = 3 + 1.0 / 3;
  EXPECT(0, 0, 0, 0, t);
  EXPECT(0, 0, 1, 0, 1);
  EXPECT(0, 0, 2, 1, 2);
  EXPECT(0, 0, 3, t, t + t);
  EXPECT(0, 0, 4, t, t + 1);
  EXPECT(0, 1, 0, t + t, t + t + 1);
  assert_int_equal(p.timelines[0].spans[0].lane, OT_LANE_TENSOR);
  assert_int_equal(p.timelines[0].spans[1].lane, OT_LANE_COMPUTE);
  destroy(&p);
}

// ---- stages ----

// One message of 2 s, awaited by stage 1 from the start, then one back that stage 0 awaits only
// after two more kernels; then all meet in the world.
//
// seconds     0   1   2   3   4   5   6   7   8   9   10
// 0 compute   [F ]    [x         ]        [use][world     ]
// 0 messages      [send  ]        [receive]
// 1 compute               [F ]                [world     ]
// 1 messages  [receive   ][   ][send         ]
static void messages_match_and_worlds_wait_for_the_last_stage(void **state) {
  (void)state;
  pipeline p;
  create(&p, 2);
  p.cluster.level[0].latency_s = 2;
  hand_made *const a = p.stage[0];
  hand_add(a, hand_entry(a, OT_LANE_COMPUTE, "F"), 0, 0, 10);       // 0: 0 to 1
  hand_send(a, hand_entry(a, OT_LANE_PIPELINE, "send"), 10, 1, 5);  // 1: 1 to 3
  hand_wait(a, 1, 0);
  const int x = hand_entry(a, OT_LANE_COMPUTE, "x");  // 2: 1 to 8
  for (int i = 0; i < 7; i++) hand_add(a, x, 0, 0, 11);
  hand_receive(a, hand_entry(a, OT_LANE_PIPELINE, "receive"), 12, 1, 6);  // 3: 8 to 10
  hand_wait(a, 3, x);
  hand_add(a, hand_entry(a, OT_LANE_COMPUTE, "use"), 12, 12, 13);  // 4: 10 to 11
  hand_wait(a, 4, 3);
  hand_all_reduce(a, hand_entry(a, OT_LANE_COMPUTE, "world"), OT_GROUP_WORLD, 0, 14);  // 5
  hand_made *const b = p.stage[1];
  hand_receive(b, hand_entry(b, OT_LANE_PIPELINE, "receive"), 10, 0, 5);  // 0: 0 to 3
  hand_add(b, hand_entry(b, OT_LANE_COMPUTE, "F"), 10, 10, 11);           // 1: 3 to 4
  hand_wait(b, 1, 0);
  hand_send(b, hand_entry(b, OT_LANE_PIPELINE, "send"), 11, 0, 6);  // 2: 4 to 10
  hand_wait(b, 2, 1);
  hand_all_reduce(b, hand_entry(b, OT_LANE_COMPUTE, "world"), OT_GROUP_WORLD, 0, 14);  // 3
  replay_well(&p);
  EXPECT(0, 0, 0, 0, 1);
  EXPECT(0, 1, 0, 1, 3);
  EXPECT(0, 2, 6, 7, 8);
  EXPECT(0, 3, 0, 8, 10);
  EXPECT(0, 4, 0, 10, 11);
  EXPECT(1, 0, 0, 0, 3);
  EXPECT(1, 1, 0, 3, 4);
  EXPECT(1, 2, 0, 4, 10);
  const double world_s = 11 + (2 * 2 + 1.0 / 3);
  EXPECT(0, 5, 0, 11, world_s);
  EXPECT(1, 3, 0, 11, world_s);
  const ot_timeline_summary first = summary_of(&p, 0), second = summary_of(&p, 1);
  assert_true(first.exposed_axis_s[OT_TIMELINE_PP] == 2 && first.bubble_s == 2);
  assert_true(second.exposed_axis_s[OT_TIMELINE_PP] == 3);
  destroy(&p);
}

// Both ends of the tag have two messages; they match in order, independent of their start times.
static void messages_of_a_tag_match_in_order(void **state) {
  (void)state;
  pipeline p;
  create(&p, 2);
  p.cluster.level[0].latency_s = 1;
  hand_made *const a = p.stage[0], *const b = p.stage[1];
  hand_send(a, hand_entry(a, OT_LANE_PIPELINE, "one"), 0, 1, 9);  // at 0
  hand_add(a, hand_entry(a, OT_LANE_COMPUTE, "late"), 0, 0, 10);
  hand_send(a, hand_entry(a, OT_LANE_PIPELINE, "two"), 10, 1, 9);  // at 1
  hand_wait(a, 2, 1);
  hand_receive(b, hand_entry(b, OT_LANE_PIPELINE, "one"), 10, 0, 9);
  hand_receive(b, hand_entry(b, OT_LANE_PIPELINE, "two"), 11, 0, 9);
  replay_well(&p);
  EXPECT(1, 0, 0, 0, 1);
  EXPECT(1, 1, 0, 0, 2);
  EXPECT(0, 2, 0, 1, 2);
  destroy(&p);
}

// ---- 1F1B ----

static void add_forward(hand_made *h, int stage, int last) {
  int receive = -1;
  if (stage > 0) {
    receive = hand_entry(h, OT_LANE_PIPELINE, "receive F");
    hand_receive(h, receive, 10, stage - 1, 0);
  }
  const int compute = hand_entry(h, OT_LANE_COMPUTE, "F");
  hand_wait(h, compute, receive);
  hand_add(h, compute, 0, 0, 11);
  if (stage == last) return;
  const int send = hand_entry(h, OT_LANE_PIPELINE, "send F");
  hand_wait(h, send, compute);
  hand_send(h, send, 11, stage + 1, 0);
}

// Twice the time of a forward.
static void add_backward(hand_made *h, int stage, int last) {
  int receive = -1;
  if (stage < last) {
    receive = hand_entry(h, OT_LANE_PIPELINE, "receive B");
    hand_receive(h, receive, 12, stage + 1, 1);
  }
  const int compute = hand_entry(h, OT_LANE_COMPUTE, "B");
  h->entries[compute].phase = OT_PHASE_BACKWARD;
  hand_wait(h, compute, receive);
  hand_add(h, compute, 0, 0, 13);
  hand_add(h, compute, 0, 0, 13);
  if (stage == 0) return;
  const int send = hand_entry(h, OT_LANE_PIPELINE, "send B");
  hand_wait(h, send, compute);
  hand_send(h, send, 13, stage - 1, 1);
}

static void write_1f1b(pipeline *p, int micro_batches) {
  const int last = p->num_stages - 1;
  for (int s = 0; s <= last; s++) {
    const int ahead = last - s < micro_batches ? last - s : micro_batches;
    for (int m = 0; m < micro_batches + ahead; m++) {
      if (m < micro_batches) add_forward(p->stage[s], s, last);
      if (m >= ahead) add_backward(p->stage[s], s, last);
    }
  }
}

static void the_bubble_of_1f1b_is_that_of_the_formula(void **state) {
  (void)state;
  for (int stages = 1; stages <= HAND_MAX_RANKS; stages++) {
    for (int m = 1; m <= 8; m++) {
      pipeline p;
      create(&p, stages);
      write_1f1b(&p, m);
      replay_well(&p);
      const ot_timeline_summary first = summary_of(&p, 0);
      assert_true(first.total_s == 3.0 * (m + stages - 1));
      assert_true(first.bubble_s == 3.0 * (stages - 1));
      assert_true(first.exposed_axis_s[OT_TIMELINE_PP] == first.bubble_s);
      for (int s = 0; s < stages; s++) assert_true(summary_of(&p, s).compute_s == 3.0 * m);
      // The last stage starts late and ends early.
      assert_true(summary_of(&p, stages - 1).bubble_s == 1.0 * (stages - 1));
      destroy(&p);
    }
  }
}

// ---- replay errors ----

static void expect_failure(pipeline *p, const char *const *parts) {
  assert_int_equal(replay(p), OT_BUG);
  for (; *parts; parts++) {
    if (!strstr(ot_fail_message(), *parts)) {
      fail_msg("\"%s\" lacks \"%s\"", ot_fail_message(), *parts);
    }
  }
  destroy(p);
}

// Each computes what it sends only after it has received from the other.
static void stages_that_wait_for_each_other_are_named(void **state) {
  (void)state;
  pipeline p;
  create(&p, 2);
  for (int i = 0; i < 2; i++) {
    hand_made *const h = p.stage[i];
    hand_receive(h, hand_entry(h, OT_LANE_PIPELINE, "receive"), 10, 1 - i, i);
    const int use = hand_entry(h, OT_LANE_COMPUTE, i == 0 ? "layer_0.F" : "layer_1.F");
    hand_add(h, use, 10, 10, 11);
    hand_wait(h, use, 0);
    hand_send(h, hand_entry(h, OT_LANE_PIPELINE, "send"), 11, 1 - i, 1 - i);
    hand_wait(h, 2, use);
  }
  expect_failure(
      &p, (const char *const[]){
              "stage 0 waits at entry 1 (layer_0.F, micro-batch -1) for entry 0 (receive)",
              "stage 1 waits at entry 1 (layer_1.F, micro-batch -1) for entry 0 (receive)", NULL});
}

static void a_stage_missing_in_the_world_is_named(void **state) {
  (void)state;
  pipeline p;
  create(&p, 3);
  for (int i = 0; i < 3; i++) {
    hand_made *const h = p.stage[i];
    const int entry = hand_entry(h, OT_LANE_COMPUTE, "clip");
    if (i != 1) hand_all_reduce(h, entry, OT_GROUP_WORLD, 0, 1);
  }
  expect_failure(
      &p, (const char *const[]){"stage 0 waits at entry 0 (clip, micro-batch -1) for the others in "
                                "all_reduce of group world; stage 2 waits at",
                                NULL});
}

static void unmatched_messages_are_rejected(void **state) {
  (void)state;
  pipeline p;
  create(&p, 2);
  hand_send(p.stage[0], hand_entry(p.stage[0], OT_LANE_PIPELINE, "hello"), 0, 1, 4);
  expect_failure(&p, (const char *const[]){"stage 0, entry 0 (hello): sends tag 4 to stage 1, "
                                           "which has no receive for it",
                                           NULL});
  create(&p, 2);
  for (int i = 0; i < 2; i++) {
    hand_receive(p.stage[1], hand_entry(p.stage[1], OT_LANE_PIPELINE, "wish"), 0, 0, 4);
  }
  hand_send(p.stage[0], hand_entry(p.stage[0], OT_LANE_PIPELINE, "hello"), 0, 1, 4);
  expect_failure(
      &p, (const char *const[]){"stage 1, entry 1 (wish): receives tag 4 from stage 0", NULL});
}

static void different_collectives_of_a_group_are_refused(void **state) {
  (void)state;
  pipeline p;
  create(&p, 2);
  for (int i = 0; i < 2; i++) {
    const int entry = hand_entry(p.stage[i], OT_LANE_COMPUTE, "clip");
    hand_all_reduce(p.stage[i], entry, OT_GROUP_WORLD, 0, 1);
  }
  p.stage[1]->tasks[0][0].op = OT_OP_SHIFT;
  expect_failure(&p, (const char *const[]){"stage 1 reaches shift of 384 bytes in group world, "
                                           "stage 0 reaches all_reduce of 384",
                                           NULL});
}

static void a_cluster_that_is_too_small_is_refused(void **state) {
  (void)state;
  pipeline p;
  create(&p, 2);
  hand_all_reduce(p.stage[0], hand_entry(p.stage[0], OT_LANE_COMPUTE, "x"), OT_GROUP_WORLD, 0, 1);
  p.cluster.num_devices = 1;
  assert_int_equal(replay(&p), OT_USAGE);
  assert_non_null(strstr(ot_fail_message(), "ranks 0 and 1 communicate, but there are 1 devices"));
  destroy(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(communication_costs_latency_bytes_and_sums),
      cmocka_unit_test(publishing_costs_a_message_to_each_generator),
      cmocka_unit_test(tensor_collectives_overlap_the_tasks_after_them),
      cmocka_unit_test(messages_match_and_worlds_wait_for_the_last_stage),
      cmocka_unit_test(messages_of_a_tag_match_in_order),
      cmocka_unit_test(the_bubble_of_1f1b_is_that_of_the_formula),
      cmocka_unit_test(stages_that_wait_for_each_other_are_named),
      cmocka_unit_test(a_stage_missing_in_the_world_is_named),
      cmocka_unit_test(unmatched_messages_are_rejected),
      cmocka_unit_test(different_collectives_of_a_group_are_refused),
      cmocka_unit_test(a_cluster_that_is_too_small_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
