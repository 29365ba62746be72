// SPDX-License-Identifier: Apache-2.0
// run: serial. Router losses, and the bias that replaces them, against their formulas; gradients
// against differences.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "ops/route_balance.h"
#include "support/op_case.h"

enum { T = 6, B = 3, R = T * B, E = 5, K = 2 };

static const double inverse_sequences = 0.25;  // of four sequences, three are local

static ot_op_attributes attributes_of(ot_moe_score score) {
  return (ot_op_attributes){.threads = 2,
                            .compute = OT_F64,
                            .num_experts = E,
                            .experts_per_token = K,
                            .num_groups = 1,
                            .groups_per_token = 1,
                            .score = score,
                            .sequence_length = T,
                            .num_sequences = B,
                            .aux_coefficient = 0.3,
                            .z_coefficient = 0.02};
}

// Slot j of row r chooses expert (r * r + 2 j) mod E; every seventh slot is dropped.
static int expert_at(int slot) { return (slot / K * (slot / K) + 2 * (slot % K)) % E; }

static void set_experts(const ot_tensor *experts) {
  for (int i = 0; i < R * K; i++) {
    ot_case_set(experts, i, i % 7 == 0 ? -1 - expert_at(i) : expert_at(i));
  }
}

static double count_of(int sequence, int expert) {
  double count = 0;
  for (int i = sequence * T * K; i < (sequence + 1) * T * K; i++) count += expert_at(i) == expert;
  return count;
}

static ot_case loss_case(ot_op_kind kind, ot_op_attributes attributes) {
  const bool grad = kind == OT_OP_ROUTE_LOSS_GRAD;
  const ot_tensor_type logits = ot_type_matrix(OT_F64, R, E);
  const ot_tensor_type counts = ot_type_matrix(OT_F64, B, E);
  const ot_tensor_type one = ot_type_vector(OT_F64, 1);
  ot_case c = {.kind = kind, .attributes = attributes};
  c.types.in[0] = logits;
  c.types.in[1] = grad ? counts : ot_type_matrix(OT_I32, R, K);
  c.types.in[2] = grad ? one : counts;
  if (!grad) c.types.in[3] = one;
  if (!grad) c.types.out[0] = ot_type_vector(OT_F64, OT_EXPERT_SUMS);
  c.statistic_inputs = grad ? 1u << 0 | 1u << 1 | 1u << 3 : 1u << 0 | 1u << 2;
  c.fixed_inputs = grad ? 1u << 2 : 1u << 3;
  ot_case_create(&c);
  if (!grad) set_experts(&c.in[1]);
  for (int i = 0; i < B * E; i++) ot_case_set(&c.in[grad ? 1 : 2], i, count_of(i / E, i % E));
  ot_case_set(&c.in[grad ? 2 : 3], 0, inverse_sequences);
  return c;
}

// p_i of a row, and its log-sum-exp.
static double probabilities(const ot_case *c, int row, double *p) {
  double sum = 0, exponentials = 0;
  for (int e = 0; e < E; e++) {
    const double u = ot_case_get(&c->in[0], row * E + e);
    p[e] = c->attributes.score == OT_MOE_SIGMOID ? 1 / (1 + exp(-u)) : exp(u);
    sum += p[e];
    exponentials += exp(u);
  }
  for (int e = 0; e < E; e++) p[e] /= sum;
  return log(exponentials);
}

// E sum f P of all sequences and the mean of lse^2, by the definitions.
static void losses_of(const ot_case *c, double out[2]) {
  out[0] = out[1] = 0;
  for (int s = 0; s < B; s++) {
    double P[E] = {0};
    for (int row = s * T; row < (s + 1) * T; row++) {
      double p[E];
      const double lse = probabilities(c, row, p);
      for (int e = 0; e < E; e++) P[e] += p[e] / T;
      out[1] += lse * lse / T * inverse_sequences;
    }
    for (int e = 0; e < E; e++) out[0] += E * count_of(s, e) / (T * K) * P[e] * inverse_sequences;
  }
}

static void losses_are_those_of_the_papers(void **state) {
  (void)state;
  for (int score = 0; score < 2; score++) {
    ot_case c = loss_case(OT_OP_ROUTE_LOSS, attributes_of((ot_moe_score)score));
    ot_case_run(&c);
    double expected[2];
    losses_of(&c, expected);
    assert_true(fabs(ot_case_get(&c.out[0], 0) / expected[0] - 1) < 1e-14);
    assert_true(fabs(ot_case_get(&c.out[0], 1) / expected[1] - 1) < 1e-14);
    ot_case_destroy(&c);
    c = loss_case(OT_OP_ROUTE_LOSS, attributes_of((ot_moe_score)score));
    ot_case_check_precisions(&c, 2e-6, 2e-6);
    ot_case_destroy(&c);
  }
}

static void balanced_routing_has_a_balance_loss_of_one(void **state) {
  (void)state;
  ot_case c = loss_case(OT_OP_ROUTE_LOSS, attributes_of(OT_MOE_SOFTMAX));
  for (int i = 0; i < R * E; i++) ot_case_set(&c.in[0], i, 0.5);
  for (int i = 0; i < B * E; i++) ot_case_set(&c.in[2], i, (double)(T * K) / E);
  ot_case_set(&c.in[3], 0, 1.0 / B);
  ot_case_run(&c);
  assert_true(fabs(ot_case_get(&c.out[0], 0) - 1) < 1e-14);
  ot_case_destroy(&c);
}

static void loads_are_described(void **state) {
  (void)state;
  ot_case c = loss_case(OT_OP_ROUTE_LOSS, attributes_of(OT_MOE_SOFTMAX));
  ot_case_run(&c);
  double loads[E] = {0}, largest = 0, entropy = 0;
  for (int i = 0; i < R * K; i++) loads[expert_at(i)]++;
  for (int e = 0; e < E; e++) {
    largest = fmax(largest, loads[e]);
    entropy -= loads[e] > 0 ? loads[e] / (R * K) * log(loads[e] / (R * K)) : 0;
  }
  const double share = B * inverse_sequences;  // of the step's tokens
  assert_true(fabs(ot_case_get(&c.out[0], 2) - share * largest * E / (R * K)) < 1e-14);
  assert_true(fabs(ot_case_get(&c.out[0], 3) - share * entropy / log(E)) < 1e-14);
  assert_true(fabs(ot_case_get(&c.out[0], 4) - share * 6 / (R * K)) < 1e-14);
  ot_case_destroy(&c);
}

static double weighted_loss(const ot_case *c) {
  double losses[2];
  losses_of(c, losses);
  return c->attributes.aux_coefficient * losses[0] + c->attributes.z_coefficient * losses[1];
}

static void gradients_are_those_of_the_weighted_losses(void **state) {
  (void)state;
  for (int score = 0; score < 2; score++) {
    ot_case c = loss_case(OT_OP_ROUTE_LOSS_GRAD, attributes_of((ot_moe_score)score));
    ot_case_run(&c);
    double differences[R * E];
    for (int i = 0; i < R * E; i++) {
      const double u = ot_case_get(&c.in[0], i);
      ot_case_set(&c.in[0], i, u + 1e-5);
      const double above = weighted_loss(&c);
      ot_case_set(&c.in[0], i, u - 1e-5);
      differences[i] = (above - weighted_loss(&c)) / 2e-5;
      ot_case_set(&c.in[0], i, u);
    }
    ot_case_expect(&c.out[0], differences, 1e-8, "dlogits");
    ot_case_check_precisions(&c, 4e-6, 4e-6);
    ot_case_destroy(&c);
  }
}

// Rows 4 to 9 of sequences of six: the rank starts within the first and ends within the second.
static void counts_go_to_the_sequence_of_a_row(void **state) {
  (void)state;
  ot_op_attributes a = attributes_of(OT_MOE_SOFTMAX);
  a.first_row = 4;
  ot_case c = {
      .kind = OT_OP_ROUTE_COUNT, .attributes = a, .types = {.in = {ot_type_matrix(OT_I32, 6, K)}}};
  ot_case_create(&c);
  for (int i = 0; i < 6 * K; i++) ot_case_set(&c.in[0], i, i < 4 ? 1 : i == 11 ? -1 - 3 : 2);
  ot_case_run(&c);
  for (int i = 0; i < B * E; i++) {
    const double expected = i == 1 ? 4 : i == E + 2 ? 7 : i == E + 3 ? 1 : 0;
    assert_true(ot_case_get(&c.out[0], i) == expected);
  }
  ot_case_destroy(&c);
}

static void loads_add_up_where_a_gradient_would(void **state) {
  (void)state;
  ot_case c = {.kind = OT_OP_ROUTE_LOAD,
               .attributes = attributes_of(OT_MOE_SOFTMAX),
               .types = {.in = {ot_type_matrix(OT_I32, R, K)}, .out = {ot_type_vector(OT_F64, E)}}};
  ot_case_create(&c);
  set_experts(&c.in[0]);
  ot_case_run(&c);
  c.attributes.accumulate = true;
  ot_case_run(&c);
  for (int e = 0; e < E; e++) {
    const double once = count_of(0, e) + count_of(1, e) + count_of(2, e);
    assert_true(ot_case_get(&c.out[0], e) == 2 * once);
  }
  ot_case_check_precisions(&c, 0, 0);
  ot_case_destroy(&c);
}

static ot_case bias_case(double clip) {
  ot_case c = {.kind = OT_OP_ROUTE_BIAS,
               .attributes = attributes_of(OT_MOE_SIGMOID),
               .types = {.in = {ot_type_vector(OT_F64, 3), ot_type_vector(OT_F64, OT_STEP_SCALARS)},
                         .out = {ot_type_vector(OT_BF16, 3), ot_type_vector(OT_F64, 3),
                                 ot_type_vector(OT_F64, 2)}}};
  c.attributes.bias_rate = 0.125;
  ot_case_create(&c);
  // Four sequences of six tokens with two slots, over five experts: 9.6 each.
  static const double loads[] = {9, 10, 9.6};
  for (int i = 0; i < 3; i++) {
    ot_case_set(&c.in[0], i, loads[i]);
    ot_case_set(&c.out[1], i, i);
    ot_case_set(&c.out[0], i, i);
  }
  ot_case_set(&c.in[1], OT_SCALAR_INVERSE_SEQUENCES, inverse_sequences);
  ot_case_set(&c.in[1], OT_SCALAR_CLIP_FACTOR, clip);
  return c;
}

static void a_bias_moves_towards_the_mean_load(void **state) {
  (void)state;
  static const double moved[] = {0.125, 0.875, 2};
  for (int broken = 0; broken < 2; broken++) {
    ot_case c = bias_case(broken ? NAN : 1);
    const ot_kernel_call call = {.attributes = &c.attributes, .in = c.in, .out = c.out};
    ot_kernel_find(OT_BACKEND_CPU, OT_OP_ROUTE_BIAS, OT_F64)(&call);
    for (int i = 0; i < 3; i++) {
      const double expected = broken ? i : moved[i];
      assert_true(ot_case_get(&c.out[1], i) == expected && ot_case_get(&c.out[0], i) == expected);
    }
    ot_case_destroy(&c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(losses_are_those_of_the_papers),
      cmocka_unit_test(balanced_routing_has_a_balance_loss_of_one),
      cmocka_unit_test(loads_are_described),
      cmocka_unit_test(gradients_are_those_of_the_weighted_losses),
      cmocka_unit_test(counts_go_to_the_sequence_of_a_row),
      cmocka_unit_test(loads_add_up_where_a_gradient_would),
      cmocka_unit_test(a_bias_moves_towards_the_mean_load),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
