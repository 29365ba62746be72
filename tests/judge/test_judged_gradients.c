// SPDX-License-Identifier: Apache-2.0
// run: any machine. Explanations of gradients that are made here: sound ones with the rounding of
// fp32 and of bf16, and ones with each kind of fault.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"
#include "judge/attribution.h"
#include "support/arena_fixture.h"

enum { LAYERS = 6, KINDS = 5, TENSORS = LAYERS * KINDS + 2, ELEMENTS = 400, HYPOTHESES = 3 };

static const ot_hypothesis rows[HYPOTHESES] = {
    {.fault = "mean_of_means", .form = OT_FAULT_WHOLE},
    {.fault = "documents_ignored", .form = OT_FAULT_WHOLE},
    {.fault = "auxiliary_loss", .form = OT_FAULT_SHARE},
};

typedef struct made {
  double unit;  // of rounding, relative to a gradient's elements
  double gradient[TENSORS][ELEMENTS], weight[TENSORS][ELEMENTS], own[TENSORS][ELEMENTS],
      own_again[TENSORS][ELEMENTS], recorded[TENSORS][ELEMENTS];
  double hypothesis[HYPOTHESES][TENSORS][ELEMENTS];
} made;

static uint64_t seed = 1;

// Uniform in [-1, 1).
static double draw(void) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (double)(seed >> 11) / 4503599627370496.0 - 1;
}

static const char *name_of(int tensor) {
  static const char *const kinds[KINDS] = {"input_layernorm", "self_attn.q_proj", "mlp.down_proj",
                                           "mlp.experts.3.up_proj", "mlp.gate"};
  if (tensor == 0) return "lm_head.weight";
  if (tensor == TENSORS - 1) return "model.embed_tokens.weight";
  return ot_arena_format(&arena, "model.layers.%d.%s.weight", LAYERS - 1 - (tensor - 1) / KINDS,
                         kinds[(tensor - 1) % KINDS]);
}

// Sound gradients. Rounding is correlated within a tensor, as that of real steps is.
static made *make(double unit) {
  made *const m = ot_arena_take(&arena, sizeof *m);
  m->unit = unit;
  for (int t = 0; t < TENSORS; t++) {
    const double bias[3] = {draw(), draw(), draw()};
    for (int i = 0; i < ELEMENTS; i++) {
      const double g = m->gradient[t][i] = draw();
      m->weight[t][i] = 0.02 * draw();
      m->own[t][i] = g + 6 * unit * (draw() + 0.2 * bias[0] * g);
      m->own_again[t][i] = g + 6 * unit * (draw() + 0.2 * bias[1] * g);
      m->recorded[t][i] = g + 6 * unit * (draw() + 0.2 * bias[2] * g);
      m->hypothesis[0][t][i] = g + 0.1 * draw();
      m->hypothesis[1][t][i] = g + 0.3 * draw();
      m->hypothesis[2][t][i] = g + (strstr(name_of(t), "mlp.gate") ? 0.2 * draw() : 0);
    }
  }
  return m;
}

static void apply(made *m, int hypothesis, double factor) {
  for (int t = 0; t < TENSORS; t++) {
    for (int i = 0; i < ELEMENTS; i++) {
      m->recorded[t][i] += factor * (m->hypothesis[hypothesis][t][i] - m->gradient[t][i]);
    }
  }
}

static void scale(made *m, int tensor, double factor) {
  for (int i = 0; i < ELEMENTS; i++) m->recorded[tensor][i] *= factor;
}

static ot_evidence measure(const made *m, ot_dtype stored) {
  ot_evidence e = ot_evidence_create(&arena, HYPOTHESES, stored);
  for (int t = 0; t < TENSORS; t++) {
    const double *const hypotheses[] = {m->hypothesis[0][t], m->hypothesis[1][t],
                                        m->hypothesis[2][t]};
    const ot_evidence_values all = {m->recorded[t], m->weight[t],    m->gradient[t],
                                    m->own[t],      m->own_again[t], hypotheses};
    ot_evidence_tensor *const tensor = ot_evidence_add(&e, name_of(t));
    ot_evidence_measure(&e, tensor, &all, ELEMENTS);
  }
  return e;
}

static const double fp32 = 0x1p-24, bf16 = 0x1p-9;

static ot_attributions explain(const made *m, ot_dtype stored) {
  const ot_evidence e = measure(m, stored);
  return ot_attribute_errors(&e, rows);
}

static void names_have_kinds_and_layers(void **state) {
  (void)state;
  const made *const m = make(fp32);
  const ot_evidence e = measure(m, OT_F32);
  assert_string_equal(e.tensors[4].kind, "model.layers.*.mlp.experts.*.up_proj.weight");
  assert_int_equal(e.tensors[4].layer, LAYERS - 1);
  assert_int_equal(e.tensors[0].layer, -1);
  assert_int_equal(e.tensors[4].elements, ELEMENTS);
}

static void sound_gradients_need_no_explanation(void **state) {
  (void)state;
  for (int k = 0; k < 200; k++) {
    assert_int_equal(explain(make(fp32), OT_F32).count, 0);
    assert_int_equal(explain(make(bf16), OT_BF16).count, 0);
  }
}

// Rounding that both own runs have is in both records, and not in their difference.
static void rounding_of_both_records_is_not_in_their_difference(void **state) {
  (void)state;
  static const double shared = 0.6;
  made *const m = make(bf16);
  for (int t = 0; t < TENSORS; t++) {
    for (int i = 0; i < ELEMENTS; i++) {
      const double own = shared * (m->hypothesis[0][t][i] - m->gradient[t][i]);
      m->own[t][i] += own;
      m->own_again[t][i] += own;
    }
  }
  ot_evidence e = measure(m, OT_BF16);
  assert_int_equal(ot_attribute_errors(&e, rows).count, 0);
  e.between = true;
  assert_int_equal(ot_attribute_errors(&e, rows).count, 0);
  apply(m, 0, shared);
  e = measure(m, OT_BF16);
  assert_int_equal(ot_attribute_errors(&e, rows).count, 0);
  e.between = true;
  assert_float_equal(ot_attribute_errors(&e, rows).list[0].factor[0], shared, 0.02);
}

static void a_common_factor_is_named(void **state) {
  (void)state;
  static const double factors[] = {0.5, 2, 1.01, 1.0 / 65536, 3, -1};
  for (int k = 0; k < 2 * OT_COUNT(factors); k++) {
    const double factor = factors[k / 2];
    made *const m = make(k % 2 ? bf16 : fp32);
    for (int t = 0; t < TENSORS; t++) scale(m, t, factor);
    const ot_attributions found = explain(m, k % 2 ? OT_BF16 : OT_F32);
    assert_int_equal(found.count, 1);
    assert_int_equal(found.list[0].kind, OT_EXPLAINED_BY_FACTOR);
    assert_int_equal(found.list[0].num_members, TENSORS);
    assert_float_equal(found.list[0].scale, factor, (k % 2 ? 0.003 : 1e-6));
    assert_true(found.list[0].rest <= OT_RATIO_FINE);
  }
}

static void a_factor_of_some_tensors_names_them(void **state) {
  (void)state;
  made *const m = make(bf16);
  for (int t = 0; t < TENSORS; t++) {
    if (strstr(name_of(t), "experts")) scale(m, t, 4);
    if (strstr(name_of(t), "layernorm")) scale(m, t, 0);
  }
  const ot_attributions found = explain(m, OT_BF16);
  assert_int_equal(found.count, 2);
  for (int k = 0; k < 2; k++) {
    assert_int_equal(found.list[k].kind, OT_EXPLAINED_BY_FACTOR);
    assert_int_equal(found.list[k].num_members, LAYERS);
  }
  assert_float_equal(found.list[0].scale, 0, 0.01);
  assert_float_equal(found.list[1].scale, 4, 0.01);
}

static void hypotheses_are_told_apart(void **state) {
  (void)state;
  for (int h = 0; h < HYPOTHESES; h++) {
    made *const m = make(fp32);
    apply(m, h, 1);
    const ot_attributions found = explain(m, OT_F32);
    assert_int_equal(found.count, 1);
    assert_int_equal(found.list[0].kind, OT_EXPLAINED_BY_HYPOTHESES);
    assert_int_equal(found.list[0].count, 1);
    assert_int_equal(found.list[0].vectors[0], OT_EVIDENCE_HYPOTHESES + h);
    assert_float_equal(found.list[0].factor[0], 1, 1e-4);
  }
}

static void two_faults_are_two_hypotheses(void **state) {
  (void)state;
  made *const m = make(fp32);
  apply(m, 0, 1);
  apply(m, 2, -1);
  ot_attributions found = explain(m, OT_F32);
  assert_int_equal(found.count, 1);
  assert_int_equal(found.list[0].count, 2);
  assert_float_equal(found.list[0].factor[1], -1, 1e-4);
  made *const scaled = make(fp32);
  apply(scaled, 1, 1);
  for (int t = 0; t < TENSORS; t++) scale(scaled, t, 2);
  found = explain(scaled, OT_F32);
  assert_int_equal(found.count, 1);
  assert_float_equal(found.list[0].scale, 2, 1e-4);
  assert_float_equal(found.list[0].factor[0], 2, 1e-3);
}

// The gradients of bf16 differ by more than this fault does, which all tensors show together.
static void a_fault_below_rounding_shows_in_all_tensors_together(void **state) {
  (void)state;
  made *const m = make(bf16);
  for (int t = 0; t < TENSORS; t++) {
    for (int i = 0; i < ELEMENTS; i++) {
      m->hypothesis[0][t][i] = m->gradient[t][i] + 6 * bf16 * draw();
    }
  }
  assert_int_equal(explain(m, OT_BF16).count, 0);
  apply(m, 0, 1);
  const ot_attributions found = explain(m, OT_BF16);
  assert_int_equal(found.count, 1);
  assert_true(found.list[0].faint);
  assert_int_equal(found.list[0].vectors[0], OT_EVIDENCE_HYPOTHESES);
  assert_float_equal(found.list[0].factor[0], 1, 0.15);
}

static void weights_left_in_gradients_are_named(void **state) {
  (void)state;
  made *const m = make(fp32);
  for (int i = 0; i < ELEMENTS; i++) m->recorded[7][i] += m->weight[7][i];
  const ot_attributions found = explain(m, OT_F32);
  assert_int_equal(found.count, 1);
  assert_int_equal(found.list[0].kind, OT_EXPLAINED_BY_WEIGHTS);
  assert_int_equal(found.list[0].first, 7);
}

// Rounding above the usual one, as after other choices of experts, has a part along the gradient
// and along the weights, and is neither.
static void errors_near_rounding_are_no_factor(void **state) {
  (void)state;
  for (int k = 0; k < 2; k++) {
    made *const m = make(bf16);
    for (int i = 0; i < ELEMENTS; i++) {
      const double along = k == 0 ? 0.06 * m->gradient[7][i] : 3 * m->weight[7][i];
      m->recorded[7][i] += along + 20 * bf16 * draw();
    }
    const ot_attributions found = explain(m, OT_BF16);
    assert_int_equal(found.count, 1);
    assert_int_equal(found.list[0].kind, OT_UNEXPLAINED);
    assert_true(found.list[0].before > OT_RATIO_FINE && found.list[0].before < OT_RATIO_FINDING);
  }
}

static void what_no_hypothesis_explains_stays_unexplained(void **state) {
  (void)state;
  made *const m = make(fp32);
  for (int t = 12; t < TENSORS; t++) {
    for (int i = 0; i < ELEMENTS; i++) m->recorded[t][i] += 0.1 * draw();
  }
  const ot_attributions found = explain(m, OT_F32);
  assert_int_equal(found.count, 1);
  assert_int_equal(found.list[0].kind, OT_UNEXPLAINED);
  assert_int_equal(found.list[0].num_members, TENSORS - 12);
  assert_int_equal(found.list[0].first, 12);
}

static void numbers_that_are_not_finite_are_counted(void **state) {
  (void)state;
  made *const m = make(fp32);
  m->recorded[3][5] = NAN;
  m->recorded[3][9] = INFINITY;
  const ot_evidence e = measure(m, OT_F32);
  assert_int_equal(e.tensors[3].not_finite, 2);
  assert_int_equal(ot_attribute_errors(&e, rows).count, 0);
}

static void sensitivity_falls_with_rounding(void **state) {
  (void)state;
  const made *const fine = make(fp32), *const coarse = make(bf16);
  const ot_evidence e = measure(fine, OT_F32), c = measure(coarse, OT_BF16);
  const double small = ot_attribution_sensitivity(&e, OT_EVIDENCE_HYPOTHESES);
  const double large = ot_attribution_sensitivity(&c, OT_EVIDENCE_HYPOTHESES);
  assert_true(small > 0 && small < 1e-3 && large > 100 * small);
}

static void faults_above_the_sensitivity_show(void **state) {
  (void)state;
  for (int k = 0; k < 2 * HYPOTHESES; k++) {
    const double unit = k % 2 == 0 ? fp32 : bf16;
    const ot_dtype stored = k % 2 == 0 ? OT_F32 : OT_BF16;
    made *const below = make(unit), *const above = make(unit);
    const ot_evidence e = measure(above, stored);
    const double least = ot_attribution_sensitivity(&e, OT_EVIDENCE_HYPOTHESES + k / 2);
    apply(below, k / 2, 0.1 * least);
    apply(above, k / 2, 1.3 * least);
    assert_int_equal(explain(below, stored).count, 0);
    assert_int_equal(explain(above, stored).count, 1);
  }
}

// A fault is absent only where it would stand out, and nothing else is wrong.
static void absence_needs_evidence(void **state) {
  (void)state;
  const int vector = OT_EVIDENCE_HYPOTHESES;
  made *const m = make(bf16), *const faulty = make(bf16), *const other = make(bf16);
  const ot_evidence sound = measure(m, OT_BF16);
  assert_true(ot_attribution_is_absent(&sound, vector));
  memcpy(m->hypothesis[0], m->gradient, sizeof m->gradient);
  m->hypothesis[0][3][0] += bf16 / 100;
  const ot_evidence weak = measure(m, OT_BF16);
  assert_false(ot_attribution_is_absent(&weak, vector));
  apply(faulty, 0, 1);
  const ot_evidence present = measure(faulty, OT_BF16);
  assert_false(ot_attribution_is_absent(&present, vector));
  scale(other, 2, 1.5);
  const ot_evidence wrong = measure(other, OT_BF16);
  assert_false(ot_attribution_is_absent(&wrong, vector));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, finish)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(names_have_kinds_and_layers),
      TEST(sound_gradients_need_no_explanation),
      TEST(rounding_of_both_records_is_not_in_their_difference),
      TEST(a_common_factor_is_named),
      TEST(a_factor_of_some_tensors_names_them),
      TEST(hypotheses_are_told_apart),
      TEST(two_faults_are_two_hypotheses),
      TEST(a_fault_below_rounding_shows_in_all_tensors_together),
      TEST(weights_left_in_gradients_are_named),
      TEST(errors_near_rounding_are_no_factor),
      TEST(what_no_hypothesis_explains_stays_unexplained),
      TEST(numbers_that_are_not_finite_are_counted),
      TEST(sensitivity_falls_with_rounding),
      TEST(faults_above_the_sensitivity_show),
      TEST(absence_needs_evidence),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
