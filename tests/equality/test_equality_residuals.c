// SPDX-License-Identifier: Apache-2.0
// ctest: variant=cuda full OT_TESTS=few
// run: any machine. Attention Residuals on many ranks equal those on one. The stack of block
// outputs crosses pipeline boundaries between and inside blocks, passes through stages with one
// chunk and with several, and is sharded by tp and cp. Its gradients are reduced once, for any
// recompute policy and ZeRO stage.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/text.h"
#include "support/op_device.h"
#include "support/rank_case_verdict.h"

typedef struct mixed {
  rank_model_kind model;
  int block, layers, pp, vpp, dp_shard, cp, tp, ep, zero;
  ot_pipeline pipeline;
  ot_recompute recompute[3];  // of layers, repeated cyclically
  const char *layout;
} mixed;

#define NONE OT_RECOMPUTE_NONE
#define SELECTIVE OT_RECOMPUTE_SELECTIVE
#define FULL OT_RECOMPUTE_FULL

static const mixed cases[] = {
    // one rank, split and not
    {RANK_LLAMA, 1, 4, 1, 1, 1, 1, 1, 1, 0, OT_PIPELINE_1F1B, {FULL, NONE, SELECTIVE}, ""},
    // two stages: blocks end at the boundary, one sub-layer before it, inside the layer after it
    {RANK_LLAMA, 4, 6, 2, 1, 1, 1, 1, 1, 0, OT_PIPELINE_1F1B, {NONE, NONE, NONE}, ""},
    {RANK_LLAMA, 3, 6, 2, 1, 1, 1, 1, 1, 0, OT_PIPELINE_1F1B, {SELECTIVE, NONE, FULL}, ""},
    {RANK_LLAMA, 2, 6, 2, 1, 1, 1, 1, 1, 0, OT_PIPELINE_GPIPE, {FULL, FULL, FULL}, ""},
    {RANK_LLAMA, 1, 6, 2, 1, 1, 1, 1, 1, 0, OT_PIPELINE_ZB_H1, {FULL, NONE, SELECTIVE}, ""},
    {RANK_GPT2, 12, 6, 2, 1, 1, 1, 1, 1, 0, OT_PIPELINE_1F1B, {NONE, FULL, NONE}, ""},
    // programs with the same W on differently numbered values
    {RANK_LLAMA, 3, 6, 2, 1, 1, 1, 1, 1, 0, OT_PIPELINE_ZB_H1, {NONE, NONE, NONE}, ""},
    {RANK_LLAMA, 6, 6, 2, 1, 2, 1, 1, 1, 3, OT_PIPELINE_ZB_H1, {FULL, FULL, FULL}, ""},
    // several chunks per stage
    {RANK_LLAMA, 3, 6, 2, 2, 1, 1, 1, 1, 0, OT_PIPELINE_INTERLEAVED, {FULL, FULL, FULL}, ""},
    {RANK_LLAMA, 5, 8, 4, 2, 1, 1, 1, 1, 0, OT_PIPELINE_INTERLEAVED, {NONE, NONE, NONE}, ""},
    {RANK_GEMMA, 3, 6, 2, 1, 1, 1, 1, 1, 0, OT_PIPELINE_ZB_V, {FULL, NONE, SELECTIVE}, ""},
    {RANK_LLAMA, 2, 6, 2, 1, 1, 1, 1, 1, 0, OT_PIPELINE_ZB_V, {NONE, NONE, NONE}, ""},
    {RANK_LLAMA, 3, 6, 4, 1, 1, 1, 1, 1, 0, OT_PIPELINE_ZB_H2, {NONE, FULL, NONE}, ""},
    // the embedding alone, the head alone
    {RANK_LLAMA, 3, 5, 4, 1, 1, 1, 1, 1, 0, OT_PIPELINE_1F1B, {NONE, FULL, NONE}, "E|t*3|t*2|L"},
    {RANK_LLAMA, 2, 5, 4, 1, 1, 1, 1, 1, 0, OT_PIPELINE_ZB_H1, {FULL, NONE, NONE}, "E|t*4|t|L"},
    // other axes, and all axes
    {RANK_LLAMA, 3, 5, 1, 1, 1, 1, 2, 1, 0, OT_PIPELINE_1F1B, {NONE, FULL, SELECTIVE}, ""},
    {RANK_GPT2, 1, 5, 1, 1, 1, 1, 4, 1, 0, OT_PIPELINE_1F1B, {NONE, FULL, SELECTIVE}, ""},
    {RANK_LLAMA, 3, 5, 1, 1, 1, 2, 1, 1, 0, OT_PIPELINE_1F1B, {NONE, FULL, SELECTIVE}, ""},
    {RANK_LLAMA, 3, 5, 1, 1, 2, 1, 1, 1, 1, OT_PIPELINE_1F1B, {NONE, FULL, SELECTIVE}, ""},
    {RANK_LLAMA, 3, 5, 1, 1, 2, 1, 1, 1, 2, OT_PIPELINE_1F1B, {NONE, FULL, SELECTIVE}, ""},
    {RANK_LLAMA, 3, 5, 1, 1, 4, 1, 1, 1, 3, OT_PIPELINE_1F1B, {NONE, FULL, SELECTIVE}, ""},
    {RANK_LLAMA, 3, 6, 2, 2, 2, 1, 2, 1, 3, OT_PIPELINE_INTERLEAVED, {FULL, FULL, FULL}, ""},
    {RANK_LLAMA, 3, 6, 2, 1, 1, 2, 2, 1, 0, OT_PIPELINE_ZB_H1, {FULL, NONE, SELECTIVE}, ""},
    {RANK_GPT2, 5, 6, 2, 1, 2, 2, 1, 1, 3, OT_PIPELINE_ZB_V, {FULL, NONE, SELECTIVE}, ""},
    // experts in separate blocks
    {RANK_MOE, 1, 4, 1, 1, 2, 1, 1, 2, 1, OT_PIPELINE_1F1B, {FULL, NONE, SELECTIVE}, ""},
    {RANK_MOE, 3, 4, 2, 1, 2, 1, 1, 2, 3, OT_PIPELINE_ZB_V, {FULL, NONE, SELECTIVE}, ""},
    {RANK_MOE, 3, 4, 2, 2, 1, 1, 2, 2, 0, OT_PIPELINE_INTERLEAVED, {NONE, FULL, NONE}, ""},
};

static void try_case(const mixed *m, bool poison, rank_verdict *verdict) {
  static const ot_dtype types[] = {OT_F64, OT_F32};
  for (int i = 0; i < 2; i++) {
    rank_request request = {
        .backend = op_device_backend(),
        .model = m->model,
        .layers = m->layers,
        .dtype = types[i],
        .length = 32,
        .batch = (int64_t)m->dp_shard * 4,
        .micro_batch = 1,
        .steps = RANK_STEPS,
        .pp = m->pp,
        .vpp = m->vpp,
        .dp_replicate = 1,
        .dp_shard = m->dp_shard,
        .cp = m->cp,
        .tp = m->tp,
        .ep = m->ep > 1 ? m->ep : 0,
        .residual_block = m->block,
        .zero = m->zero,
        .prefetch = 1,
        .accumulate = m->zero >= 2 ? OT_ACCUMULATE_SHARDED : OT_ACCUMULATE_WHOLE,
        .pipeline = m->pipeline,
        .overlap = true,
        .poison = poison && types[i] == OT_F32,
    };
    for (int layer = 0; layer < m->layers; layer++) {
      request.recompute[layer] = m->recompute[layer % 3];
    }
    ot_text_format(request.layout, RANK_LAYOUT, "%s", m->layout);
    rank_try(&request, verdict);
  }
}

static void a_stack_over_ranks_equals_one_rank(void **state) {
  (void)state;
  rank_verdict verdict = {0};
  for (int i = 0; i < OT_COUNT(cases); i++) try_case(&cases[i], true, &verdict);
  rank_conclude(&verdict, "residuals");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_stack_over_ranks_equals_one_rank),
  };
  return cmocka_run_group_tests(tests, NULL, rank_references_release);
}
