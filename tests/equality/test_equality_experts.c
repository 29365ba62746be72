// SPDX-License-Identifier: Apache-2.0
// ctest: threads
// ctest: variant=cuda full OT_TESTS=few
// run: any machine. Expert parallelism gives the same run: losses, gradients, norms and weights
// equal those of one rank with all experts, for experts sharded over any ranks of tp, cp and dp, at
// every ZeRO stage, in a pipeline, under recompute, with more and fewer tokens than experts.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/text.h"
#include "support/op_device.h"
#include "support/rank_case_margin.h"
#include "support/rank_case_verdict.h"

enum { EXPERTS = 6 };

// `lone` experts with top-1 routing; 0: EXPERTS with top-2 routing.
typedef struct spread {
  int ep, etp, lone, pp, dp_replicate, dp_shard, cp, tp, zero;
  ot_accumulate accumulate;
  ot_pipeline pipeline;
  int vpp, length;
  ot_moe_routing routing;
} spread;

#define WHOLE OT_ACCUMULATE_WHOLE
#define DROPLESS OT_MOE_DROPLESS
#define SHARDED OT_ACCUMULATE_SHARDED

static const spread spreads[] = {
    // ep over all of dp, and over a part
    {2, 1, 0, 1, 2, 1, 1, 1, 0, WHOLE, OT_PIPELINE_1F1B, 1, 32, DROPLESS},
    {3, 1, 0, 1, 1, 3, 1, 1, 1, WHOLE, OT_PIPELINE_1F1B, 1, 32, DROPLESS},
    {2, 1, 0, 1, 4, 1, 1, 1, 0, WHOLE, OT_PIPELINE_1F1B, 1, 32, DROPLESS},
    {2, 1, 0, 1, 4, 1, 1, 1, 0, SHARDED, OT_PIPELINE_1F1B, 1, 32, DROPLESS},
    {2, 1, 0, 1, 1, 4, 1, 1, 1, SHARDED, OT_PIPELINE_1F1B, 1, 32, DROPLESS},
    {2, 1, 0, 1, 1, 4, 1, 1, 2, SHARDED, OT_PIPELINE_1F1B, 1, 32, DROPLESS},
    {2, 1, 0, 1, 1, 4, 1, 1, 3, WHOLE, OT_PIPELINE_1F1B, 1, 32, DROPLESS},
    {2, 1, 0, 1, 1, 4, 1, 1, 3, SHARDED, OT_PIPELINE_1F1B, 1, 32, DROPLESS},
    {3, 1, 0, 1, 1, 3, 1, 1, 3, SHARDED, OT_PIPELINE_1F1B, 1, 32, DROPLESS},
    // replicas of shard domains: ep within one, as large as one, across both
    {2, 1, 0, 1, 2, 4, 1, 1, 2, SHARDED, OT_PIPELINE_1F1B, 1, 32, DROPLESS},
    {2, 1, 0, 1, 2, 2, 1, 1, 3, WHOLE, OT_PIPELINE_1F1B, 1, 32, DROPLESS},
    {6, 1, 0, 1, 3, 2, 1, 1, 1, WHOLE, OT_PIPELINE_1F1B, 1, 32, DROPLESS},
    // over tp and cp
    {2, 1, 0, 1, 1, 1, 1, 2, 0, WHOLE, OT_PIPELINE_1F1B, 1, 32, DROPLESS},
    {2, 1, 0, 1, 1, 1, 2, 1, 0, WHOLE, OT_PIPELINE_1F1B, 1, 32, DROPLESS},
    {2, 1, 0, 1, 1, 1, 2, 2, 0, SHARDED, OT_PIPELINE_1F1B, 1, 32, DROPLESS},
    {2, 1, 0, 1, 1, 2, 2, 2, 3, SHARDED, OT_PIPELINE_1F1B, 1, 32, DROPLESS},
    {6, 1, 0, 1, 1, 3, 1, 2, 3, WHOLE, OT_PIPELINE_1F1B, 1, 32, DROPLESS},
    // pipelines, split at any layer
    {2, 1, 0, 2, 1, 2, 1, 1, 3, SHARDED, OT_PIPELINE_ZB_V, 1, 32, DROPLESS},
    {2, 1, 0, 2, 1, 2, 1, 1, 3, SHARDED, OT_PIPELINE_DUALPIPE_V, 1, 32, DROPLESS},
    {2, 1, 0, 2, 2, 1, 1, 1, 0, WHOLE, OT_PIPELINE_INTERLEAVED, 2, 32, DROPLESS},
    {2, 1, 0, 2, 1, 2, 2, 1, 2, WHOLE, OT_PIPELINE_ZB_H1, 1, 32, DROPLESS},
    // one expert per rank, top-1, few tokens: some ranks receive no tokens
    {8, 1, 8, 1, 1, 2, 2, 2, 3, WHOLE, OT_PIPELINE_1F1B, 1, 8, DROPLESS},
    {4, 1, 16, 1, 1, 2, 2, 2, 1, SHARDED, OT_PIPELINE_1F1B, 1, 8, DROPLESS},
    // etp over ranks of tp, of cp and dp, of all of them, and with ep
    {1, 2, 0, 1, 1, 1, 1, 2, 0, WHOLE, OT_PIPELINE_1F1B, 1, 32, DROPLESS},
    {1, 4, 0, 1, 2, 1, 2, 1, 0, SHARDED, OT_PIPELINE_1F1B, 1, 32, DROPLESS},
    {1, 2, 0, 1, 1, 4, 1, 1, 3, SHARDED, OT_PIPELINE_1F1B, 1, 32, DROPLESS},
    {2, 2, 0, 1, 1, 2, 1, 2, 3, WHOLE, OT_PIPELINE_1F1B, 1, 32, DROPLESS},
    {3, 2, 0, 1, 1, 3, 1, 2, 1, WHOLE, OT_PIPELINE_1F1B, 1, 32, DROPLESS},
    {2, 2, 0, 1, 2, 2, 1, 2, 2, SHARDED, OT_PIPELINE_1F1B, 1, 32, DROPLESS},
    {2, 2, 0, 2, 1, 2, 1, 2, 3, SHARDED, OT_PIPELINE_ZB_V, 1, 32, DROPLESS},
    {4, 2, 16, 1, 1, 2, 2, 2, 1, SHARDED, OT_PIPELINE_1F1B, 1, 8, DROPLESS},
    // dropping and expert choice are decided before dispatch
    {2, 1, 0, 1, 1, 4, 1, 1, 3, WHOLE, OT_PIPELINE_1F1B, 1, 32, OT_MOE_DROP_BY_POSITION},
    {3, 1, 0, 1, 3, 1, 1, 1, 0, WHOLE, OT_PIPELINE_1F1B, 1, 32, OT_MOE_DROP_BY_SCORE},
    {2, 1, 0, 1, 1, 2, 1, 1, 1, WHOLE, OT_PIPELINE_1F1B, 1, 32, OT_MOE_EXPERT_CHOICE},
};

// Later experts are chosen ever less often, the last quarter never: the last ranks are idle.
static const spread crowded[] = {
    {4, 1, 8, 1, 2, 2, 1, 1, 3, SHARDED, OT_PIPELINE_1F1B, 1, 32, DROPLESS},
    {8, 1, 8, 1, 1, 2, 2, 2, 3, WHOLE, OT_PIPELINE_1F1B, 1, 32, DROPLESS},
    {4, 1, 8, 2, 1, 2, 1, 2, 1, WHOLE, OT_PIPELINE_ZB_V, 1, 32, DROPLESS},
    {4, 1, 16, 1, 1, 1, 2, 2, 0, WHOLE, OT_PIPELINE_1F1B, 1, 16, DROPLESS},
};

// Checks the load of the experts of every router of `result` in the first step.
static void expect_crowds(const rank_result *result, int experts) {
  int routers = 0;
  for (int i = 0; i < result->num_tensors; i++) {
    const rank_tensor *const tensor = &result->tensors[i];
    if (!ot_text_find(tensor->name, "e_score_correction_bias")) continue;
    assert_int_equal(tensor->count, experts);
    double all = 0;
    for (int e = 0; e < experts; e++) all += tensor->gradient[e];
    assert_true(tensor->gradient[0] > 1.5 * all / experts);
    for (int e = experts - experts / 4; e < experts; e++) assert_true(tensor->gradient[e] == 0);
    routers++;
  }
  assert_int_equal(routers, 3);
}

static rank_request request_of(const spread *s, ot_dtype dtype, rank_loads loads) {
  return (rank_request){
      .backend = op_device_backend(),
      .model = RANK_MOE,
      .layers = 4,
      .dtype = dtype,
      .length = s->length,
      .batch = (int64_t)s->dp_replicate * s->dp_shard * 4,
      .micro_batch = s->pp == 1 && s->length == 32 ? 2 : 1,
      .steps = RANK_STEPS,
      .pp = s->pp,
      .vpp = s->vpp,
      .dp_replicate = s->dp_replicate,
      .dp_shard = s->dp_shard,
      .cp = s->cp,
      .tp = s->tp,
      .ep = s->ep,
      .etp = s->etp,
      .routing = s->routing,
      .experts = s->lone > 0 ? s->lone : EXPERTS,
      .lone = s->lone > 0,
      .loads = loads,
      .zero = s->zero,
      .prefetch = 1,
      .accumulate = s->accumulate,
      .pipeline = s->pipeline,
      .recompute = {OT_RECOMPUTE_FULL, OT_RECOMPUTE_NONE, OT_RECOMPUTE_SELECTIVE},
      .overlap = true,
  };
}

// In float32 with poison only, or with OT_TESTS=full in the environment.
static void try_spread(const spread *s, rank_loads loads, bool poison, rank_verdict *verdict) {
  static const ot_dtype types[] = {OT_F64, OT_F32};
  for (int i = 0; i < (poison || rank_full() ? 2 : 1); i++) {
    rank_request request = request_of(s, types[i], loads);
    request.poison = poison && types[i] == OT_F32;
    if (types[i] == OT_F32 && s->routing == OT_MOE_DROPLESS) rank_choose_sample(&request);
    rank_try(&request, verdict);
    if (loads == RANK_LOADS_CROWDED) expect_crowds(rank_reference(&request), request.experts);
  }
}

static void experts_sharded_over_ranks_equal_one_rank(void **state) {
  (void)state;
  rank_verdict verdict = {0};
  for (int i = 0; i < OT_COUNT(spreads); i++)
    try_spread(&spreads[i], RANK_LOADS_FREE, i % 3 == 0, &verdict);
  rank_conclude(&verdict, "experts");
}

static void empty_and_overloaded_ranks_equal_one_rank(void **state) {
  (void)state;
  rank_verdict verdict = {0};
  for (int i = 0; i < OT_COUNT(crowded); i++) {
    try_spread(&crowded[i], RANK_LOADS_CROWDED, i == 0, &verdict);
  }
  rank_conclude(&verdict, "crowded experts");
}

// Number of passes of a micro-batch in the last step, over the layers with experts.
static double rounds_of(const rank_result *result) {
  return result->experts[RANK_STEPS - 1][OT_EXPERT_PASSES] / 3;
}

static void try_rounds(const spread *s, rank_loads loads, double room, bool poison,
                       rank_verdict *verdict) {
  rank_request request = request_of(s, OT_F64, loads);
  rank_result result;
  request.expert_buffer = room;
  request.poison = poison;
  request.overlap = !poison;
  if (rank_run(&request, &result) != OT_OK) fail_msg("%s", ot_fail_message());
  rank_judge(&request, &result, verdict);
  assert_true(rounds_of(&result) > (room < 1 ? 2 : 1));
  rank_release(&result);
}

// A buffer for a third of a balanced load needs three passes or more.
static void overflow_tokens_arrive_in_further_passes(void **state) {
  (void)state;
  rank_verdict verdict = {0};
  for (int i = 0; i < OT_COUNT(spreads); i += 4) {
    try_rounds(&spreads[i], RANK_LOADS_FREE, 0.3, i % 8 == 0, &verdict);
  }
  for (int i = 0; i < OT_COUNT(crowded); i++) {
    try_rounds(&crowded[i], RANK_LOADS_CROWDED, i % 2 ? 1 : 0.1, i % 3 == 0, &verdict);
  }
  rank_conclude(&verdict, "overflow passes of experts");
}

// A buffer for all tokens of all ranks needs one pass; several passes give the same bits.
static void overflow_passes_change_no_bit_of_a_loss(void **state) {
  (void)state;
  for (int i = 0; i < 3; i++) {
    rank_request request = request_of(&crowded[i], OT_F32, RANK_LOADS_CROWDED);
    rank_result one, many;
    request.expert_buffer = 64;
    if (rank_run(&request, &one) != OT_OK) fail_msg("%s", ot_fail_message());
    request.expert_buffer = 0.2;
    if (rank_run(&request, &many) != OT_OK) fail_msg("%s", ot_fail_message());
    assert_true(rounds_of(&one) == 1 && rounds_of(&many) > 4);
    assert_true(one.loss[0] == many.loss[0]);
    rank_release(&one);
    rank_release(&many);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(experts_sharded_over_ranks_equal_one_rank),
      cmocka_unit_test(empty_and_overloaded_ranks_equal_one_rank),
      cmocka_unit_test(overflow_tokens_arrive_in_further_passes),
      cmocka_unit_test(overflow_passes_change_no_bit_of_a_loss),
  };
  return cmocka_run_group_tests(tests, NULL, rank_references_release);
}
