// SPDX-License-Identifier: Apache-2.0
// run: any machine. Replayed pipelines of equal chunks against the formulas of the papers: idle
// time of the step, and saved activations of each stage. F, I and W of a chunk take whole seconds,
// messages none, so times are exact.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "describe/pipeline_rules.h"
#include "estimate/framework.h"
#include "host/heap.h"
#include "schedule/step_plan.h"

enum { F = 4, I = 5, W = 3, MAX_STAGES = 64 };  // seconds of a stage; even values for two chunks

typedef struct pipeline {
  ot_heap heap;
  ot_arena arena;
  ot_estimator estimator;
  ot_block_list blocks;
  ot_candidate candidate;
  ot_block_price kind;
  ot_prices prices;
  ot_stage_partition cut;
  ot_replay_request request;
  ot_stage_replay stage[MAX_STAGES];
} pipeline;

static void set_work(pipeline *p, ot_work work, double s) {
  for (int later = 0; later < 2; later++) {
    p->kind.work[work][later] = (ot_phase_price){.total_s = s, .compute_s = s};
  }
}

static const ot_cluster *machine(void) {
  static const ot_cluster cluster = {
      .name = "paper",
      .num_devices = MAX_STAGES,
      .device = {.name = "abacus", .memory_bytes_per_s = 1, .memory_bytes = 1},
      .num_levels = 1,
      .level = {{.name = "net", .size = MAX_STAGES, .bytes_per_s = 1}}};
  return &cluster;
}

// Every chunk is one block.
static void create(ot_pipeline kind, int stages, int chunks, int micro_batches, pipeline *p) {
  *p = (pipeline){.candidate = {.pp = stages, .pipeline = kind, .micro_batches = micro_batches}};
  p->arena = ot_heap_arena_create(&p->heap);
  const bool split = ot_pipeline_rules_of(kind)->splits;
  set_work(p, OT_WORK_FORWARD, (double)F / chunks);
  set_work(p, OT_WORK_BACKWARD, (double)(split ? I : I + W) / chunks);
  set_work(p, OT_WORK_WEIGHT, (double)(split ? W : 0) / chunks);
  const int n = stages * chunks;
  const ot_run_parallel parallel = {.pp = stages, .pipeline = kind};
  int *const first = ot_arena_array(&p->arena, n + 1, sizeof(int));
  p->cut.chunk_of = ot_arena_array(&p->arena, n, sizeof(int));
  p->cut.stage_of = ot_arena_array(&p->arena, n, sizeof(int));
  p->cut.stages = (ot_stages){.num_ranks = stages,
                              .num_chunks = n,
                              .first_block = first,
                              .rank_of = ot_stages_assign(&parallel, n, &p->arena)};
  for (int i = 0; i < n; i++) {
    first[i + 1] = i + 1;
    p->cut.chunk_of[i] = i;
    p->cut.stage_of[i] = p->cut.stages.rank_of[i];
  }
  p->estimator = (ot_estimator){.arena = &p->arena,
                                .scratch = {.parent = &p->arena},
                                .simulation = {.cluster = machine()},
                                .job = {.engine = &ot_engine_orthant, .devices = stages}};
  p->blocks = (ot_block_list){.num_blocks = n,
                              .kind_of = ot_arena_array(&p->arena, n, sizeof(int)),
                              .place_of = ot_arena_array(&p->arena, n, sizeof(int))};
  p->prices = (ot_prices){.blocks = &p->blocks,
                          .kind = &p->kind,
                          .ranks = stages,
                          .split = split,
                          .sequence_parallel = true};
  p->request = (ot_replay_request){.estimator = &p->estimator,
                                   .candidate = &p->candidate,
                                   .prices = &p->prices,
                                   .cut = &p->cut,
                                   .stages = &p->cut.stages};
}

static void run(pipeline *p) {
  const bool found =
      ot_flow_find(&p->estimator, &p->candidate, &p->cut.stages, &p->request.flow) == OT_OK;
  if (found) ot_replay_outline(&p->request, &p->arena);
  if (!found || ot_step_replay(&p->request, &p->arena, p->stage) != OT_OK) {
    fail_msg("%s", ot_fail_message());
  }
}

static void replay(ot_pipeline kind, int stages, int micro_batches, pipeline *p) {
  create(kind, stages, ot_pipeline_rules_of(kind)->min_chunks, micro_batches, p);
  run(p);
}

static void destroy(pipeline *p) { ot_heap_release(&p->heap); }

static bool near(double a, double b) { return a - b < 1e-9 && b - a < 1e-9; }

static void expect_bubble(ot_pipeline kind, int stages, int micro_batches, double bubble_s) {
  pipeline p;
  replay(kind, stages, micro_batches, &p);
  for (int r = 0; r < stages; r++) {
    const ot_stage_replay *const s = &p.stage[r];
    assert_true(near(s->compute_s, micro_batches * (F + I + W)));
    if (!near(s->bubble_s, bubble_s) || !near(s->total_s, s->compute_s + bubble_s)) {
      fail_msg("schedule %d, p=%d, m=%d, stage %d: bubble %g s of %g, by formula %g", (int)kind,
               stages, micro_batches, r, s->bubble_s, s->total_s, bubble_s);
    }
  }
  destroy(&p);
}

// Narayanan et al. 2021, sec. 2.2; Qi et al. 2024, table 2 (their B is I here). All stages meet at
// the gradient norm, so ZB-H2 keeps the skew of (p-1) F and the cost of I > F.
static void bubbles_are_those_of_the_papers(void **state) {
  (void)state;
  for (int p = 2; p <= 8; p *= 2) {
    const double round = F + I + W;
    expect_bubble(OT_PIPELINE_GPIPE, p, 2 * p, (p - 1) * round);
    expect_bubble(OT_PIPELINE_1F1B, p, 2 * p, (p - 1) * round);
    expect_bubble(OT_PIPELINE_1F1B, p, 8 * p, (p - 1) * round);
    expect_bubble(OT_PIPELINE_INTERLEAVED, p, 4 * p, (p - 1) * round / 2);
    expect_bubble(OT_PIPELINE_ZB_H1, p, 4 * p, (p - 1) * (F + I - W));
  }
}

static void set_exchange(pipeline *p, double hidden_s, double slower_s) {
  for (int w = 0; w < OT_WORKS; w++) set_work(p, (ot_work)w, 1);
  for (int w = 0; w < OT_WORK_WEIGHT; w++) {
    for (int later = 0; later < 2; later++) {
      p->kind.work[w][later].compute_s = 1 - hidden_s;
      p->kind.work[w][later].exposed_s[OT_TIMELINE_EP] = hidden_s;
    }
    p->kind.hidden_s[w] = hidden_s;
    p->kind.slower_s[w] = slower_s;
  }
}

// github.com/deepseek-ai/DualPipe: (PP/2 - 1)(F&B + B - 3W), PP = 2p chunks, for F = I = W.
static void expect_pairs(int p, double hidden_s, double slower_s) {
  const double pair_s = 3 - 2 * (hidden_s - slower_s);
  double most_s = 0, least_s = 1e9;
  ot_engine engine = ot_engine_orthant;
  engine.overlap_pairs = true;
  pipeline made;
  create(OT_PIPELINE_DUALPIPE_V, p, 2, 3 * p, &made);
  set_exchange(&made, hidden_s, slower_s);
  made.estimator.job.engine = &engine;
  made.candidate.ep = 2;
  run(&made);
  for (int r = 0; r < p; r++) {
    const ot_stage_replay *const s = &made.stage[r];
    assert_true(near(s->total_s, s->compute_s + s->exposed_s[OT_TIMELINE_EP] + s->bubble_s));
    if (s->bubble_s > most_s) most_s = s->bubble_s;
    if (s->exposed_s[OT_TIMELINE_EP] < least_s) least_s = s->exposed_s[OT_TIMELINE_EP];
  }
  if (!near(most_s, (p - 1) * (pair_s + 2 - 3))) {
    fail_msg("p=%d: bubble %g s, by formula %g", p, most_s, (p - 1) * (pair_s - 1));
  }
  // Of 2 m forwards, as of the backwards, the last stage runs 2 p + 1 apart.
  assert_true(near(least_s, 2 * (2 * p + 1) * hidden_s));
  destroy(&made);
}

// Of F and I of a chunk a share is an exchange of tokens, which the kernels of a pair hide.
static void dualpipe_v_hides_the_exchange_of_its_pairs(void **state) {
  (void)state;
  for (int p = 2; p <= 8; p++) {
    for (int i = 0; i < 4; i++) expect_pairs(p, i % 2 ? 0.25 : 0.125, i / 2 ? 0.0625 : 0);
  }
}

// Idle share of 1F1B: (p-1)/(m+p-1).
static void eight_stages_idle_seven_of_fifteen_and_seven_of_seventy_one(void **state) {
  (void)state;
  static const int micro_batches[] = {8, 64};
  for (int i = 0; i < 2; i++) {
    pipeline p;
    replay(OT_PIPELINE_1F1B, 8, micro_batches[i], &p);
    const double share = p.stage[0].bubble_s / p.stage[0].total_s;
    assert_true(near(share, 7.0 / (micro_batches[i] + 7)));
    destroy(&p);
  }
}

// Peak number of activations of (chunk, micro-batch) that stage `r` saves: same papers, and
// Narayanan et al. 2021, sec. 2.2 for two chunks per stage.
static int kept_by_formula(ot_pipeline kind, int p, int m, int r) {
  switch (kind) {
    case OT_PIPELINE_GPIPE:
      return m;
    case OT_PIPELINE_1F1B:
      return p - r;
    case OT_PIPELINE_INTERLEAVED:
      return p + 2 * (p - 1 - r) + 1;
    case OT_PIPELINE_ZB_H1:
      return p;
    case OT_PIPELINE_ZB_H2:
      return 2 * p - 1;
    case OT_PIPELINE_ZB_V:
      return 2 * p;
    case OT_PIPELINE_DUALPIPE_V:
      return 2 * p + 1;
    case OT_PIPELINES:
      break;
  }
  return -1;
}

enum { P = 4, M = 16 };

// Peak of saved activations of each stage, with chunks that save `slot` bytes of each class.
static void find_peaks(ot_pipeline kind, const int64_t slot[OT_SLOT_CLASSES], double peak[P]) {
  static const ot_engine other = {.name = "other"};
  const ot_model model = {.hidden_size = 1};
  pipeline p;
  replay(kind, P, M, &p);
  for (int i = 0; i < OT_SLOT_CLASSES; i++) p.kind.memory.slot_bytes[i] = slot[i];
  for (int r = 0; r < P; r++) peak[r] = 0;
  p.estimator.job.engine = &other;
  p.candidate.tp = p.candidate.cp = 1;
  p.prices.key = p.candidate;
  p.estimator.job.model = &model;
  ot_described_peaks(&p.request, &p.arena, peak);
  destroy(&p);
}

static void stages_keep_what_the_papers_say(void **state) {
  (void)state;
  for (int kind = 0; kind < OT_PIPELINES; kind++) {
    double peak[P];
    find_peaks((ot_pipeline)kind, (int64_t[]){[OT_SLOT_LONG] = 64, [OT_SLOT_WEIGHT] = 0}, peak);
    for (int r = 0; r < P; r++) {
      const int expected = kept_by_formula((ot_pipeline)kind, P, M, r);
      if (peak[r] != 64.0 * expected) {
        fail_msg("schedule %d, stage %d saves %g, by formula %d", kind, r, peak[r] / 64, expected);
      }
    }
  }
}

// zb-h1: W of the first stage follows its I, that of the last stage waits for p - 1 more.
static void a_weight_pass_that_waits_keeps_its_gradients_alone(void **state) {
  (void)state;
  double peak[P];
  find_peaks(OT_PIPELINE_ZB_H1, (int64_t[]){[OT_SLOT_SHORT] = 64, [OT_SLOT_WEIGHT] = 16}, peak);
  assert_true(peak[0] == 64 * P);
  assert_true(peak[P - 1] == 64 + 16 * P);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bubbles_are_those_of_the_papers),
      cmocka_unit_test(dualpipe_v_hides_the_exchange_of_its_pairs),
      cmocka_unit_test(eight_stages_idle_seven_of_fifteen_and_seven_of_seventy_one),
      cmocka_unit_test(stages_keep_what_the_papers_say),
      cmocka_unit_test(a_weight_pass_that_waits_keeps_its_gradients_alone),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
