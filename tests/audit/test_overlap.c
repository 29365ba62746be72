// SPDX-License-Identifier: Apache-2.0
// run: ranks=1,2 as threads. Totals of hand-written timelines, verdicts at and beyond each limit,
// and the audit of a real run.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "audit/overlap.h"
#include "base/text.h"
#include "support/audit_case.h"

static void must_be(double found, double expected) {
  if (found != expected) fail_msg("%.17g instead of %.17g", found, expected);
}

static ot_overlap_flow *flow_of(ot_overlap *overlap, ot_timeline_axis axis, ot_op_kind op) {
  return &overlap->flow[axis][ot_communication_index(op)];
}

// ---- totals ----

// Kernels from 0 to 4 and from 6 to 10; a gather of 8 elements on 4 ranks from 3 to 6; an
// all_reduce of 4 elements on 4 ranks from 7 to 8.
static ot_overlap drawn(int times) {
  enum { BARS = 4 };
  static const ot_lane lanes[BARS] = {OT_LANE_COMPUTE, OT_LANE_GATHER, OT_LANE_COMPUTE,
                                      OT_LANE_REDUCE};
  static const double starts[BARS] = {0, 3, 6, 7}, ends[BARS] = {4, 6, 10, 8};
  ot_task tasks[BARS] = {
      {.op = OT_OP_ADD}, {.op = OT_OP_ALL_GATHER}, {.op = OT_OP_ADD}, {.op = OT_OP_ALL_REDUCE}};
  ot_segment segments[BARS];
  ot_entry entries[BARS];
  ot_span spans[BARS];
  for (int i = 0; i < BARS; i++) {
    tasks[i].kind = ot_task_kind_of(tasks[i].op);
    tasks[i].lane = lanes[i];
    segments[i] = (ot_segment){.name = "bar", .num_tasks = 1, .tasks = &tasks[i]};
    entries[i] = (ot_entry){.lane = lanes[i], .segment = i, .phase = OT_PHASE_FORWARD};
    for (int lane = 0; lane < OT_LANES; lane++) entries[i].wait[lane] = -1;
    spans[i] =
        (ot_span){.entry = i, .start_s = starts[i], .end_s = ends[i], .lane = (int32_t)lanes[i]};
  }
  tasks[1].attributes = (ot_op_attributes){.group = OT_GROUP_GATHER, .group_size = 4};
  tasks[1].in[0].type = (ot_tensor_type){.dtype = OT_F32, .rank = 1, .dim = {8}};
  tasks[1].out[0].type = (ot_tensor_type){.dtype = OT_F32, .rank = 1, .dim = {4 * 8}};
  tasks[3].attributes = (ot_op_attributes){.group = OT_GROUP_WORLD, .group_size = 4};
  tasks[3].in[0].type = (ot_tensor_type){.dtype = OT_F64, .rank = 1, .dim = {4}};
  ot_order order = {.num_entries = BARS, .entries = entries};
  const ot_schedule schedule = {
      .num_segments = BARS, .segments = segments, .num_orders = 1, .orders = &order};
  const ot_timeline timeline = {.num_spans = BARS, .capacity = BARS, .spans = spans, .total_s = 10};
  ot_overlap overlap = {0};
  for (int i = 0; i < times; i++) ot_overlap_add(&overlap, &timeline, &schedule);
  return overlap;
}

static void adds_calls_bytes_and_times_by_axis_and_op(void **state) {
  (void)state;
  ot_overlap o = drawn(1);
  const ot_overlap_flow *const gather = flow_of(&o, OT_TIMELINE_DP, OT_OP_ALL_GATHER);
  const ot_overlap_flow *const sum = flow_of(&o, OT_TIMELINE_WORLD, OT_OP_ALL_REDUCE);
  must_be(gather->calls, 1);
  must_be(gather->bytes, 3 * 32);
  must_be(gather->busy_s, 3);
  must_be(gather->exposed_s, 2);
  must_be(sum->calls, 1);
  must_be(sum->bytes, 2 * 32 * 3 / 4.);
  must_be(sum->busy_s, 1);
  must_be(sum->exposed_s, 0);
  must_be(o.compute_s, 8);
  must_be(o.exposed_axis_s[OT_TIMELINE_DP], 2);
}

static void merges_steps_into_means(void **state) {
  (void)state;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_overlap o = drawn(3);
  assert_int_equal(ot_overlap_merge(&o, NULL, &arena), OT_OK);
  assert_int_equal(o.steps, 3);
  must_be(o.step_s, 10);
  must_be(flow_of(&o, OT_TIMELINE_DP, OT_OP_ALL_GATHER)->exposed_s, 2);
  must_be(o.slowest_compute_s, 8);
  ot_heap_release(&heap);
}

// Each rank recorded the same number of steps; rank r adds r to its compute time.
static ot_status merge_rank(ot_comm *comm, void *context) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_overlap o = drawn(2);
  o.compute_s += 2 * ot_comm_rank(comm);
  OT_TRY(ot_overlap_merge(&o, comm, &arena));
  if (ot_comm_rank(comm) == 1) *(ot_overlap *)context = o;
  ot_heap_release(&heap);
  return OT_OK;
}

static void merges_ranks_and_names_the_slowest(void **state) {
  (void)state;
  ot_overlap o;
  assert_int_equal(ot_comm_run_threads(4, merge_rank, &o), OT_OK);
  assert_int_equal(o.ranks, 4);
  must_be(o.compute_s, 8 + 1.5);
  must_be(o.slowest_compute_s, 11);
  assert_int_equal(o.slowest_rank, 3);
  must_be(flow_of(&o, OT_TIMELINE_DP, OT_OP_ALL_GATHER)->bytes, 96);
}

// ---- verdicts ----

typedef struct verdict_case {
  ot_timeline_axis axis;
  ot_op_kind op;
  double limit;  // fraction of a step
  const char *what;
} verdict_case;

static ot_audit_report judge(const ot_overlap *overlap, const ot_overlap_run *run,
                             ot_arena *arena) {
  ot_audit_report report = {.audit = "overlap", .arena = arena};
  ot_overlap_judge(overlap, run, &report);
  return report;
}

static void every_flow_has_its_limit(void **state) {
  (void)state;
  const ot_model model = tiny_llama();
  ot_run run = tiny_run(&model);
  run.parallel.pp = run.parallel.vpp = 1;
  const ot_overlap_run how = {.run = &run, .micro_batches = 4};
  const verdict_case cases[] = {
      {OT_TIMELINE_DP, OT_OP_ALL_GATHER, .10, "dp_gather_exposed"},
      {OT_TIMELINE_DP, OT_OP_REDUCE_SCATTER, .10, "dp_reduce_exposed"},
      {OT_TIMELINE_CP, OT_OP_SHIFT, .10, "cp_ring_exposed"},
      {OT_TIMELINE_CP, OT_OP_ALL_TO_ALL, .25, "cp_exposed"},
      {OT_TIMELINE_TP, OT_OP_REDUCE_SCATTER, .25, "tp_exposed"},
      {OT_TIMELINE_WORLD, OT_OP_ALL_REDUCE, .25, "world_exposed"},
  };
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  for (int i = 0; i < OT_COUNT(cases); i++) {
    for (int beyond = 0; beyond < 2; beyond++) {
      ot_overlap o = {.ranks = 2, .steps = 3, .step_s = 1, .compute_s = .5};
      ot_overlap_flow *const flow = flow_of(&o, cases[i].axis, cases[i].op);
      *flow = (ot_overlap_flow){.calls = 6, .bytes = 1e6, .busy_s = .6};
      flow->exposed_s = cases[i].limit + (beyond ? .01 : -.01);
      const ot_audit_report report = judge(&o, &how, &arena);
      assert_int_equal(report.verdict, beyond ? OT_VERDICT_FINDING : OT_VERDICT_CLEAN);
      assert_int_equal(report.num_findings, beyond);
      if (beyond) assert_string_equal(report.findings[0].what, cases[i].what);
    }
  }
  ot_heap_release(&heap);
}

static void bubbles_are_explained_by_the_schedule(void **state) {
  (void)state;
  const ot_model model = tiny_llama();
  ot_run run = tiny_run(&model);
  run.parallel.pp = 4;
  run.parallel.vpp = 1;
  run.parallel.pipeline = OT_PIPELINE_1F1B;
  const ot_overlap_run how = {.run = &run, .micro_batches = 9};  // 3 / 12 of a step
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_overlap o = {.ranks = 4, .steps = 1, .step_s = 1, .compute_s = .5, .bubble_s = .34};
  o.exposed_axis_s[OT_TIMELINE_PP] = .4;
  assert_int_equal(judge(&o, &how, &arena).verdict, OT_VERDICT_CLEAN);
  o.bubble_s = .36;
  ot_audit_report report = judge(&o, &how, &arena);
  assert_int_equal(report.num_findings, 1);
  assert_string_equal(report.findings[0].what, "pipeline_bubble");
  assert_non_null(strstr(report.findings[0].evidence, "with equal stages 25.0 %"));
  o.bubble_s = .2;
  o.exposed_axis_s[OT_TIMELINE_PP] = .31;
  report = judge(&o, &how, &arena);
  assert_int_equal(report.num_findings, 1);
  assert_string_equal(report.findings[0].what, "pp_exposed");
  ot_heap_release(&heap);
}

static void names_the_rank_that_the_others_wait_for(void **state) {
  (void)state;
  const ot_model model = tiny_llama();
  ot_run run = tiny_run(&model);
  run.parallel.pp = run.parallel.vpp = 1;
  const ot_overlap_run how = {.run = &run, .micro_batches = 1};
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_overlap o = {.ranks = 8,
                        .steps = 1,
                        .step_s = 1,
                        .compute_s = .7,
                        .slowest_compute_s = .81,
                        .slowest_rank = 5};
  const ot_audit_report report = judge(&o, &how, &arena);
  assert_int_equal(report.num_findings, 1);
  assert_string_equal(report.findings[0].what, "compute_imbalance");
  assert_string_equal(report.findings[0].where, "rank 5");
  ot_heap_release(&heap);
}

static void shared_cores_and_one_rank_are_inconclusive(void **state) {
  (void)state;
  const ot_model model = tiny_llama();
  ot_run run = tiny_run(&model);
  run.parallel.pp = run.parallel.vpp = 1;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_overlap o = {.ranks = 8, .steps = 1, .step_s = 1};
  *flow_of(&o, OT_TIMELINE_DP, OT_OP_ALL_GATHER) =
      (ot_overlap_flow){.calls = 1, .busy_s = .9, .exposed_s = .9};
  const ot_overlap_run shared = {.run = &run, .micro_batches = 1, .shares_cores = true};
  assert_int_equal(judge(&o, &shared, &arena).verdict, OT_VERDICT_INCONCLUSIVE);
  const ot_overlap_run apart = {.run = &run, .micro_batches = 1};
  assert_int_equal(judge(&o, &apart, &arena).verdict, OT_VERDICT_FINDING);
  o.ranks = 1;
  assert_int_equal(judge(&o, &apart, &arena).verdict, OT_VERDICT_INCONCLUSIVE);
  ot_heap_release(&heap);
}

// ---- a run ----

// Comm call kind of each op; these layouts have no all-to-all-v.
static const struct {
  ot_op_kind op;
  ot_comm_kind kind;
} carried[] = {
    {OT_OP_ALL_GATHER, OT_COMM_ALL_GATHER}, {OT_OP_REDUCE_SCATTER, OT_COMM_REDUCE_SCATTER},
    {OT_OP_ALL_REDUCE, OT_COMM_ALL_REDUCE}, {OT_OP_ALL_TO_ALL, OT_COMM_ALL_TO_ALL},
    {OT_OP_SHIFT, OT_COMM_SHIFT},           {OT_OP_SEND, OT_COMM_SEND},
    {OT_OP_RECEIVE, OT_COMM_RECEIVE}};

// Bytes that the rank sent, by axis and op.
static void count_sent(const ot_comm *comm, double sign,
                       double sent[OT_TIMELINE_AXES][OT_COMMUNICATIONS]) {
  for (int group = 0; group < OT_GROUP_KINDS; group++) {
    const ot_timeline_axis axis = ot_timeline_axis_of((ot_group_kind)group);
    for (int i = 0; i < OT_COUNT(carried); i++) {
      sent[axis][ot_communication_index(carried[i].op)] +=
          sign * ot_comm_sent_bytes(comm, (ot_group_kind)group, carried[i].kind);
    }
  }
}

static ot_status compare_bytes(audit_rank *rank) {
  double sent[OT_TIMELINE_AXES][OT_COMMUNICATIONS] = {{0}};
  ot_step_report step;
  ot_overlap overlap = {0};
  ot_trainer_set_trace(rank->trainer, true);
  count_sent(rank->comm, -1, sent);
  OT_TRY(audit_step(rank, &step));
  count_sent(rank->comm, 1, sent);
  ot_overlap_add(&overlap, ot_trainer_timeline(rank->trainer),
                 ot_runtime_schedule(ot_trainer_runtime(rank->trainer)));
  double all = 0;
  // The world axis also carries status agreements.
  for (int axis = 0; axis < OT_TIMELINE_WORLD; axis++) {
    for (int op = 0; op < OT_COMMUNICATIONS; op++) {
      OT_CHECK(overlap.flow[axis][op].bytes == sent[axis][op], OT_BUG, "axis %d op %d: %g, %g",
               axis, op, overlap.flow[axis][op].bytes, sent[axis][op]);
      all += sent[axis][op];
    }
  }
  OT_CHECK(all > 0, OT_BUG, "nothing was sent");
  return OT_OK;
}

static void byte_counts_match_sent_bytes(void **state) {
  (void)state;
  const ot_model model = audit_model(1, true);
  const audit_request requests[] = {
      {.model = model, .tp = 2, .dp_shard = 2, .zero = 3},
      {.model = model, .pp = 2, .dp_replicate = 2, .zero = 0},
      {.model = model, .cp = 2, .dp_shard = 2, .zero = 1},
  };
  for (int i = 0; i < OT_COUNT(requests); i++) {
    audit_request request = requests[i];
    request.batch = 4;
    request.micro_batch = 1;
    if (audit_run(&request, compare_bytes, NULL) != OT_OK) {
      fail_msg("%s: %s", audit_describe(&request), ot_fail_message());
    }
  }
}

static void reports_a_run(void **state) {
  (void)state;
  const audit_request request = {
      .model = audit_model(2, false), .tp = 2, .batch = 4, .micro_batch = 1};
  const audit_outcome s =
      audit_run_one(&request, ot_audit_overlap, &(ot_audit_request){.steps = 2});
  assert_non_null(strstr(s.figures, "{\"axis\":\"tp\",\"op\":\"all_gather\",\"calls\":"));
  assert_non_null(strstr(s.figures, "\"ranks\":2,\"steps\":2,"));
  assert_non_null(strstr(s.table, "  tp     all_gather"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(adds_calls_bytes_and_times_by_axis_and_op),
      cmocka_unit_test(merges_steps_into_means),
      cmocka_unit_test(merges_ranks_and_names_the_slowest),
      cmocka_unit_test(every_flow_has_its_limit),
      cmocka_unit_test(bubbles_are_explained_by_the_schedule),
      cmocka_unit_test(names_the_rank_that_the_others_wait_for),
      cmocka_unit_test(shared_cores_and_one_rank_are_inconclusive),
      cmocka_unit_test(byte_counts_match_sent_bytes),
      cmocka_unit_test(reports_a_run),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
