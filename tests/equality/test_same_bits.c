// SPDX-License-Identifier: Apache-2.0
// ctest: threads
// ctest: variant=cuda full OT_TESTS=few
// ctest: first
// run: any machine. Options that change no bit according to docs/bits.md: losses, norms, gradients,
// moments and weights of two steps are compared byte by byte between runs that differ in one
// option, in float32, in float64, and with all but the optimizer in bf16.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/op_device.h"
#include "support/rank_case.h"

typedef struct run_types {
  ot_dtype compute, kept;  // kept: storage, accumulators and moments
} run_types;

static const run_types types[] = {{OT_F32, OT_F32}, {OT_F64, OT_F64}, {OT_F32, OT_BF16}};
static const rank_model_kind models[] = {RANK_LLAMA, RANK_GPT2,   RANK_DROPOUT,
                                         RANK_GEMMA, RANK_GEMMA2, RANK_MOE};

static rank_request request_of(rank_model_kind model, ot_dtype dtype) {
  return (rank_request){.backend = op_device_backend(),
                        .model = model,
                        .layers = 8,
                        .dtype = dtype,
                        .length = 16,
                        .batch = 8,
                        .micro_batch = 1,
                        .steps = RANK_STEPS,
                        .pp = 1,
                        .vpp = 1,
                        .dp_replicate = 1,
                        .dp_shard = 1,
                        .cp = 1,
                        .tp = 1,
                        .prefetch = 1,
                        .pipeline = OT_PIPELINE_1F1B,
                        .overlap = true};
}

// ---- comparison ----

static void run(const rank_request *request, rank_result *result) {
  char text[RANK_TEXT];
  if (rank_run(request, result) == OT_OK) return;
  fail_msg("%s: %s", rank_describe(request, text), ot_fail_message());
}

// Describes the first difference of two results.
static const char *first_difference(const rank_result *a, const rank_result *b) {
  for (int i = 0; i < a->num_tensors; i++) {
    const size_t bytes = (size_t)a->tensors[i].count * sizeof(double);
    const rank_tensor *const x = &a->tensors[i], *const y = &b->tensors[i];
    if (memcmp(x->gradient, y->gradient, bytes) != 0) return x->name;
  }
  if (memcmp(a->loss, b->loss, sizeof a->loss) != 0) return "the loss";
  return memcmp(a->norm, b->norm, sizeof a->norm) != 0 ? "the norm" : "weights or moments";
}

// Runs `other` and compares it with the result of `base`.
static void expect_same(const rank_result *base, const rank_request *first,
                        const rank_request *other) {
  char texts[2][RANK_TEXT];
  rank_result result;
  run(other, &result);
  const bool same = result.bits == base->bits;
  const char *const where = same ? "" : first_difference(base, &result);
  rank_release(&result);
  if (!same) {
    fail_msg("bits differ, first in %s:\n  %s\n  %s", where, rank_describe(first, texts[0]),
             rank_describe(other, texts[1]));
  }
}

// An option: `change` sets variant `index`; returns false if there are no more.
typedef bool (*variant)(rank_request *request, int index);

static int vary(const rank_request *base, variant change) {
  rank_result first;
  run(base, &first);
  int runs = 0;
  for (int i = 0;; i++) {
    rank_request other = *base;
    if (!change(&other, i)) break;
    expect_same(&first, base, &other);
    runs++;
  }
  rank_release(&first);
  return runs;
}

// Without OT_TESTS=full or few, option `option` is taken by half of the models, in float32 or in
// float64 by turns, and by one of the two models with bf16.
static bool takes_turn(int option, int model, int type) {
  const char *const text = getenv("OT_TESTS");
  if (text) return true;
  if (types[type].kept == OT_BF16) return (option + model / 3) % 2 == 0;
  return (option + model) % 4 == type;
}

// Applies `change` to `base` for every model and type.
static void vary_all(const rank_request *base, variant change, const char *what) {
  static int option;
  int runs = 0;
  option++;
  for (int m = 0; m < OT_COUNT(models); m++) {
    for (int t = 0; t < OT_COUNT(types); t++) {
      if (!takes_turn(option, m, t) || !rank_sampled()) continue;
      rank_request request = *base;
      // bf16 runs every option with tied weights and with experts.
      const bool both = models[m] == RANK_GPT2 || models[m] == RANK_MOE;
      if (types[t].kept == OT_BF16 && !both) continue;
      request.model = models[m];
      request.dtype = types[t].compute;
      request.storage = request.gradients = request.moments = request.wire = types[t].kept;
      runs += vary(&request, change);
    }
  }
  print_message("%s: %d runs bitwise equal to another\n", what, runs);
}

// ---- options ----

static bool other_zero(rank_request *r, int index) {
  r->zero = index + 2;
  return r->zero <= 3;
}

static void zero_stages_at_equal_accumulate(void **state) {
  (void)state;
  static const ot_accumulate ways[] = {OT_ACCUMULATE_WHOLE, OT_ACCUMULATE_SHARDED};
  for (int i = 0; i < OT_COUNT(ways); i++) {
    rank_request r = request_of(RANK_LLAMA, OT_F32);
    r.layers = 5;
    r.accumulate = ways[i];
    r.zero = 1;
    r.dp_shard = 2;
    r.dp_replicate = 2;
    r.tp = 2;
    vary_all(&r, other_zero, "zero 1, 2, 3, hybrid, tp");
  }
}

// Stage 0 replicates what the other stages shard.
static bool replicas_sharded(rank_request *r, int index) {
  r->dp_shard = r->dp_replicate;
  r->dp_replicate = 1;
  r->zero = index + 1;
  return r->zero <= 3;
}

static void zero_stages_and_replicas(void **state) {
  (void)state;
  static const ot_accumulate ways[] = {OT_ACCUMULATE_WHOLE, OT_ACCUMULATE_SHARDED};
  for (int i = 0; i < OT_COUNT(ways); i++) {
    rank_request r = request_of(RANK_LLAMA, OT_F32);
    r.layers = 5;
    r.accumulate = ways[i];
    r.dp_replicate = 4;
    vary_all(&r, replicas_sharded, "zero 0, 1, 2, 3");
  }
}

static bool other_gathers(rank_request *r, int index) {
  static const int ahead[] = {0, 1, 2, 5, 0, 2, 40};
  if (index == OT_COUNT(ahead)) return false;
  r->prefetch = ahead[index];
  for (int i = 0; i < r->layers + 2; i++) r->keep[i] = index >= 4;
  return true;
}

// Every second block, the ends, the layers, the first half of the blocks.
static bool other_keeps(rank_request *r, int index) {
  const int blocks = r->layers + 2;
  if (index == 8) return false;
  r->prefetch = index % 2 == 0 ? 1 : 3;
  for (int i = 0; i < blocks; i++) {
    const bool end = i == 0 || i == blocks - 1;
    const bool keep[] = {i % 2 == 0, end, !end, i < blocks / 2};
    r->keep[i] = keep[index / 2];
  }
  return true;
}

static void prefetch_and_reshard(void **state) {
  (void)state;
  rank_request r = request_of(RANK_LLAMA, OT_F32);
  r.zero = 3;
  r.dp_shard = 2;
  r.accumulate = OT_ACCUMULATE_SHARDED;
  r.pp = 2;
  vary_all(&r, other_gathers, "prefetch and reshard, zero 3, pp2");
  vary_all(&r, other_keeps, "reshard by block, zero 3, pp2");
  r.pipeline = OT_PIPELINE_ZB_V;
  r.accumulate = OT_ACCUMULATE_WHOLE;
  r.recompute[1] = r.recompute[4] = OT_RECOMPUTE_FULL;
  r.recompute[6] = OT_RECOMPUTE_SELECTIVE;
  vary_all(&r, other_keeps, "reshard by block, zero 3, zb-v, recompute by layer");
}

static bool other_pipeline(rank_request *r, int index) {
  static const ot_pipeline kinds[] = {OT_PIPELINE_GPIPE, OT_PIPELINE_INTERLEAVED,
                                      OT_PIPELINE_ZB_H1, OT_PIPELINE_ZB_H2,
                                      OT_PIPELINE_ZB_V,  OT_PIPELINE_DUALPIPE_V};
  if (index == OT_COUNT(kinds)) return false;
  r->pipeline = kinds[index];
  r->vpp = r->pipeline == OT_PIPELINE_INTERLEAVED ? 2 : 1;
  return true;
}

static void pipeline_orders(void **state) {
  (void)state;
  rank_request r = request_of(RANK_LLAMA, OT_F32);
  r.pp = 4;
  vary_all(&r, other_pipeline, "pipeline orders, pp4");
  r.pp = 2;
  r.tp = 2;
  r.dp_shard = 2;
  r.zero = 3;
  r.accumulate = OT_ACCUMULATE_SHARDED;
  vary_all(&r, other_pipeline, "pipeline orders, pp2, zero 3, tp2");
}

static bool other_stages(rank_request *r, int index) {
  static const int degrees[] = {2, 4, 8, 2};
  if (index == OT_COUNT(degrees)) return false;
  r->pp = degrees[index];
  if (index == 3) strcpy(r->layout, "E|t*8L");
  return true;
}

static void pipeline_degrees_and_stage_layouts(void **state) {
  (void)state;
  rank_request r = request_of(RANK_LLAMA, OT_F32);
  vary_all(&r, other_stages, "pp 1, 2, 4, 8, and another layout");
}

static bool other_stages_of_two(rank_request *r, int index) {
  r->pp = 2 << index;
  return index < 2;
}

static void pipeline_degrees_with_other_axes(void **state) {
  (void)state;
  rank_request r = request_of(RANK_LLAMA, OT_F32);
  r.tp = 2;
  vary_all(&r, other_stages_of_two, "pp 1, 2, 4 with tp2");
  r.tp = 1;
  r.cp = 2;
  vary_all(&r, other_stages_of_two, "pp 1, 2, 4 with cp2");
  r.cp = 1;
  r.dp_shard = 2;
  r.zero = 2;
  r.accumulate = OT_ACCUMULATE_SHARDED;
  vary_all(&r, other_stages_of_two, "pp 1, 2, 4 with zero 2");
}

static bool other_recompute(rank_request *r, int index) {
  for (int i = 0; i < RANK_MAX_LAYERS; i++) {
    r->recompute[i] = (ot_recompute)(index == 2 ? i % 3 : index + 1);
  }
  return index < 3;
}

static void recompute_policies(void **state) {
  (void)state;
  rank_request r = request_of(RANK_LLAMA, OT_F32);
  r.layers = 5;
  r.tp = 2;
  r.cp = 2;
  vary_all(&r, other_recompute, "recompute, tp2, cp2");
  r.tp = r.cp = 1;
  r.pp = 2;
  r.pipeline = OT_PIPELINE_ZB_H1;
  r.dp_shard = 2;
  r.zero = 3;
  r.accumulate = OT_ACCUMULATE_SHARDED;
  vary_all(&r, other_recompute, "recompute, zb-h1, zero 3");
}

static bool other_lanes(rank_request *r, int index) {
  r->overlap = false;
  r->poison = index == 1 && r->model == RANK_GPT2;  // slow, so for one model
  return index < 2;
}

static void overlap(void **state) {
  (void)state;
  rank_request r = request_of(RANK_LLAMA, OT_F32);
  r.layers = 5;
  r.batch = 4;
  r.pp = 2;
  r.tp = 2;
  r.dp_shard = 2;
  r.zero = 3;
  r.accumulate = OT_ACCUMULATE_SHARDED;
  vary_all(&r, other_lanes, "overlap, pp2, zero 3, tp2");
  r.pp = 1;
  r.cp = 2;
  r.prefetch = 3;
  vary_all(&r, other_lanes, "overlap, zero 3, cp2, tp2");
}

static bool again(rank_request *r, int index) {
  (void)r;
  return index < 2;
}

static void running_again(void **state) {
  (void)state;
  rank_request r = request_of(RANK_LLAMA, OT_F32);
  r.layers = 5;
  r.cp = 2;
  r.dp_replicate = 2;
  r.tp = 2;
  vary_all(&r, again, "again");
}

// Other options while the experts' tokens need several passes.
static bool options_with_overflow_passes(rank_request *r, int index) {
  static const ot_pipeline orders[] = {OT_PIPELINE_1F1B, OT_PIPELINE_GPIPE, OT_PIPELINE_ZB_H2};
  if (index < 3) return other_recompute(r, index);
  if (index < 5) {
    r->overlap = false;
    r->poison = index == 4;
    return true;
  }
  if (index < 8) r->pipeline = orders[index - 5];
  if (index == 8) r->zero = 2;
  return index < 9;
}

static void overflow_passes_of_experts(void **state) {
  (void)state;
  rank_request r = request_of(RANK_MOE, OT_F32);
  r.layers = 5;
  r.batch = 4;
  r.loads = RANK_LOADS_CROWDED;
  r.expert_buffer = 0.3;
  r.pp = r.dp_shard = r.ep = 2;
  r.pipeline = OT_PIPELINE_ZB_H1;
  r.zero = 3;
  r.accumulate = OT_ACCUMULATE_SHARDED;
  print_message("overflow passes: %d runs bitwise equal to another\n",
                vary(&r, options_with_overflow_passes));
}

static bool other_wire(rank_request *r, int index) {
  r->wire = OT_F32;
  return index == 0 && r->gradients == OT_BF16;
}

static void type_on_the_wire_of_what_is_narrow_already(void **state) {
  (void)state;
  rank_request r = request_of(RANK_LLAMA, OT_F32);
  r.layers = 5;
  r.dp_shard = 4;
  for (r.zero = 1; r.zero <= 2; r.zero++) {
    r.accumulate = r.zero == 1 ? OT_ACCUMULATE_WHOLE : OT_ACCUMULATE_SHARDED;
    vary_all(&r, other_wire, "reduce fp32 of gradients in bf16");
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(zero_stages_at_equal_accumulate),
      cmocka_unit_test(zero_stages_and_replicas),
      cmocka_unit_test(prefetch_and_reshard),
      cmocka_unit_test(pipeline_orders),
      cmocka_unit_test(pipeline_degrees_and_stage_layouts),
      cmocka_unit_test(pipeline_degrees_with_other_axes),
      cmocka_unit_test(recompute_policies),
      cmocka_unit_test(overlap),
      cmocka_unit_test(running_again),
      cmocka_unit_test(overflow_passes_of_experts),
      cmocka_unit_test(type_on_the_wire_of_what_is_narrow_already),
  };
  return cmocka_run_group_tests_name("options that change no bit", tests, NULL, NULL);
}
