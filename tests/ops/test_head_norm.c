// SPDX-License-Identifier: Apache-2.0
// ctest: device
// run: serial. Normalised queries and keys against PyTorch and the formula, per head and over whole
// rows; gradients against differences; for storage types, threads and shapes.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "fixtures/torch_values.h"
#include "ops/head_norm.h"
#include "support/op_case.h"

typedef struct shape {
  int64_t rows, heads, kv_heads, head_dim;
  bool whole;
} shape;

static const shape shapes[] = {
    {1, 1, 1, 1, false},  {5, 3, 1, 7, false},   {5, 3, 1, 7, true},   {70, 4, 2, 24, true},
    {3, 9, 3, 130, true}, {37, 6, 2, 64, false}, {41, 5, 2, 64, true},
};

enum { NUM_SHAPES = sizeof shapes / sizeof shapes[0] };

static ot_case head_norm_case(shape s) {
  ot_case c = {.kind = OT_OP_HEAD_NORM,
               .attributes = {.threads = 2,
                              .compute = OT_F64,
                              .num_heads = s.heads,
                              .num_kv_heads = s.kv_heads,
                              .head_dim = s.head_dim,
                              .norm_width = s.whole ? 0 : s.head_dim,
                              .norm_offset = 0.5,
                              .epsilon = 1e-3}};
  const ot_head_groups groups = ot_head_groups_of(&c.attributes);
  c.types.in[0] = ot_type_matrix(OT_F64, s.rows, (s.heads + 2 * s.kv_heads) * s.head_dim);
  c.types.in[1] = ot_type_vector(OT_F64, groups.q_width);
  c.types.in[2] = ot_type_vector(OT_F64, groups.k_width);
  ot_case_create(&c);
  return c;
}

static ot_case grad_case(const ot_case *forward) {
  ot_case c = {.kind = OT_OP_HEAD_NORM_GRAD,
               .attributes = forward->attributes,
               .types = {.in = {forward->types.in[0], forward->types.in[0], forward->types.in[1],
                                forward->types.in[2], forward->types.out[1]},
                         .out = {{0}, forward->types.in[1], forward->types.in[2]}},
               .statistic_inputs = 1u << 4};
  ot_case_create(&c);
  for (int64_t i = 0; i < ot_type_elements(&c.types.in[4]); i++) {
    ot_case_set(&c.in[4], i, ot_case_get(&forward->out[1], i));
  }
  return c;
}

// The norm of `width` elements from `first`, with weights `w`.
static void expect_group(const ot_case *c, int64_t first, const ot_tensor *w, double *y) {
  const int64_t width = w->type.dim[0];
  double square = 0;
  for (int64_t i = 0; i < width; i++) square += pow(ot_case_get(&c->in[0], first + i), 2);
  const double rstd = 1 / sqrt(square / (double)width + c->attributes.epsilon);
  for (int64_t i = 0; i < width; i++) {
    y[first + i] = ot_case_get(&c->in[0], first + i) * rstd * (ot_case_get(w, i) + 0.5);
  }
}

static void follows_its_formula_per_head_and_over_rows(void **state) {
  (void)state;
  for (int i = 0; i < NUM_SHAPES; i++) {
    const shape s = shapes[i];
    ot_case c = head_norm_case(s);
    const int64_t width = c.types.in[0].dim[1];
    double *const y = calloc((size_t)(s.rows * width), sizeof *y);
    for (int64_t k = 0; k < s.rows * width; k++) y[k] = ot_case_get(&c.in[0], k);
    for (int64_t row = 0; row < s.rows; row++) {
      const int64_t q_end = s.heads * s.head_dim;
      const int64_t k_end = q_end + s.kv_heads * s.head_dim;
      for (int64_t at = 0; at < k_end;) {
        const ot_tensor *const w = at < q_end ? &c.in[1] : &c.in[2];
        expect_group(&c, row * width + at, w, y);
        at += w->type.dim[0];
      }
    }
    ot_case_run(&c);
    ot_case_expect(&c.out[0], y, 1e-14, "y");
    free(y);
    ot_case_destroy(&c);
  }
}

static void expect_torch(bool whole, const double *const expected[4]) {
  ot_case c = head_norm_case((shape){3, 2, 1, 4, whole});
  c.attributes.norm_offset = 0;
  c.attributes.epsilon = 1e-6;
  ot_case_pattern(&c.in[0], 5);
  ot_case_pattern(&c.in[1], 7);
  ot_case_pattern(&c.in[2], 8);
  ot_case_run(&c);
  ot_case_expect(&c.out[0], expected[0], 1e-14, "y");
  ot_case g = grad_case(&c);
  ot_case_pattern(&g.in[0], 6);
  ot_case_pattern(&g.in[1], 5);
  ot_case_pattern(&g.in[2], 7);
  ot_case_pattern(&g.in[3], 8);
  ot_case_run(&g);
  ot_case_expect(&g.out[0], expected[1], 1e-13, "dx");
  ot_case_expect(&g.out[1], expected[2], 1e-13, "dwq");
  ot_case_expect(&g.out[2], expected[3], 1e-13, "dwk");
  ot_case_destroy(&g);
  ot_case_destroy(&c);
}

static void agrees_with_torch(void **state) {
  (void)state;
  const double *const head[] = {torch_head_norm_y, torch_head_norm_dx, torch_head_norm_dwq,
                                torch_head_norm_dwk};
  const double *const whole[] = {torch_whole_norm_y, torch_whole_norm_dx, torch_whole_norm_dwq,
                                 torch_whole_norm_dwk};
  expect_torch(false, head);
  expect_torch(true, whole);
}

// ---- sharded rows: one head of q on each of two ranks, the k head on both ----

enum { RANKS = 2, CUT_ROWS = 3, WHOLE = 16, PART = 12 };

// Column of the whole row that equals column `c` of a rank.
static int64_t whole_column(int rank, int64_t c) { return c < 4 ? 4 * rank + c : c + 4; }

// The shard of `whole` [CUT_ROWS, WHOLE] on `rank`; replicated values are divided by `copies`.
static void cut_rows(const ot_tensor *whole, int rank, double copies, const ot_tensor *part) {
  for (int64_t i = 0; i < CUT_ROWS * PART; i++) {
    const int64_t from = i / PART * WHOLE + whole_column(rank, i % PART);
    ot_case_set(part, i, ot_case_get(whole, from) / (i % PART < 4 ? 1 : copies));
  }
}

// The case of one rank with the weights of its heads, from streams 7 and 8.
static ot_case part_case(const ot_case *whole, ot_op_kind kind, int rank,
                         const ot_op_types *types) {
  ot_case c = {.kind = kind, .attributes = whole->attributes, .types = *types};
  c.attributes.num_heads = 1;
  c.attributes.group_size = kind == OT_OP_HEAD_MEANS ? RANKS : 0;
  ot_case_create(&c);
  const int first = kind == OT_OP_HEAD_NORM ? 1 : 2;
  for (int64_t i = 0; i < 4; i++) {
    if (c.types.in[first].rank > 0) {
      ot_case_set(&c.in[first], i, ot_case_get(&whole->in[1], 4 * rank + i));
      ot_case_set(&c.in[first + 1], i, ot_case_get(&whole->in[2], i));
    }
  }
  return c;
}

// Adds a rank's part of the means to `sums` [CUT_ROWS * 2]; of the gradient if `dy` is given.
static void add_means(const ot_case *whole, const ot_tensor *dy, const ot_tensor *rstd, int rank,
                      double *sums) {
  const ot_tensor_type rows = ot_type_matrix(OT_F64, CUT_ROWS, PART);
  const ot_tensor_type weights = ot_type_vector(OT_F64, 4),
                       two = ot_type_matrix(OT_F64, CUT_ROWS, 2);
  ot_op_types types = {.in = {rows}};
  if (dy) types = (ot_op_types){.in = {rows, rows, weights, weights, two}};
  ot_case c = part_case(whole, OT_OP_HEAD_MEANS, rank, &types);
  cut_rows(&whole->in[0], rank, 1, &c.in[0]);
  if (dy) cut_rows(dy, rank, RANKS, &c.in[1]);
  for (int64_t i = 0; dy && i < 2 * CUT_ROWS; i++) {
    ot_case_set(&c.in[4], i, ot_case_get(rstd, i));
  }
  ot_case_run(&c);
  for (int64_t i = 0; i < 2 * CUT_ROWS; i++) sums[i] += ot_case_get(&c.out[0], i);
  ot_case_destroy(&c);
}

static void set_means(const ot_tensor *means, const double *sums) {
  for (int64_t i = 0; i < 2 * CUT_ROWS; i++) ot_case_set(means, i, sums[i]);
}

static void sharded_rows_have_the_norms_of_whole_rows(void **state) {
  (void)state;
  ot_case whole = head_norm_case((shape){CUT_ROWS, 2, 1, 4, true});
  whole.attributes.norm_offset = 0;
  whole.attributes.epsilon = 1e-6;
  const int streams[] = {5, 7, 8};
  for (int i = 0; i < 3; i++) ot_case_pattern(&whole.in[i], streams[i]);
  ot_case_run(&whole);
  double means[2 * CUT_ROWS] = {0};
  for (int r = 0; r < RANKS; r++) add_means(&whole, NULL, NULL, r, means);
  for (int r = 0; r < RANKS; r++) {
    const ot_tensor_type rows = ot_type_matrix(OT_F64, CUT_ROWS, PART);
    const ot_tensor_type weights = ot_type_vector(OT_F64, 4);
    const ot_op_types types = {.in = {rows, weights, weights, ot_type_matrix(OT_F64, CUT_ROWS, 2)}};
    ot_case c = part_case(&whole, OT_OP_HEAD_NORM, r, &types);
    double y[CUT_ROWS * PART];
    for (int64_t i = 0; i < CUT_ROWS * PART; i++) {
      y[i] = torch_whole_norm_y[i / PART * WHOLE + whole_column(r, i % PART)];
    }
    cut_rows(&whole.in[0], r, 1, &c.in[0]);
    set_means(&c.in[3], means);
    ot_case_run(&c);
    ot_case_expect(&c.out[0], y, 1e-14, "y");
    c.statistic_inputs = 1u << 3;
    ot_case_check_precisions(&c, 1e-6, 1e-2);
    ot_case_destroy(&c);
  }
  ot_case_destroy(&whole);
}

static void sharded_rows_have_the_gradients_of_whole_rows(void **state) {
  (void)state;
  ot_case whole = head_norm_case((shape){CUT_ROWS, 2, 1, 4, true});
  whole.attributes.norm_offset = 0;
  whole.attributes.epsilon = 1e-6;
  const int streams[] = {5, 7, 8};
  for (int i = 0; i < 3; i++) ot_case_pattern(&whole.in[i], streams[i]);
  ot_case_run(&whole);
  ot_case dy = grad_case(&whole);
  ot_case_pattern(&dy.in[0], 6);
  double means[2 * CUT_ROWS] = {0}, dx[CUT_ROWS * WHOLE] = {0}, dwq[8], dwk[4] = {0};
  for (int r = 0; r < RANKS; r++) add_means(&whole, &dy.in[0], &whole.out[1], r, means);
  for (int r = 0; r < RANKS; r++) {
    const ot_tensor_type rows = ot_type_matrix(OT_F64, CUT_ROWS, PART);
    const ot_tensor_type weights = ot_type_vector(OT_F64, 4);
    const ot_tensor_type two = ot_type_matrix(OT_F64, CUT_ROWS, 2);
    const ot_op_types types = {.in = {rows, rows, weights, weights, two, two},
                               .out = {{0}, weights, weights}};
    ot_case c = part_case(&whole, OT_OP_HEAD_NORM_GRAD, r, &types);
    cut_rows(&dy.in[0], r, RANKS, &c.in[0]);
    cut_rows(&whole.in[0], r, 1, &c.in[1]);
    for (int64_t i = 0; i < 2 * CUT_ROWS; i++) {
      ot_case_set(&c.in[4], i, ot_case_get(&whole.out[1], i));
    }
    set_means(&c.in[5], means);
    ot_case_run(&c);
    for (int64_t i = 0; i < CUT_ROWS * PART; i++) {
      dx[i / PART * WHOLE + whole_column(r, i % PART)] += ot_case_get(&c.out[0], i);
    }
    for (int64_t i = 0; i < 4; i++) {
      dwq[4 * r + i] = ot_case_get(&c.out[1], i);
      dwk[i] += ot_case_get(&c.out[2], i);
    }
    ot_case_destroy(&c);
  }
  for (int i = 0; i < CUT_ROWS * WHOLE; i++)
    assert_true(fabs(dx[i] - torch_whole_norm_dx[i]) < 1e-13);
  for (int i = 0; i < 8; i++) assert_true(fabs(dwq[i] - torch_whole_norm_dwq[i]) < 1e-13);
  for (int i = 0; i < 4; i++) assert_true(fabs(dwk[i] - torch_whole_norm_dwk[i]) < 1e-13);
  ot_case_destroy(&dy);
  ot_case_destroy(&whole);
}

static void gradients_are_those_of_the_forward_kernel(void **state) {
  (void)state;
  for (int whole = 0; whole < 2; whole++) {
    ot_case c = head_norm_case((shape){5, 3, 1, 4, whole == 1});
    ot_case_check_gradients(&c, 1e-5, 1e-8);
    ot_case_destroy(&c);
  }
}

static void precisions_and_threads_agree(void **state) {
  (void)state;
  for (int i = 1; i < NUM_SHAPES; i++) {
    ot_case c = head_norm_case(shapes[i]);
    ot_case_check_precisions(&c, 1e-6, 4e-3);
    ot_case_run(&c);
    ot_case g = grad_case(&c);
    ot_case_check_precisions(&g, 2e-6, 4e-3);
    ot_case_destroy(&g);
    ot_case_destroy(&c);
  }
}

// ---- rotated: random numbers instead of cosines and sines, for which the rotation is any matrix
// ----

enum { POSITIONS = 5 };

static const struct {
  shape s;
  int64_t rotary_dim;
} rotations[] = {{{1, 1, 1, 2, false}, 2},      {{5, 3, 1, 7, false}, 4},
                 {{37, 6, 2, 64, false}, 64},   {{9, 4, 2, 32, false}, 16},
                 {{3, 9, 3, 130, false}, 128},  {{70, 2, 1, 16, false}, 16},
                 {{4, 1, 1, 1024, false}, 1024}};

enum { NUM_ROTATIONS = sizeof rotations / sizeof rotations[0] };

static ot_case rotated_case(int index) {
  ot_case c = head_norm_case(rotations[index].s);
  const ot_op_types types = c.types;
  ot_case_destroy(&c);
  c.types = (ot_op_types){.in = {types.in[0], types.in[1], types.in[2]}};
  c.attributes.rotary_dim = rotations[index].rotary_dim;
  c.types.in[4] = ot_type_vector(OT_I32, types.in[0].dim[0]);
  c.types.in[5] = (ot_tensor_type){
      .dtype = OT_F64, .rank = 3, .dim = {POSITIONS, rotations[index].rotary_dim / 2, 2}};
  c.statistic_inputs = 1u << 5;
  ot_case_create(&c);
  for (int64_t i = 0; i < types.in[0].dim[0]; i++) ot_case_set(&c.in[4], i, (double)(3 * i % 5));
  return c;
}

// Rotates the head of y that starts at `first` by the table row of its position.
static void rotate_head(const ot_case *c, int64_t row, int64_t first, double *y) {
  const int64_t half = c->attributes.rotary_dim / 2;
  const int64_t angles = (int64_t)ot_case_get(&c->in[4], row) * half * 2;
  for (int64_t i = 0; i < half; i++) {
    const double cosine = ot_case_get(&c->in[5], angles + 2 * i);
    const double sine = ot_case_get(&c->in[5], angles + 2 * i + 1);
    const double a = y[first + i], b = y[first + half + i];
    y[first + i] = a * cosine - b * sine;
    y[first + half + i] = b * cosine + a * sine;
  }
}

static void rotates_what_it_normalises(void **state) {
  (void)state;
  for (int r = 0; r < NUM_ROTATIONS; r++) {
    const shape s = rotations[r].s;
    ot_case c = rotated_case(r);
    const int64_t width = c.types.in[0].dim[1];
    double *const y = calloc((size_t)(s.rows * width), sizeof *y);
    for (int64_t k = 0; k < s.rows * width; k++) y[k] = ot_case_get(&c.in[0], k);
    for (int64_t k = 0; k < s.rows * (s.heads + s.kv_heads); k++) {
      const int64_t row = k / (s.heads + s.kv_heads), head = k % (s.heads + s.kv_heads);
      const int64_t first = row * width + head * s.head_dim;
      expect_group(&c, first, head < s.heads ? &c.in[1] : &c.in[2], y);
      rotate_head(&c, row, first, y);
    }
    ot_case_run(&c);
    ot_case_expect(&c.out[0], y, 1e-14, "y");
    // A sum of 1,024 squares, in whatever order the compiler adds them, is off by up to 6e-5.
    ot_case_check_precisions(&c, s.head_dim > 512 ? 2e-6 : 1e-6, 4e-3);
    free(y);
    ot_case_destroy(&c);
  }
}

static void gradients_of_the_rotated_form_are_those_of_its_kernel(void **state) {
  (void)state;
  for (int r = 0; r < 2; r++) {
    ot_case c = rotated_case(r);
    ot_case_check_gradients(&c, 1e-5, 1e-8);
    ot_case_destroy(&c);
  }
}

static void copy(const ot_tensor *from, const ot_tensor *to) {
  for (int64_t i = 0; i < ot_type_elements(&from->type); i++) {
    ot_case_set(to, i, ot_case_get(from, i));
  }
}

// dy of the rotated form `g`, rotated back by the op that does only that.
static ot_case rotated_back(const ot_case *g) {
  ot_case c = {.kind = OT_OP_ROPE_GRAD,
               .attributes = g->attributes,
               .types = {.in = {g->types.in[0], g->types.in[6], g->types.in[7]}}};
  ot_case_create(&c);
  copy(&g->in[0], &c.in[0]);
  copy(&g->in[6], &c.in[1]);
  copy(&g->in[7], &c.in[2]);
  ot_case_run(&c);
  return c;
}

static void gradients_are_those_of_the_plain_form_for_dy_rotated_back(void **state) {
  (void)state;
  for (int r = 0; r < NUM_ROTATIONS; r++) {
    ot_case c = rotated_case(r);
    ot_case_run(&c);
    ot_case plain = grad_case(&c);
    ot_case g = plain;
    g.types.in[6] = c.types.in[4];
    g.types.in[7] = c.types.in[5];
    g.statistic_inputs |= 1u << 7;
    ot_case_create(&g);
    copy(&plain.in[4], &g.in[4]);
    copy(&c.in[4], &g.in[6]);
    copy(&c.in[5], &g.in[7]);
    ot_case back = rotated_back(&g);
    copy(&back.out[0], &plain.in[0]);
    ot_case_run(&plain);
    ot_case_run(&g);
    for (int i = 0; i < 3; i++) ot_case_expect(&g.out[i], plain.out[i].data, 1e-13, "gradient");
    ot_case_check_precisions(&g, 2e-6, 4e-3);
    ot_case_destroy(&back);
    ot_case_destroy(&g);
    ot_case_destroy(&plain);
    ot_case_destroy(&c);
  }
}

static void refuses_another_width_than_a_head_or_the_row(void **state) {
  (void)state;
  ot_op_types types = {
      .in = {ot_type_matrix(OT_F32, 2, 16), ot_type_vector(OT_F32, 8), ot_type_vector(OT_F32, 8)}};
  const ot_op_attributes attributes = {
      .compute = OT_F32, .num_heads = 2, .num_kv_heads = 1, .head_dim = 4, .norm_width = 8};
  assert_int_equal(ot_op_infer(OT_OP_HEAD_NORM, &attributes, &types), OT_BUG);
  assert_string_equal(ot_fail_message(), "head_norm: norm_width is 8, expected 0 or head_dim 4");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(follows_its_formula_per_head_and_over_rows),
      cmocka_unit_test(agrees_with_torch),
      cmocka_unit_test(sharded_rows_have_the_norms_of_whole_rows),
      cmocka_unit_test(sharded_rows_have_the_gradients_of_whole_rows),
      cmocka_unit_test(gradients_are_those_of_the_forward_kernel),
      cmocka_unit_test(precisions_and_threads_agree),
      cmocka_unit_test(rotates_what_it_normalises),
      cmocka_unit_test(gradients_of_the_rotated_form_are_those_of_its_kernel),
      cmocka_unit_test(gradients_are_those_of_the_plain_form_for_dy_rotated_back),
      cmocka_unit_test(refuses_another_width_than_a_head_or_the_row),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
