// SPDX-License-Identifier: Apache-2.0
// ctest: device
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
#include "support/op_device.h"

enum { T = 6, B = 3, R = T * B, E = 5, K = 2, MAX_E = 70, MANY_T = 352 };

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

// As many tokens and experts as need several blocks of threads.
static ot_op_attributes many_of(ot_moe_score score) {
  ot_op_attributes a = attributes_of(score);
  a.num_experts = MAX_E;
  a.experts_per_token = 3;
  a.sequence_length = MANY_T;
  return a;
}

static int rows_of(const ot_op_attributes *a) {
  return (int)(a->sequence_length * a->num_sequences);
}

// Slot j of row r chooses expert (r * r + 2 j) mod E; every seventh slot is dropped.
static int expert_at(const ot_op_attributes *a, int slot) {
  const int k = (int)a->experts_per_token, row = slot / k;
  return (row * row + 2 * (slot % k)) % (int)a->num_experts;
}

static void set_experts(const ot_op_attributes *a, const ot_tensor *experts) {
  for (int i = 0; i < (int)ot_type_elements(&experts->type); i++) {
    ot_case_set(experts, i, i % 7 == 0 ? -1 - expert_at(a, i) : expert_at(a, i));
  }
}

static double count_of(const ot_op_attributes *a, int sequence, int expert) {
  const int slots = (int)(a->sequence_length * a->experts_per_token);
  double count = 0;
  for (int i = sequence * slots; i < (sequence + 1) * slots; i++) {
    count += expert_at(a, i) == expert;
  }
  return count;
}

static ot_case loss_case(ot_op_kind kind, ot_op_attributes a) {
  const bool grad = kind == OT_OP_ROUTE_LOSS_GRAD;
  const ot_tensor_type logits = ot_type_matrix(OT_F64, rows_of(&a), a.num_experts);
  const ot_tensor_type counts = ot_type_matrix(OT_F64, a.num_sequences, a.num_experts);
  const ot_tensor_type one = ot_type_vector(OT_F64, 1);
  ot_case c = {.kind = kind, .attributes = a};
  c.types.in[0] = logits;
  c.types.in[1] = grad ? counts : ot_type_matrix(OT_I32, rows_of(&a), a.experts_per_token);
  c.types.in[2] = grad ? one : counts;
  if (!grad) c.types.in[3] = one;
  if (!grad) c.types.out[0] = ot_type_vector(OT_F64, OT_EXPERT_SUMS);
  c.statistic_inputs = grad ? 1u << 0 | 1u << 1 | 1u << 3 : 1u << 0 | 1u << 2;
  c.fixed_inputs = grad ? 1u << 2 : 1u << 3;
  ot_case_create(&c);
  if (!grad) set_experts(&a, &c.in[1]);
  for (int i = 0; i < (int)ot_type_elements(&counts); i++) {
    const int experts = (int)a.num_experts;
    ot_case_set(&c.in[grad ? 1 : 2], i, count_of(&a, i / experts, i % experts));
  }
  ot_case_set(&c.in[grad ? 2 : 3], 0, inverse_sequences);
  return c;
}

// p_i of a row, and its log-sum-exp.
static double probabilities(const ot_case *c, int row, double *p) {
  const int experts = (int)c->attributes.num_experts;
  double sum = 0, exponentials = 0;
  for (int e = 0; e < experts; e++) {
    const double u = ot_case_get(&c->in[0], row * experts + e);
    p[e] = c->attributes.score == OT_MOE_SIGMOID ? 1 / (1 + exp(-u)) : exp(u);
    sum += p[e];
    exponentials += exp(u);
  }
  for (int e = 0; e < experts; e++) p[e] /= sum;
  return log(exponentials);
}

// E sum f P of a sequence and the mean of lse^2, by the definitions.
static void losses_of_sequence(const ot_case *c, int s, double out[2]) {
  const ot_op_attributes *const a = &c->attributes;
  const int tokens = (int)a->sequence_length, experts = (int)a->num_experts;
  double P[MAX_E] = {0};
  for (int row = s * tokens; row < (s + 1) * tokens; row++) {
    double p[MAX_E];
    const double lse = probabilities(c, row, p);
    for (int e = 0; e < experts; e++) P[e] += p[e] / tokens;
    out[1] += lse * lse / tokens * inverse_sequences;
  }
  for (int e = 0; e < experts; e++) {
    const double f = count_of(a, s, e) / (double)(tokens * a->experts_per_token);
    out[0] += experts * f * P[e] * inverse_sequences;
  }
}

static void losses_of(const ot_case *c, double out[2]) {
  out[0] = out[1] = 0;
  for (int s = 0; s < c->attributes.num_sequences; s++) losses_of_sequence(c, s, out);
}

static void losses_are_those_of_the_papers(void **state) {
  (void)state;
  for (int i = 0; i < 4; i++) {
    const ot_moe_score score = (ot_moe_score)(i % 2);
    const ot_op_attributes a = i < 2 ? attributes_of(score) : many_of(score);
    ot_case c = loss_case(OT_OP_ROUTE_LOSS, a);
    ot_case_run(&c);
    double expected[2];
    losses_of(&c, expected);
    assert_true(fabs(ot_case_get(&c.out[0], 0) / expected[0] - 1) < 1e-14);
    assert_true(fabs(ot_case_get(&c.out[0], 1) / expected[1] - 1) < 1e-14);
    ot_case_destroy(&c);
    c = loss_case(OT_OP_ROUTE_LOSS, a);
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
  for (int i = 0; i < 2; i++) {
    const ot_op_attributes a = i == 0 ? attributes_of(OT_MOE_SOFTMAX) : many_of(OT_MOE_SOFTMAX);
    ot_case c = loss_case(OT_OP_ROUTE_LOSS, a);
    ot_case_run(&c);
    const int experts = (int)a.num_experts, slots = rows_of(&a) * (int)a.experts_per_token;
    double largest = 0, entropy = 0;
    for (int e = 0; e < experts; e++) {
      const double load = count_of(&a, 0, e) + count_of(&a, 1, e) + count_of(&a, 2, e);
      largest = fmax(largest, load);
      entropy -= load > 0 ? load / slots * log(load / slots) : 0;
    }
    const double share = B * inverse_sequences;  // of the step's tokens
    const double dropped = (slots + 6) / 7;
    assert_true(fabs(ot_case_get(&c.out[0], 2) - share * largest * experts / slots) < 1e-14);
    assert_true(fabs(ot_case_get(&c.out[0], 3) - share * entropy / log(experts)) < 1e-14);
    assert_true(fabs(ot_case_get(&c.out[0], 4) - share * dropped / slots) < 1e-14);
    ot_case_destroy(&c);
  }
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

// Differences would take long; rows are alike.
static void gradients_of_many_rows_agree_in_every_precision(void **state) {
  (void)state;
  for (int score = 0; score < 2; score++) {
    ot_case c = loss_case(OT_OP_ROUTE_LOSS_GRAD, many_of((ot_moe_score)score));
    ot_case_check_precisions(&c, 4e-6, 4e-6);
    ot_case_destroy(&c);
  }
}

// Rows 5 to 12 of sequences of six have the gradients that they have among all rows.
static void rows_use_the_counts_of_their_sequence(void **state) {
  (void)state;
  enum { FIRST = 5, ROWS = 8 };
  ot_case all = loss_case(OT_OP_ROUTE_LOSS_GRAD, attributes_of(OT_MOE_SOFTMAX));
  ot_case some = {.kind = all.kind, .attributes = all.attributes, .types = all.types};
  some.attributes.first_row = FIRST;
  some.types.in[0] = ot_type_matrix(OT_F64, ROWS, E);
  ot_case_create(&some);
  for (int i = 0; i < ROWS * E; i++) {
    ot_case_set(&some.in[0], i, ot_case_get(&all.in[0], FIRST * E + i));
  }
  for (int i = 0; i < B * E; i++) ot_case_set(&some.in[1], i, ot_case_get(&all.in[1], i));
  ot_case_set(&some.in[2], 0, inverse_sequences);
  ot_case_run(&all);
  ot_case_run(&some);
  for (int i = 0; i < ROWS * E; i++) {
    assert_true(ot_case_get(&some.out[0], i) == ot_case_get(&all.out[0], FIRST * E + i));
  }
  ot_case_destroy(&some);
  ot_case_destroy(&all);
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

static void many_slots_are_counted(void **state) {
  (void)state;
  ot_op_attributes a = many_of(OT_MOE_SOFTMAX);
  a.num_sequences = B + 1;
  a.first_row = MANY_T;  // the first sequence has no rows here
  ot_case c = {.kind = OT_OP_ROUTE_COUNT,
               .attributes = a,
               .types = {.in = {ot_type_matrix(OT_I32, MANY_T * B, a.experts_per_token)}}};
  ot_case_create(&c);
  set_experts(&a, &c.in[0]);
  ot_case_run(&c);
  for (int i = 0; i < (B + 1) * MAX_E; i++) {
    const double expected = i < MAX_E ? 0 : count_of(&a, i / MAX_E - 1, i % MAX_E);
    assert_true(ot_case_get(&c.out[0], i) == expected);
  }
  ot_case_destroy(&c);
}

static void loads_add_up_where_a_gradient_would(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    const ot_op_attributes a = i == 0 ? attributes_of(OT_MOE_SOFTMAX) : many_of(OT_MOE_SOFTMAX);
    ot_case c = {.kind = OT_OP_ROUTE_LOAD,
                 .attributes = a,
                 .types = {.in = {ot_type_matrix(OT_I32, rows_of(&a), a.experts_per_token)},
                           .out = {ot_type_vector(OT_F64, a.num_experts)}}};
    ot_case_create(&c);
    set_experts(&a, &c.in[0]);
    ot_case_run(&c);
    c.attributes.accumulate = true;
    ot_case_run(&c);
    for (int e = 0; e < (int)a.num_experts; e++) {
      const double once = count_of(&a, 0, e) + count_of(&a, 1, e) + count_of(&a, 2, e);
      assert_true(ot_case_get(&c.out[0], e) == 2 * once);
    }
    ot_case_check_precisions(&c, 0, 0);
    ot_case_destroy(&c);
  }
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
    op_device_run(OT_OP_ROUTE_BIAS, &call, 0);
    for (int i = 0; i < 3; i++) {
      const double expected = broken ? i : moved[i];
      assert_true(ot_case_get(&c.out[1], i) == expected && ot_case_get(&c.out[0], i) == expected);
    }
    assert_true(ot_case_get(&c.out[2], 0) == (broken ? 0 : 2 * 0.125 * 0.125));
    assert_true(ot_case_get(&c.out[2], 1) == (broken ? 0 : 0.125 * 0.125 + 0.875 * 0.875 + 2 * 2));
    ot_case_destroy(&c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(losses_are_those_of_the_papers),
      cmocka_unit_test(balanced_routing_has_a_balance_loss_of_one),
      cmocka_unit_test(loads_are_described),
      cmocka_unit_test(gradients_are_those_of_the_weighted_losses),
      cmocka_unit_test(gradients_of_many_rows_agree_in_every_precision),
      cmocka_unit_test(rows_use_the_counts_of_their_sequence),
      cmocka_unit_test(counts_go_to_the_sequence_of_a_row),
      cmocka_unit_test(many_slots_are_counted),
      cmocka_unit_test(loads_add_up_where_a_gradient_would),
      cmocka_unit_test(a_bias_moves_towards_the_mean_load),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
