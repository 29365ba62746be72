// SPDX-License-Identifier: Apache-2.0
// ctest: threads
// ctest: variant=cuda full OT_TESTS=few
// ctest: first
// run: any machine. Every parallel configuration gives the same run: losses, gradients, norms and
// weights equal those of one rank, for every factorisation of 1, 2, 4 and 8 ranks, with all valid
// pairs of the other options, in float64 and an eighth of them in float32; and for samples of 6, 12
// and 16 ranks, a third of them in float32. OT_TESTS=full in the environment runs the product of
// factorisations, ZeRO stages, pipeline schedules and recompute policies instead (minutes).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/rank_case_axes.h"
#include "support/rank_case_margin.h"
#include "support/rank_case_verdict.h"

// ---- factorisations and pairs ----

static void try_row(const cover_row *row, rank_verdict *verdict) {
  rank_request request;
  rank_request_of(row, OT_F64, &request);
  rank_try(&request, verdict);
}

// With `poison`, dead memory holds NaN and canaries follow every buffer.
static void try_row_in_float32(const cover_row *row, bool poison, rank_verdict *verdict) {
  rank_request request;
  rank_request_of(row, OT_F32, &request);
  request.poison = poison;
  rank_choose_sample(&request);
  rank_try(&request, verdict);
}

static void every_factorisation_with_all_pairs_of_choices_equals_one_rank(void **state) {
  (void)state;
  if (rank_full()) skip();
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  cover_row *given;
  const int num_given = rank_factorisations(&arena, &given);
  const cover_request wanted = {.num_factors = RANK_FACTORS,
                                .levels = rank_levels,
                                .fits = rank_fits,
                                .num_given = num_given,
                                .given = given};
  cover_array array;
  cover_build(&wanted, &arena, &array);
  print_message("%d factorisations, %d rows: %d of %d pairs of options (%d pairs impossible)\n",
                num_given, array.num_rows, array.covered, array.pairs, array.impossible);
  assert_int_equal(array.covered, array.pairs);
  rank_verdict verdict = {0};
  for (int i = 0; i < array.num_rows; i++) {
    try_row(&array.rows[i], &verdict);
    if (i % 8 == 3) try_row_in_float32(&array.rows[i], i % 24 == 3, &verdict);
  }
  rank_conclude(&verdict, "factorisations and pairs");
  ot_heap_release(&heap);
}

// Every factorisation x ZeRO stage x pipeline schedule x recompute policy; other options rotate.
static void the_whole_product_equals_one_rank(void **state) {
  (void)state;
  if (!rank_full()) skip();
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  static const rank_factor product[] = {RANK_ZERO, RANK_PIPELINE, RANK_RECOMPUTE};
  cover_row *given;
  const int num_given = rank_factorisations(&arena, &given);
  const cover_request wanted = {
      .num_factors = RANK_FACTORS, .levels = rank_levels, .fits = rank_fits};
  int choices = 1;
  for (int i = 0; i < OT_COUNT(product); i++) choices *= rank_levels[product[i]];
  rank_verdict verdict = {0};
  for (int i = 0; i < num_given * choices; i++) {
    cover_row row = given[i / choices];
    int rest = i % choices;
    for (int k = 0; k < OT_COUNT(product); k++) {
      row.level[product[k]] = rest % rank_levels[product[k]];
      rest /= rank_levels[product[k]];
    }
    if (!cover_close(&wanted, i, &row)) continue;
    try_row(&row, &verdict);
    try_row_in_float32(&row, false, &verdict);
  }
  rank_conclude(&verdict, "product");
  ot_heap_release(&heap);
}

// ---- 6, 12 and 16 ranks ----

// {model, pp, dp_replicate, dp_shard, cp, tp, zero, accumulate, pipeline, vpp, context, layers}
typedef struct sample {
  rank_model_kind model;
  int pp, dp_replicate, dp_shard, cp, tp, zero;
  ot_accumulate accumulate;
  ot_pipeline pipeline;
  int vpp;
  ot_context_parallel context;
  int layers;
} sample;

static const sample sixteen[] = {
    {RANK_LLAMA, 2, 2, 2, 2, 1, 1, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, 1, OT_CONTEXT_ULYSSES, 5},
    {RANK_GPT2, 2, 1, 2, 2, 2, 3, OT_ACCUMULATE_SHARDED, OT_PIPELINE_ZB_V, 1, OT_CONTEXT_RING, 5},
    {RANK_GEMMA, 4, 1, 1, 1, 4, 0, OT_ACCUMULATE_WHOLE, OT_PIPELINE_INTERLEAVED, 2, OT_CONTEXT_RING,
     8},
    {RANK_QWEN, 2, 2, 1, 2, 2, 0, OT_ACCUMULATE_SHARDED, OT_PIPELINE_ZB_H1, 1, OT_CONTEXT_ULYSSES,
     5},
    {RANK_DROPOUT, 1, 2, 2, 2, 2, 2, OT_ACCUMULATE_SHARDED, OT_PIPELINE_1F1B, 1, OT_CONTEXT_RING,
     5},
    {RANK_LLAMA, 16, 1, 1, 1, 1, 0, OT_ACCUMULATE_WHOLE, OT_PIPELINE_ZB_H2, 1, OT_CONTEXT_RING, 16},
    {RANK_QWEN, 1, 1, 1, 16, 1, 0, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, 1, OT_CONTEXT_RING, 5},
    {RANK_GPT2, 1, 2, 1, 1, 8, 0, OT_ACCUMULATE_SHARDED, OT_PIPELINE_1F1B, 1, OT_CONTEXT_RING, 5},
    {RANK_GEMMA2, 1, 1, 2, 2, 4, 3, OT_ACCUMULATE_SHARDED, OT_PIPELINE_1F1B, 1, OT_CONTEXT_RING, 5},
    {RANK_GEMMA, 1, 4, 4, 1, 1, 3, OT_ACCUMULATE_SHARDED, OT_PIPELINE_1F1B, 1, OT_CONTEXT_RING, 5},
    {RANK_LLAMA, 1, 1, 1, 2, 8, 0, OT_ACCUMULATE_WHOLE, OT_PIPELINE_GPIPE, 1, OT_CONTEXT_RING, 5},
    {RANK_GPT2, 1, 1, 16, 1, 1, 3, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, 1, OT_CONTEXT_RING, 5},
};

static const sample multiples_of_three[] = {
    {RANK_LLAMA, 2, 1, 1, 2, 3, 0, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, 1, OT_CONTEXT_ULYSSES, 5},
    {RANK_GPT2, 1, 1, 2, 1, 6, 1, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, 1, OT_CONTEXT_RING, 5},
    {RANK_LLAMA, 1, 1, 1, 1, 12, 0, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, 1, OT_CONTEXT_RING, 5},
    {RANK_GPT2, 3, 1, 4, 1, 1, 3, OT_ACCUMULATE_SHARDED, OT_PIPELINE_ZB_H1, 1, OT_CONTEXT_RING, 5},
    {RANK_LLAMA, 1, 2, 1, 3, 2, 0, OT_ACCUMULATE_SHARDED, OT_PIPELINE_1F1B, 1, OT_CONTEXT_ULYSSES,
     5},
    {RANK_GEMMA, 2, 1, 1, 6, 1, 0, OT_ACCUMULATE_WHOLE, OT_PIPELINE_GPIPE, 1, OT_CONTEXT_RING, 5},
    {RANK_QWEN, 1, 3, 4, 1, 1, 2, OT_ACCUMULATE_SHARDED, OT_PIPELINE_1F1B, 1, OT_CONTEXT_RING, 5},
    {RANK_GPT2, 3, 1, 1, 1, 2, 0, OT_ACCUMULATE_WHOLE, OT_PIPELINE_ZB_V, 1, OT_CONTEXT_RING, 6},
    {RANK_LLAMA, 3, 1, 2, 1, 2, 2, OT_ACCUMULATE_SHARDED, OT_PIPELINE_DUALPIPE_V, 1,
     OT_CONTEXT_RING, 7},
    {RANK_DROPOUT, 1, 2, 1, 3, 1, 0, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, 1, OT_CONTEXT_RING, 5},
    {RANK_GPT2, 1, 1, 2, 1, 3, 3, OT_ACCUMULATE_SHARDED, OT_PIPELINE_1F1B, 1, OT_CONTEXT_RING, 5},
    {RANK_OLMO, 1, 1, 6, 1, 1, 3, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, 1, OT_CONTEXT_RING, 5},
    {RANK_QWEN, 6, 1, 1, 1, 1, 0, OT_ACCUMULATE_WHOLE, OT_PIPELINE_INTERLEAVED, 2, OT_CONTEXT_RING,
     12},
    {RANK_GEMMA, 1, 1, 1, 1, 6, 0, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, 1, OT_CONTEXT_RING, 5},
    {RANK_OLMO, 1, 3, 2, 1, 1, 1, OT_ACCUMULATE_SHARDED, OT_PIPELINE_1F1B, 1, OT_CONTEXT_RING, 5},
    {RANK_LATENT, 2, 1, 1, 2, 3, 0, OT_ACCUMULATE_WHOLE, OT_PIPELINE_1F1B, 1, OT_CONTEXT_ULYSSES,
     5},
};

static void try_type(const sample *s, bool wide, ot_dtype dtype, rank_verdict *verdict) {
  rank_request request = {
      .model = s->model,
      .layers = s->layers,
      .wide = wide,
      .dtype = dtype,
      .length = wide ? 24 : 32,
      .batch = (int64_t)s->dp_replicate * s->dp_shard * 2,
      .micro_batch = 1,
      .steps = RANK_STEPS,
      .pp = s->pp,
      .vpp = s->vpp,
      .dp_replicate = s->dp_replicate,
      .dp_shard = s->dp_shard,
      .cp = s->cp,
      .tp = s->tp,
      .zero = s->zero,
      .prefetch = 1,
      .accumulate = s->accumulate,
      .pipeline = s->pipeline,
      .recompute = {OT_RECOMPUTE_NONE, OT_RECOMPUTE_FULL, OT_RECOMPUTE_SELECTIVE},
      .context = s->context,
      .overlap = true};
  if (dtype == OT_F32) rank_choose_sample(&request);
  rank_try(&request, verdict);
}

// All samples in float64; a third of them, or all with OT_TESTS=full, in float32.
static void try_samples(const sample *samples, int count, bool wide, const char *what) {
  rank_verdict verdict = {0};
  for (int i = 0; i < count; i++) {
    try_type(&samples[i], wide, OT_F64, &verdict);
    if (i % 3 == 1 || rank_full()) try_type(&samples[i], wide, OT_F32, &verdict);
  }
  rank_conclude(&verdict, what);
}

static void samples_of_sixteen_ranks_equal_one_rank(void **state) {
  (void)state;
  try_samples(sixteen, OT_COUNT(sixteen), false, "16 ranks");
}

static void degrees_with_a_three_equal_one_rank(void **state) {
  (void)state;
  try_samples(multiples_of_three, OT_COUNT(multiples_of_three), true, "6 and 12 ranks");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_factorisation_with_all_pairs_of_choices_equals_one_rank),
      cmocka_unit_test(the_whole_product_equals_one_rank),
      cmocka_unit_test(samples_of_sixteen_ranks_equal_one_rank),
      cmocka_unit_test(degrees_with_a_three_equal_one_rank),
  };
  return cmocka_run_group_tests(tests, NULL, rank_references_release);
}
