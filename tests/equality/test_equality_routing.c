// SPDX-License-Identifier: Apache-2.0
// run: any machine. Routing over whole sequences (capacity dropping, expert choice) on ranks of tp
// and cp that hold parts of a sequence, with experts local or sharded over ep and etp: losses,
// gradients, norms and weights equal those of one rank.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/rank_case_verdict.h"

enum { EXPERTS = 6, ROUTED_LAYERS = 2 };

typedef struct layout {
  rank_model_kind model;
  int pp, dp_shard, cp, tp, ep, etp, zero;
  ot_context_parallel context;
  bool wide;
} layout;

#define RING OT_CONTEXT_RING
#define ULYSSES OT_CONTEXT_ULYSSES

static const layout layouts[] = {
    {RANK_MOE, 1, 1, 1, 2, 1, 1, 0, RING, false},
    {RANK_MOE, 1, 1, 1, 4, 1, 1, 0, RING, false},
    {RANK_MOE, 1, 1, 2, 1, 1, 1, 0, RING, false},
    {RANK_MOE, 1, 1, 2, 1, 1, 1, 0, ULYSSES, false},
    {RANK_MOE, 1, 1, 4, 1, 1, 1, 0, RING, false},
    {RANK_MOE, 1, 1, 2, 2, 1, 1, 0, RING, false},
    {RANK_LATENT, 1, 1, 2, 2, 1, 1, 0, ULYSSES, false},
    {RANK_MOE, 1, 1, 2, 3, 1, 1, 0, ULYSSES, true},
    {RANK_MOE, 2, 2, 2, 2, 1, 1, 2, RING, false},
    // Experts sharded over the ranks of a sequence, over some of them, over more.
    {RANK_MOE, 1, 1, 1, 2, 2, 1, 0, RING, false},
    {RANK_MOE, 1, 1, 2, 1, 2, 1, 0, ULYSSES, false},
    {RANK_MOE, 1, 1, 2, 2, 2, 1, 0, RING, false},
    {RANK_MOE, 1, 1, 1, 4, 2, 1, 0, RING, false},
    {RANK_MOE, 1, 3, 1, 2, 6, 1, 3, RING, false},
    {RANK_MOE, 1, 2, 2, 1, 1, 4, 1, RING, false},
    {RANK_MOE, 1, 1, 2, 2, 2, 2, 0, RING, false},
    {RANK_LATENT, 1, 2, 2, 2, 2, 2, 2, ULYSSES, false},
    {RANK_MOE, 2, 2, 2, 2, 2, 1, 3, RING, false},
};

static const ot_moe_routing routings[] = {OT_MOE_DROP_BY_POSITION, OT_MOE_DROP_BY_SCORE,
                                          OT_MOE_EXPERT_CHOICE};

static rank_request request_of(const layout *l, ot_moe_routing routing, int64_t micro_batch) {
  return (rank_request){
      .model = l->model,
      .layers = 3,
      .wide = l->wide,
      .dtype = OT_F64,
      .length = l->wide ? 24 : 32,
      .batch = (int64_t)l->dp_shard * 2,
      .micro_batch = micro_batch,
      .steps = RANK_STEPS,
      .pp = l->pp,
      .dp_shard = l->dp_shard,
      .cp = l->cp,
      .tp = l->tp,
      .ep = l->ep,
      .etp = l->etp,
      .routing = routing,
      .experts = l->model == RANK_MOE ? EXPERTS : 0,
      .zero = l->zero,
      .prefetch = 1,
      .recompute = {OT_RECOMPUTE_FULL, OT_RECOMPUTE_NONE, OT_RECOMPUTE_SELECTIVE},
      .context = l->context,
      .overlap = true,
  };
}

// The capacity must drop some tokens, or the test shows nothing.
static void expect_dropped(const rank_request *request) {
  const rank_result *const one = rank_reference(request);
  const double dropped = one->experts[0][OT_EXPERT_DROP_SHARE] / ROUTED_LAYERS;
  assert_true(dropped > 0.01 && dropped < 0.5);
}

static void try_layout(int place, rank_verdict *verdict) {
  const layout *const l = &layouts[place];
  for (int i = 0; i < OT_COUNT(routings); i++) {
    // Expert groups cannot be combined with expert choice.
    if (l->model == RANK_LATENT && routings[i] == OT_MOE_EXPERT_CHOICE) continue;
    for (int64_t micro_batch = 1; micro_batch <= 2; micro_batch++) {
      rank_request request = request_of(l, routings[i], micro_batch);
      // Of the larger layouts every second, without OT_TESTS=full every fourth.
      const int64_t turn = (place + i + micro_batch) % (rank_full() ? 2 : 4);
      if (rank_count(&request) > 2 && turn != 1) continue;
      request.poison = i != 1;
      rank_try(&request, verdict);
      expect_dropped(&request);
    }
  }
}

static void whole_sequence_routing_equals_one_rank(void **state) {
  (void)state;
  rank_verdict verdict = {0};
  for (int i = 0; i < OT_COUNT(layouts); i++) try_layout(i, &verdict);
  rank_conclude(&verdict, "routing of whole sequences");
}

// Overflow goes into later passes; no more tokens are dropped than on one rank.
static void overflow_passes_of_whole_sequence_routing_equal_one_rank(void **state) {
  (void)state;
  rank_verdict verdict = {0};
  for (int i = 0; i < OT_COUNT(layouts); i++) {
    if (layouts[i].ep * layouts[i].etp == 1 || layouts[i].model == RANK_LATENT) continue;
    rank_request request = request_of(&layouts[i], routings[i % 3], 2);
    request.expert_buffer = 0.3;
    rank_result result;
    if (rank_run(&request, &result) != OT_OK) fail_msg("%s", ot_fail_message());
    rank_judge(&request, &result, &verdict);
    assert_true(result.experts[0][OT_EXPERT_PASSES] > ROUTED_LAYERS);
    rank_release(&result);
  }
  rank_conclude(&verdict, "overflow passes of whole-sequence routing");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(whole_sequence_routing_equals_one_rank),
      cmocka_unit_test(overflow_passes_of_whole_sequence_routing_equal_one_rank),
  };
  return cmocka_run_group_tests(tests, NULL, rank_references_release);
}
