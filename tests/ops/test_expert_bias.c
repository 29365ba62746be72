// SPDX-License-Identifier: Apache-2.0
// ctest: device
// run: serial. Expert biases against their formula, with dropped slots and without an addend; their
// gradients against differences.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support/op_case.h"

typedef struct shape {
  int64_t R, S, C;
  bool addend;
} shape;

enum { E = 5 };

static const shape shapes[] = {
    {1, 1, 1, false}, {7, 2, 13, true}, {70, 3, 65, true}, {9, 2, 2100, false}, {700, 4, 72, true}};

enum { NUM_SHAPES = sizeof shapes / sizeof shapes[0] };

// Drops every fifth slot.
static void set_experts(const ot_tensor *experts) {
  for (int64_t i = 0; i < ot_type_elements(&experts->type); i++) {
    const int64_t expert = (i * 3 + 1) % E;
    ot_case_set(experts, i, (double)(i % 5 == 4 ? -1 - expert : expert));
  }
}

static ot_case case_of(shape s) {
  ot_case c = {.kind = OT_OP_EXPERT_BIAS,
               .attributes = {.threads = 2, .compute = OT_F64, .num_experts = E},
               .types = {.in = {ot_type_matrix(OT_F64, s.R, s.S), ot_type_matrix(OT_I32, s.R, s.S),
                                ot_type_vector(OT_F64, E * s.C)}},
               .statistic_inputs = 1u << 0};
  if (s.addend) c.types.in[3] = ot_type_matrix(OT_F64, s.R, s.C);
  ot_case_create(&c);
  set_experts(&c.in[1]);
  return c;
}

static void tokens_get_the_biases_of_their_experts(void **state) {
  (void)state;
  for (int i = 0; i < NUM_SHAPES; i++) {
    const shape s = shapes[i];
    ot_case c = case_of(s);
    ot_case_run(&c);
    double *const y = calloc((size_t)(s.R * s.C), sizeof *y);
    for (int64_t k = 0; k < s.R * s.C; k++) {
      y[k] = s.addend ? ot_case_get(&c.in[3], k) : 0;
      for (int64_t j = 0; j < s.S; j++) {
        const int64_t slot = k / s.C * s.S + j;
        const int64_t expert = (int64_t)ot_case_get(&c.in[1], slot);
        if (expert < 0) continue;
        y[k] += ot_case_get(&c.in[0], slot) * ot_case_get(&c.in[2], expert * s.C + k % s.C);
      }
    }
    ot_case_expect(&c.out[0], y, 1e-14, "y");
    ot_case_check_precisions(&c, 2e-6, 8e-3);
    free(y);
    ot_case_destroy(&c);
  }
}

static void gradients_are_those_of_the_output(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    ot_case c = case_of(shapes[i]);
    ot_case_check_gradients(&c, 1e-3, 1e-9);
    ot_case_destroy(&c);
  }
}

// Adds the part of slot `slot` to dbias [E, C].
static void add_slot(const ot_case *c, shape s, int64_t slot, double *dbias) {
  const int64_t expert = (int64_t)ot_case_get(&c->in[2], slot);
  for (int64_t k = 0; k < s.C && expert >= 0; k++) {
    const double dy = ot_case_get(&c->in[0], slot / s.S * s.C + k);
    dbias[expert * s.C + k] += ot_case_get(&c->in[1], slot) * dy;
  }
}

static void check_bias_gradient(shape s) {
  ot_case c = {.kind = OT_OP_EXPERT_BIAS_DW,
               .attributes = {.threads = 2, .compute = OT_F64, .num_experts = E},
               .types = {.in = {ot_type_matrix(OT_F64, s.R, s.C), ot_type_matrix(OT_F64, s.R, s.S),
                                ot_type_matrix(OT_I32, s.R, s.S)},
                         .out = {ot_type_vector(OT_F64, E * s.C)}}};
  ot_case_create(&c);
  set_experts(&c.in[2]);
  ot_case_run(&c);
  double *const dbias = calloc((size_t)(E * s.C), sizeof *dbias);
  for (int64_t slot = 0; slot < s.R * s.S; slot++) add_slot(&c, s, slot, dbias);
  ot_case_expect(&c.out[0], dbias, 1e-13, "dbias");
  free(dbias);
  ot_case_destroy(&c);
}

static void biases_have_the_gradient_of_their_slots(void **state) {
  (void)state;
  for (int i = 0; i < NUM_SHAPES; i++) check_bias_gradient(shapes[i]);
}

static void check_gradient_kernels(shape s) {
  const ot_tensor_type dy = ot_type_matrix(OT_F64, s.R, s.C);
  const ot_tensor_type gates = ot_type_matrix(OT_F64, s.R, s.S);
  const ot_tensor_type experts = ot_type_matrix(OT_I32, s.R, s.S);
  const ot_tensor_type bias = ot_type_vector(OT_F64, E * s.C);
  ot_case cases[] = {
      {.kind = OT_OP_EXPERT_BIAS_DX, .types = {.in = {dy, experts, bias}}},
      {.kind = OT_OP_EXPERT_BIAS_DX,
       .types = {.in = {dy, experts, bias, gates}},
       .statistic_inputs = 1u << 3},
      {.kind = OT_OP_EXPERT_BIAS_DW,
       .types = {.in = {dy, gates, experts}, .out = {bias}},
       .statistic_inputs = 1u << 1},
  };
  for (int i = 0; i < 3; i++) {
    cases[i].attributes = (ot_op_attributes){.threads = 2, .compute = OT_F64, .num_experts = E};
    ot_case_create(&cases[i]);
    set_experts(&cases[i].in[cases[i].kind == OT_OP_EXPERT_BIAS_DX ? 1 : 2]);
    ot_case_check_precisions(&cases[i], 3e-6, 8e-3);
    ot_case_destroy(&cases[i]);
  }
}

static void gradient_kernels_agree_in_every_precision(void **state) {
  (void)state;
  for (int i = 2; i < NUM_SHAPES; i++) check_gradient_kernels(shapes[i]);
}

static void rejects_a_bias_of_another_number_of_experts(void **state) {
  (void)state;
  ot_op_types types = {.in = {ot_type_matrix(OT_F32, 4, 2), ot_type_matrix(OT_I32, 4, 2),
                              ot_type_vector(OT_F32, 12)}};
  const ot_op_attributes attributes = {.threads = 1, .compute = OT_F32, .num_experts = E};
  assert_int_equal(ot_op_infer(OT_OP_EXPERT_BIAS, &attributes, &types), OT_BUG);
  assert_string_equal(ot_fail_message(), "expert_bias: bias has 12 elements for 5 experts");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tokens_get_the_biases_of_their_experts),
      cmocka_unit_test(gradients_are_those_of_the_output),
      cmocka_unit_test(biases_have_the_gradient_of_their_slots),
      cmocka_unit_test(gradient_kernels_agree_in_every_precision),
      cmocka_unit_test(rejects_a_bias_of_another_number_of_experts),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
