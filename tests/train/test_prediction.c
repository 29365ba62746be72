// SPDX-License-Identifier: Apache-2.0
// run: any machine. Predicted steps of a tiny run on synthetic machines: counts do not depend on
// the split, closed forms hold if only GEMMs take time, and missing rates are named.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "forecast/prediction.h"
#include "host/heap.h"
#include "support/tiny_model.h"

enum { MICRO_BATCHES = 4 };

// `ranks` devices on which only GEMMs take time.
static ot_cluster products_only(int ranks) {
  ot_cluster cluster = {.name = "paper",
                        .num_devices = ranks,
                        .device = {.name = "abacus",
                                   .other_flops_per_s = 0x1p200,
                                   .memory_bytes_per_s = 0x1p200,
                                   .memory_bytes = 1 << 30},
                        .num_levels = 1,
                        .level = {{.name = "wire", .size = ranks, .bytes_per_s = 0x1p200}}};
  cluster.device.flops[OT_F32] = 0x1p30;
  return cluster;
}

static ot_recompute recompute = OT_RECOMPUTE_NONE;

static ot_run run_of(const ot_model *model, ot_run_parallel parallel) {
  ot_run run = tiny_run(model);
  run.data.sequence_length = 16;
  run.batch = (ot_run_batch){.global_batch_size = MICRO_BATCHES * 2, .micro_batch_size = 1};
  parallel.ep = parallel.etp = parallel.vpp = 1;
  parallel.dp_replicate = parallel.dp_replicate > 0 ? parallel.dp_replicate : 1;
  parallel.zero = parallel.zero > 0 ? parallel.zero : 1;
  parallel.recompute = &recompute;
  parallel.num_recompute = 1;
  parallel.pipeline = OT_PIPELINE_1F1B;
  run.parallel = parallel;
  run.threads = 1;
  return run;
}

typedef struct predicted {
  ot_heap heap;
  ot_arena arena;
  ot_model model;
  ot_run run;
  ot_mesh mesh;
  ot_prediction prediction;
} predicted;

static ot_status predict(predicted *p, ot_run_parallel parallel, int ranks,
                         const ot_cluster *cluster) {
  *p = (predicted){.model = tiny_llama()};
  p->arena = ot_heap_arena_create(&p->heap);
  p->run = run_of(&p->model, parallel);
  p->run.model = p->model;
  assert_int_equal(ot_mesh_build(&p->run.parallel, ranks, &p->mesh), OT_OK);
  const ot_prediction_request request = {
      .run = &p->run, .mesh = &p->mesh, .cluster = cluster, .threads = 1};
  return ot_prediction_build(&request, &p->arena, &p->prediction);
}

static void let_go(predicted *p) { ot_heap_release(&p->heap); }

static const ot_run_parallel alone = {.tp = 1, .pp = 1, .cp = 1};

static void one_rank_takes_its_flops_at_the_peak(void **state) {
  (void)state;
  const ot_cluster cluster = products_only(1);
  predicted p;
  assert_int_equal(predict(&p, alone, 1, &cluster), OT_OK);
  assert_int_equal(p.prediction.num_steps, 1);
  const ot_predicted_step *const step = ot_prediction_find(&p.prediction, MICRO_BATCHES * 2);
  assert_non_null(step);
  assert_null(ot_prediction_find(&p.prediction, MICRO_BATCHES));
  const double all =
      ot_order_flops(p.prediction.schedules[0],
                     ot_schedule_find_order(p.prediction.schedules[0], OT_ORDER_STEP, 0), false);
  assert_true(fabs(step->expected.step_s / (all / 0x1p30) - 1) < 1e-12);
  assert_true(p.prediction.peak_flops == 0x1p30);
  assert_null(p.prediction.note);
  let_go(&p);
}

static void splits_share_the_same_flops(void **state) {
  (void)state;
  const struct {
    int ranks;
    ot_run_parallel parallel;
  } rows[] = {{2, {.tp = 1, .pp = 1, .cp = 1}},
              {3, {.tp = 1, .pp = 3, .cp = 1}},
              {2, {.tp = 1, .pp = 1, .cp = 2}},
              {4, {.tp = 1, .pp = 2, .cp = 1, .dp_replicate = 2}}};
  const ot_cluster cluster = products_only(4);
  predicted one;
  assert_int_equal(predict(&one, alone, 1, &cluster), OT_OK);
  const ot_predicted_step *const whole = &one.prediction.steps[0];
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    predicted p;
    assert_int_equal(predict(&p, rows[i].parallel, rows[i].ranks, &cluster), OT_OK);
    const ot_predicted_step *const step = &p.prediction.steps[0];
    assert_true(fabs(step->model_flops / whole->model_flops - 1) < 1e-9);
    assert_true(p.prediction.peak_flops == rows[i].ranks * 0x1p30);
    assert_true(step->expected.step_s < whole->expected.step_s);
    assert_true(step->expected.step_s * rows[i].ranks > whole->expected.step_s * (1 - 1e-9));
    let_go(&p);
  }
  let_go(&one);
}

// Stages are unequal, and the head computes its backward in its forward. So the test uses bounds
// instead of a closed form: the longest stage's work, without and with one micro-batch of the other
// stage before or after it.
static void a_pipeline_waits_for_its_longest_stage(void **state) {
  (void)state;
  const ot_cluster cluster = products_only(2);
  predicted p;
  assert_int_equal(predict(&p, (ot_run_parallel){.tp = 1, .pp = 2, .cp = 1}, 2, &cluster), OT_OK);
  const int micro_batches = MICRO_BATCHES * 2;
  double work[2];
  for (int i = 0; i < 2; i++) {
    const ot_schedule *const schedule = p.prediction.schedules[i];
    const int order = ot_schedule_find_order(schedule, OT_ORDER_STEP, 0);
    work[i] = ot_order_flops(schedule, order, false) / 0x1p30 / micro_batches;
  }
  const double longest = work[0] > work[1] ? work[0] : work[1];
  const double other = work[0] + work[1] - longest;
  const ot_step_figures *const expected = &p.prediction.steps[0].expected;
  assert_true(expected->step_s > micro_batches * longest);
  assert_true(expected->step_s < micro_batches * longest + 1.5 * other);
  assert_true(expected->bubble_fraction > 0 && expected->bubble_fraction < 0.5);
  assert_true(expected->exposed_axis_s[OT_TIMELINE_PP] > 0);

  ot_timeline timelines[2];
  assert_int_equal(ot_prediction_replay(&p.prediction, micro_batches, &p.arena, timelines), OT_OK);
  assert_true(timelines[0].total_s == expected->step_s || timelines[1].total_s == expected->step_s);
  assert_int_equal(timelines[1].rank, 1);
  let_go(&p);
}

static void shared_cores_are_reported(void **state) {
  (void)state;
  ot_cluster cluster = products_only(2);
  cluster.device.threads = 1;
  predicted two, four;
  assert_int_equal(predict(&two, alone, 2, &cluster), OT_OK);
  assert_null(two.prediction.note);
  assert_int_equal(predict(&four, alone, 4, &cluster), OT_OK);
  assert_string_equal(four.prediction.note,
                      "paper was measured with 2 ranks of 1 thread at once; scaled to 4 of 1");
  // Half the work each, at half the rate.
  assert_true(
      fabs(four.prediction.steps[0].expected.step_s / two.prediction.steps[0].expected.step_s - 1) <
      1e-9);
  assert_true(four.prediction.peak_flops == two.prediction.peak_flops);
  let_go(&four);
  let_go(&two);
}

// A machine of `cores` cores that was measured; its figures are those of products_only.
static ot_cluster cores_of(int cores, int ranks) {
  ot_cluster cluster = products_only(ranks);
  cluster.measured.cores = cores;
  return cluster;
}

static double step_s(const predicted *p) { return p->prediction.steps[0].expected.step_s; }

// Kernels and collectives of all ranks at `at_s`.
static int running(const predicted *p, const ot_timeline *timelines, double at_s) {
  int count = 0;
  const int ranks = p->prediction.schedules[0]->ranks / p->prediction.num_stages;
  for (int i = 0; i < p->prediction.num_stages; i++) {
    const ot_timeline *const t = &timelines[i];
    const ot_schedule *const schedule = p->prediction.schedules[i];
    for (int64_t k = 0; k < t->num_spans; k++) {
      const ot_span *const span = &t->spans[k];
      const int segment = schedule->orders[t->order].entries[span->entry].segment;
      const ot_task_kind kind = schedule->segments[segment].tasks[span->task].kind;
      const bool works = kind == OT_TASK_COMPUTE || kind == OT_TASK_COLLECTIVE;
      if (works && span->start_s <= at_s && at_s < span->end_s) count += ranks;
    }
  }
  return count;
}

// How many times as long a step takes on `cores` cores as on enough: sampled.
static double crowding(const predicted *p, const ot_timeline *timelines, int cores) {
  enum { SAMPLES = 4000 };
  double times = 0;
  for (int i = 0; i < SAMPLES; i++) {
    const int count = running(p, timelines, step_s(p) * (i + 0.5) / SAMPLES);
    times += (count > cores ? (double)count / cores : 1) / SAMPLES;
  }
  return times;
}

// A pipeline leaves cores idle while it fills and drains: its step on half as many cores is that of
// stages with cores of their own, twice as long where four stages run, half as much longer where
// three do, and as long where one or two do.
static void a_pipeline_shares_cores_only_while_it_is_full(void **state) {
  (void)state;
  enum { STAGES = 4, CORES = 2 };
  const ot_run_parallel parallel = {.tp = 1, .pp = STAGES, .cp = 1};
  const ot_cluster enough = cores_of(STAGES, STAGES), few = cores_of(CORES, STAGES);
  predicted own, shared;
  assert_int_equal(predict(&own, parallel, STAGES, &enough), OT_OK);
  assert_int_equal(predict(&shared, parallel, STAGES, &few), OT_OK);
  ot_timeline timelines[STAGES];
  assert_int_equal(ot_prediction_replay(&own.prediction, MICRO_BATCHES * 2, &own.arena, timelines),
                   OT_OK);
  const double times = crowding(&own, timelines, CORES);
  const double evenly = crowding(&own, timelines, 1) / CORES;
  assert_true(times > 1.02 * evenly && times < 1.98);
  assert_true(fabs(step_s(&shared) / step_s(&own) / times - 1) < 0.005);
  assert_true(own.prediction.steps[0].stretch == 1 && shared.prediction.steps[0].stretch > 1.02);
  let_go(&shared);
  let_go(&own);
}

// ZeRO 3 on a core a rank: threads that gather and reduce use the cores that compute.
static void gathers_take_the_cores_of_kernels(void **state) {
  (void)state;
  const ot_run_parallel parallel = {.tp = 1, .pp = 1, .cp = 1, .zero = 3};
  ot_cluster enough = cores_of(4, 2), few = cores_of(2, 2);
  enough.level[0].bytes_per_s = few.level[0].bytes_per_s = 0x1p25;
  predicted own, shared;
  assert_int_equal(predict(&own, parallel, 2, &enough), OT_OK);
  assert_int_equal(predict(&shared, parallel, 2, &few), OT_OK);
  ot_timeline timeline;
  assert_int_equal(ot_prediction_replay(&own.prediction, MICRO_BATCHES, &own.arena, &timeline),
                   OT_OK);
  const double times = crowding(&own, &timeline, 2);
  assert_true(times > 1.02 && times < 2);
  assert_true(fabs(step_s(&shared) / step_s(&own) / times - 1) < 0.005);
  let_go(&shared);
  let_go(&own);
}

static void missing_machine_figures_are_named(void **state) {
  (void)state;
  ot_cluster cluster = products_only(2);
  predicted p;
  assert_int_equal(predict(&p, alone, 4, &cluster), OT_USAGE);
  assert_non_null(strstr(ot_fail_message(), "paper has 2 devices, the run 4 ranks"));
  let_go(&p);
  cluster.device.other_flops_per_s = 0;
  assert_int_equal(predict(&p, alone, 2, &cluster), OT_USAGE);
  assert_non_null(strstr(ot_fail_message(), "other_flops_per_s"));
  let_go(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_rank_takes_its_flops_at_the_peak),
      cmocka_unit_test(splits_share_the_same_flops),
      cmocka_unit_test(a_pipeline_waits_for_its_longest_stage),
      cmocka_unit_test(shared_cores_are_reported),
      cmocka_unit_test(a_pipeline_shares_cores_only_while_it_is_full),
      cmocka_unit_test(gathers_take_the_cores_of_kernels),
      cmocka_unit_test(missing_machine_figures_are_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
