// SPDX-License-Identifier: Apache-2.0
// run: alone. Partitioning models into chunks: by cost against all partitions, and by layout texts.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "host/heap.h"
#include "pipeline/chain_partition.h"
#include "pipeline/stages.h"
#include "support/scratch.h"
#include "support/tiny_model.h"

enum { MAX_BLOCKS = 20 };

// ---- partitions of chains ----

typedef struct chain {
  int blocks, ranks, chunks;
  double cost[MAX_BLOCKS];
  int rank_of[MAX_BLOCKS];
} chain;

typedef struct load {
  double rank, chunk;  // largest
  double squares;      // sum, of ranks
} load;

static load load_of(const chain *c, const int *first) {
  double ranks[MAX_BLOCKS] = {0};
  load out = {0};
  for (int k = 0; k < c->chunks; k++) {
    double sum = 0;
    for (int i = first[k]; i < first[k + 1]; i++) sum += c->cost[i];
    ranks[c->rank_of[k]] += sum;
    if (sum > out.chunk) out.chunk = sum;
  }
  for (int r = 0; r < c->ranks; r++) {
    if (ranks[r] > out.rank) out.rank = ranks[r];
    out.squares += ranks[r] * ranks[r];
  }
  return out;
}

static bool is_better(const load *a, const load *b) {
  if (a->rank != b->rank) return a->rank < b->rank;
  if (a->chunk != b->chunk) return a->chunk < b->chunk;
  return a->squares < b->squares;
}

// The best of all partitions, enumerated: `first` [chunks + 1] counts like an odometer.
static load best_load(const chain *c) {
  int first[MAX_BLOCKS + 1];
  for (int k = 0; k < c->chunks; k++) first[k] = k;
  first[c->chunks] = c->blocks;
  load best = load_of(c, first);
  for (;;) {
    int k = c->chunks - 1;
    while (k > 0 && first[k] == c->blocks - c->chunks + k) k--;
    if (k <= 0) return best;
    first[k]++;
    for (int j = k + 1; j < c->chunks; j++) first[j] = first[j - 1] + 1;
    const load now = load_of(c, first);
    if (is_better(&now, &best)) best = now;
  }
}

static load cut_load(const chain *c) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  int first[MAX_BLOCKS + 1];
  const ot_chain_request request = {c->blocks, c->cost, c->ranks, c->chunks, c->rank_of};
  ot_chain_partition(&request, &arena, first);
  ot_heap_release(&heap);
  assert_int_equal(first[0], 0);
  assert_int_equal(first[c->chunks], c->blocks);
  for (int k = 0; k < c->chunks; k++) assert_true(first[k] < first[k + 1]);
  return load_of(c, first);
}

static void place(chain *c, bool folded) {
  for (int k = 0; k < c->chunks; k++) {
    const int r = k % c->ranks;
    c->rank_of[k] = folded && k / c->ranks % 2 == 1 ? c->ranks - 1 - r : r;
  }
}

static void one_chunk_per_rank_is_partitioned_optimally(void **state) {
  (void)state;
  for (uint64_t trial = 0; trial < 200; trial++) {
    chain c = {.ranks = 1 + (int)ot_rng_below(1, trial, 0, 6)};
    c.chunks = c.ranks;
    c.blocks = c.chunks + (int)ot_rng_below(1, trial, 1, 9);
    for (int i = 0; i < c.blocks; i++) {
      c.cost[i] = (double)ot_rng_below(1, trial, 2 + (uint64_t)i, 20);
    }
    place(&c, false);
    assert_true(cut_load(&c).rank == best_load(&c).rank);
  }
}

// Equal layers, or every third one more expensive, a free embedding and a head of any size.
static void several_chunks_per_rank_are_partitioned_optimally(void **state) {
  (void)state;
  for (uint64_t trial = 0; trial < 120; trial++) {
    const int v = 2 + (int)ot_rng_below(2, trial, 0, 2);
    chain c = {.ranks = 2 + (int)ot_rng_below(2, trial, 1, 2)};
    c.chunks = c.ranks * v;
    c.blocks = c.chunks + 2 + (int)ot_rng_below(2, trial, 2, 6);
    const int dear = ot_rng_below(2, trial, 3, 2) == 0 ? 10 : 14;
    for (int i = 0; i < c.blocks; i++) c.cost[i] = i % 3 == 2 ? dear : 10;
    c.cost[0] = 0;
    c.cost[c.blocks - 1] = (double)ot_rng_below(2, trial, 4, 40);
    place(&c, v == 2 && ot_rng_below(2, trial, 5, 2) == 0);
    const load got = cut_load(&c), want = best_load(&c);
    assert_true(got.rank == want.rank);
    assert_true(got.chunk == want.chunk);
  }
}

// Equal layers between an embedding and a head of any size: the squares of ranks are minimal, too.
static void equal_layers_are_partitioned_optimally(void **state) {
  (void)state;
  for (uint64_t trial = 0; trial < 300; trial++) {
    const int v = 2 + (int)ot_rng_below(3, trial, 0, 2);
    chain c = {.ranks = 2 + (int)ot_rng_below(3, trial, 1, 2)};
    c.chunks = c.ranks * v;
    c.blocks = c.chunks + (int)ot_rng_below(3, trial, 2, 7);
    for (int i = 0; i < c.blocks; i++) c.cost[i] = 10;
    c.cost[0] = (double)ot_rng_below(3, trial, 3, 30);
    c.cost[c.blocks - 1] = (double)ot_rng_below(3, trial, 4, 60);
    place(&c, v == 2 && ot_rng_below(3, trial, 5, 2) == 0);
    const load got = cut_load(&c), want = best_load(&c);
    assert_false(is_better(&want, &got));
  }
}

// 13 layers of 10, an embedding of 48 and a head of 12 on the same rank: by the loads of ranks
// alone, the head's chunk would cost 52.
static void the_largest_chunk_limits_where_equal_layers_go(void **state) {
  (void)state;
  chain c = {.ranks = 2, .chunks = 4, .blocks = 15};
  for (int i = 0; i < c.blocks; i++) c.cost[i] = 10;
  c.cost[0] = 48;
  c.cost[14] = 12;
  place(&c, true);
  const load got = cut_load(&c), want = best_load(&c);
  assert_true(got.rank == 100 && got.chunk == 50);
  assert_false(is_better(&want, &got));
}

// 8 layers on 3 ranks: 2 ranks get 3; the choice is deterministic.
static void ties_are_partitioned_evenly_and_deterministically(void **state) {
  (void)state;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const double cost[] = {1e15, 1e15, 1e15, 1e15, 1e15, 1e15, 1e15, 1e15, 1e15};
  const int rank_of[] = {0, 1, 2};
  int first[4];
  const ot_chain_request nine = {9, cost, 3, 3, rank_of};
  ot_chain_partition(&nine, &arena, first);
  assert_int_equal(first[1], 3);
  assert_int_equal(first[2], 6);
  const ot_chain_request seven = {7, cost, 3, 3, rank_of};
  ot_chain_partition(&seven, &arena, first);
  assert_int_equal(first[1], 3);
  assert_int_equal(first[2], 5);
  ot_heap_release(&heap);
}

// ---- stages of models ----

typedef struct stage_case {
  ot_heap heap;
  ot_arena arena;
  ot_model model;
  ot_run run;
  ot_graph graph;
  ot_stages stages;
} stage_case;

static void stage_case_create(stage_case *out, int layers) {
  *out = (stage_case){.model = tiny_llama()};
  out->arena = ot_heap_arena_create(&out->heap);
  out->model.num_layers = layers;
  out->run = tiny_run(&out->model);
  out->run.parallel.pp = 4;
  out->run.parallel.vpp = 1;
}

static ot_status stage_case_build(stage_case *c, int64_t sequence_length) {
  const ot_graph_request request = {.model = &c->model,
                                    .mode = OT_MODE_TRAIN,
                                    .micro_batch_size = 1,
                                    .sequence_length = sequence_length,
                                    .compute = OT_F32,
                                    .storage = OT_F32,
                                    .threads = 1};
  assert_int_equal(ot_graph_build(&request, &c->arena, &c->graph), OT_OK);
  return ot_stages_build(&c->graph, &c->run.parallel, &c->arena, &c->stages);
}

static void assert_cut(const stage_case *c, const int *first) {
  for (int k = 0; k <= c->stages.num_chunks; k++) {
    assert_int_equal(c->stages.first_block[k], first[k]);
  }
}

static void a_large_head_leaves_its_rank_fewer_layers(void **state) {
  (void)state;
  stage_case c;
  stage_case_create(&c, 16);
  c.model.vocab_size = 8;
  assert_int_equal(stage_case_build(&c, 8), OT_OK);
  assert_cut(&c, (int[]){0, 5, 9, 13, 18});
  c.model.vocab_size = 2000;
  assert_int_equal(stage_case_build(&c, 8), OT_OK);
  assert_int_equal(c.stages.first_block[3], 17);
  ot_heap_release(&c.heap);
}

// Global layers cost more than windowed ones for long sequences.
static void global_layers_cost_more_than_windowed_ones(void **state) {
  (void)state;
  stage_case c;
  stage_case_create(&c, 8);
  c.run.parallel.pp = 2;
  c.model.vocab_size = 8;
  for (int i = 0; i < 8; i++) c.model.window[i] = i < 6 ? 4 : 0;
  assert_int_equal(stage_case_build(&c, 512), OT_OK);
  assert_true(c.stages.first_block[1] > 5);
  ot_heap_release(&c.heap);
}

// GEMM FLOPs of a block over T tokens, forward and backward, by hand: three GEMMs per weight; for
// attention two forward and five backward (scores are recomputed) over the visible pairs.
static double flops_of(const ot_model *m, int block, int64_t T) {
  enum { WEIGHT_PRODUCTS = 3, ATTENTION_PRODUCTS = 7 };
  const double C = (double)m->hidden_size, F = (double)m->intermediate_size;
  const double q = (double)(m->num_heads * m->head_dim);
  const double kv = (double)(m->num_kv_heads * m->head_dim);
  if (block == 0) return 0;
  if (block > m->num_layers) return 2.0 * WEIGHT_PRODUCTS * (double)(T * m->vocab_size) * C;
  const int64_t window = m->window[block - 1];
  double pairs = 0;
  for (int64_t t = 0; t < T; t++) pairs += (double)(window > 0 && t >= window ? window : t + 1);
  return 2.0 * WEIGHT_PRODUCTS * (double)T * C * (2 * q + 2 * kv + 3 * F) +
         2.0 * ATTENTION_PRODUCTS * pairs * q;
}

// Gemma's pattern, five windowed layers per global one, with long sequences: the partition is
// optimal, with one chunk per stage and with two, and better than one by layer counts.
static void interleaved_windows_are_balanced_by_cost(void **state) {
  (void)state;
  enum { LAYERS = 12, LENGTH = 1024 };
  for (int pp = 2; pp <= 4; pp++) {
    for (int vpp = 1; vpp <= 2; vpp++) {
      stage_case c;
      stage_case_create(&c, LAYERS);
      c.model.vocab_size = 8;
      c.run.parallel.pp = pp;
      c.run.parallel.vpp = vpp;
      c.run.parallel.pipeline = vpp > 1 ? OT_PIPELINE_INTERLEAVED : OT_PIPELINE_1F1B;
      for (int i = 0; i < LAYERS; i++) c.model.window[i] = i % 6 < 5 ? 16 : 0;
      chain by_hand = {.blocks = LAYERS + 2, .ranks = pp, .chunks = pp * vpp};
      for (int i = 0; i < LAYERS + 2; i++) by_hand.cost[i] = flops_of(&c.model, i, LENGTH);
      place(&by_hand, false);
      assert_int_equal(stage_case_build(&c, LENGTH), OT_OK);
      const load best = best_load(&by_hand), cut = load_of(&by_hand, c.stages.first_block);
      assert_true(cut.rank <= best.rank * (1 + 1e-12));
      assert_true(by_hand.cost[6] > 2 * by_hand.cost[5]);
      int even[MAX_BLOCKS + 1];
      for (int k = 0; k <= by_hand.chunks; k++) even[k] = (LAYERS + 2) * k / by_hand.chunks;
      if (pp == 4) assert_true(cut.rank < 0.9 * load_of(&by_hand, even).rank);
      ot_heap_release(&c.heap);
    }
  }
}

static void recompute_counts_for_the_layers_that_do_it(void **state) {
  (void)state;
  stage_case c;
  stage_case_create(&c, 7);
  ot_recompute each[] = {OT_RECOMPUTE_FULL, OT_RECOMPUTE_FULL, OT_RECOMPUTE_FULL, OT_RECOMPUTE_FULL,
                         OT_RECOMPUTE_NONE, OT_RECOMPUTE_NONE, OT_RECOMPUTE_NONE};
  c.run.parallel.pp = 2;
  c.model.vocab_size = 8;
  assert_int_equal(stage_case_build(&c, 8), OT_OK);
  assert_cut(&c, (int[]){0, 5, 9});
  // 4/3 for each of the first four: 4 against 4/3 + 3, not 5 1/3 against 3.
  c.run.parallel.recompute = each;
  c.run.parallel.num_recompute = 7;
  assert_int_equal(stage_case_build(&c, 8), OT_OK);
  assert_cut(&c, (int[]){0, 4, 9});
  ot_heap_release(&c.heap);
}

static void chunks_stand_in_a_loop_or_fold_back(void **state) {
  (void)state;
  stage_case c;
  stage_case_create(&c, 10);
  c.run.parallel.pipeline = OT_PIPELINE_INTERLEAVED;
  c.run.parallel.vpp = 2;
  assert_int_equal(stage_case_build(&c, 8), OT_OK);
  assert_int_equal(c.stages.num_chunks, 8);
  for (int k = 0; k < 8; k++) assert_int_equal(c.stages.rank_of[k], k % 4);
  c.run.parallel.pipeline = OT_PIPELINE_ZB_V;
  c.run.parallel.vpp = 1;
  assert_int_equal(stage_case_build(&c, 8), OT_OK);
  assert_int_equal(c.stages.num_chunks, 8);
  const int folded[] = {0, 1, 2, 3, 3, 2, 1, 0};
  for (int k = 0; k < 8; k++) assert_int_equal(c.stages.rank_of[k], folded[k]);
  for (int i = 0; i < 12; i++) {
    const int k = ot_stages_chunk(&c.stages, i);
    assert_true(c.stages.first_block[k] <= i && i < c.stages.first_block[k + 1]);
  }
  ot_heap_release(&c.heap);
}

static void more_chunks_than_blocks_are_refused(void **state) {
  (void)state;
  stage_case c;
  stage_case_create(&c, 1);
  assert_int_equal(stage_case_build(&c, 8), OT_USAGE);
  assert_message_has("pp=4");
  assert_message_has("3 blocks");
  ot_heap_release(&c.heap);
}

// ---- layouts ----

static void layout_texts_determine_the_stages(void **state) {
  (void)state;
  stage_case c;
  stage_case_create(&c, 10);
  c.run.parallel.layout = "Et*3 | t*4|ttt|L";
  assert_int_equal(stage_case_build(&c, 8), OT_OK);
  assert_cut(&c, (int[]){0, 4, 8, 11, 12});
  c.run.parallel.layout = "E|t*1t*2|t*7|L";
  assert_int_equal(stage_case_build(&c, 8), OT_OK);
  assert_cut(&c, (int[]){0, 1, 4, 11, 12});
  ot_heap_release(&c.heap);
}

static void layouts_that_do_not_fit_are_refused_with_their_place(void **state) {
  (void)state;
  static const struct {
    const char *layout, *part;
  } bad[] = {
      {"Et*3|t*4|t*3L", "has 3 chunks; the stages need 4"},
      {"Et*3|t*4|t*3|x", "character 14: 'x'; allowed: E"},
      {"t*3|t*4|t*3|L", "character 1: 't', expected E (the embedding)"},
      {"Et*3|t*4|t*2|L", "character 14: 'L', expected t (layer 10 of 10)"},
      {"Et*3|t*4|t*4|L", "character 10: t*4, but only 3 of the model's 10 layers remain"},
      {"Et*3|t*4|t*3|t", "character 14: 't', expected L (the loss head, after 10 layers)"},
      {"Et*3|t*4|t*3|LL", "character 15: 'L', expected the end"},
      {"Et*3||t*7|L", "character 6: chunk 1 is empty"},
      {"Et*3|t*4|t*3L|", "character 15: chunk 3 is empty"},
      {"Et*3|t*4|t*2|t", "ends, expected L (the loss head, after 10 layers)"},
      {"Et*3|t*|t*3|L", "character 7: '*' needs a number"},
      {"Et*3|t*0|t*3|L", "character 7: '*' needs a number"},
      {"Et*3|t*99999999999|t*3|L", "character 7: '*' needs a number"},
      {"E*2t*3|t*4|t*3|L", "character 2: '*'; allowed"},
  };
  stage_case c;
  stage_case_create(&c, 10);
  for (int i = 0; i < OT_COUNT(bad); i++) {
    c.run.parallel.layout = bad[i].layout;
    assert_int_equal(stage_case_build(&c, 8), OT_USAGE);
    assert_message_has(bad[i].part);
  }
  ot_heap_release(&c.heap);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_chunk_per_rank_is_partitioned_optimally),
      cmocka_unit_test(several_chunks_per_rank_are_partitioned_optimally),
      cmocka_unit_test(equal_layers_are_partitioned_optimally),
      cmocka_unit_test(the_largest_chunk_limits_where_equal_layers_go),
      cmocka_unit_test(ties_are_partitioned_evenly_and_deterministically),
      cmocka_unit_test(a_large_head_leaves_its_rank_fewer_layers),
      cmocka_unit_test(global_layers_cost_more_than_windowed_ones),
      cmocka_unit_test(interleaved_windows_are_balanced_by_cost),
      cmocka_unit_test(recompute_counts_for_the_layers_that_do_it),
      cmocka_unit_test(chunks_stand_in_a_loop_or_fold_back),
      cmocka_unit_test(more_chunks_than_blocks_are_refused),
      cmocka_unit_test(layout_texts_determine_the_stages),
      cmocka_unit_test(layouts_that_do_not_fit_are_refused_with_their_place),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
