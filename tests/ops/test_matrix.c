// SPDX-License-Identifier: Apache-2.0
// run: serial. GEMMs against explicit sums: forms, strides, alpha and beta, and the tiles that
// threads compute.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/matrix.h"

typedef struct shape {
  int64_t rows, columns, depth;
} shape;

enum { MARGIN = 3 };  // unused elements between rows

static const float OUTSIDE = 12345;

// Small integers: every sum is exact in any order.
static float value_at(int64_t i) { return (float)((i * 7919 + 13) % 17 - 8); }

static float *filled(int64_t n) {
  float *const data = malloc((size_t)(n > 0 ? n : 1) * sizeof *data);
  assert_non_null(data);
  for (int64_t i = 0; i < n; i++) data[i] = value_at(i);
  return data;
}

static float factor_value(const ot_factor *f, int64_t row, int64_t column) {
  return f->transposed ? f->data[column * f->stride + row] : f->data[row * f->stride + column];
}

// Initial c: values inside the product, OUTSIDE in the margin.
static float before(const ot_gemm *p, int64_t i) {
  return i % p->c_stride < p->columns ? value_at(i) : OUTSIDE;
}

static void expect_product(const ot_gemm *p) {
  for (int64_t i = 0; i < p->rows * p->c_stride; i++) {
    const int64_t row = i / p->c_stride;
    const int64_t column = i % p->c_stride;
    double want = (double)before(p, i);
    if (column < p->columns) {
      double sum = 0;
      for (int64_t k = 0; k < p->depth; k++) {
        sum += (double)factor_value(&p->a, row, k) * (double)factor_value(&p->b, k, column);
      }
      want = (double)p->alpha * sum + (double)p->beta * want;
    }
    if ((double)p->c[i] != want) {
      fail_msg("c[%d][%d] is %g, expected %g (%d x %d x %d)", (int)row, (int)column,
               (double)p->c[i], want, (int)p->rows, (int)p->columns, (int)p->depth);
    }
  }
}

static void check(shape s, int form, float beta, int threads) {
  const bool a_transposed = (form & 1) != 0;
  const bool b_transposed = (form & 2) != 0;
  ot_gemm p = {.rows = s.rows, .columns = s.columns, .depth = s.depth, .alpha = 2, .beta = beta};
  p.a =
      (ot_factor){.stride = (a_transposed ? s.rows : s.depth) + MARGIN, .transposed = a_transposed};
  p.b = (ot_factor){.stride = (b_transposed ? s.depth : s.columns) + MARGIN,
                    .transposed = b_transposed};
  p.c_stride = s.columns + MARGIN;
  float *const a = filled(p.a.stride * (a_transposed ? s.depth : s.rows));
  float *const b = filled(p.b.stride * (b_transposed ? s.columns : s.depth));
  p.a.data = a;
  p.b.data = b;
  p.c = filled(p.c_stride * s.rows);
  for (int64_t i = 0; i < p.c_stride * s.rows; i++) p.c[i] = before(&p, i);
  ot_matrix_multiply_f32(&p, threads);
  expect_product(&p);
  free(a);
  free(b);
  free(p.c);
}

static void every_form_is_the_sum_written_out(void **state) {
  (void)state;
  const shape shapes[] = {{1, 1, 1},     {5, 3, 7},   {17, 65, 33},
                          {33, 16, 129}, {1, 70, 40}, {70, 1, 40}};
  for (int i = 0; i < (int)(sizeof shapes / sizeof shapes[0]); i++) {
    for (int form = 0; form < 4; form++) {
      check(shapes[i], form, 0, 1);
      check(shapes[i], form, 1, 3);
      check(shapes[i], form, 3, 2);
    }
  }
}

static void thread_tiles_cover_the_gemm(void **state) {
  (void)state;
  const shape shapes[] = {{700, 300, 130}, {37, 1500, 600}, {1601, 17, 900}};
  for (int i = 0; i < 3; i++) {
    for (int threads = 1; threads <= 7; threads += 2) check(shapes[i], i, 1, threads);
  }
}

static void empty_depth_leaves_beta_times_what_was_there(void **state) {
  (void)state;
  check((shape){4, 5, 0}, 0, 1, 2);
  check((shape){4, 5, 0}, 0, 0, 2);
}

static void beta_zero_does_not_read(void **state) {
  (void)state;
  float c[6] = {NAN, NAN, NAN, NAN, NAN, NAN};
  const float a[2] = {1, 2}, b[3] = {3, 4, 5};
  const ot_gemm p = {.rows = 2,
                     .columns = 3,
                     .depth = 1,
                     .a = {a, 1, false},
                     .b = {b, 3, false},
                     .c = c,
                     .c_stride = 3,
                     .alpha = 1,
                     .beta = 0};
  ot_matrix_multiply_f32(&p, 1);
  const float want[6] = {3, 4, 5, 6, 8, 10};
  assert_memory_equal(c, want, sizeof want);
}

// c = a b^T (+ c) with independent rows: exact for small integers.
static void check_rows(shape s, float beta, int threads) {
  ot_gemm p = {.rows = s.rows,
               .columns = s.columns,
               .depth = s.depth,
               .a = {filled((s.depth + MARGIN) * s.rows), s.depth + MARGIN, false},
               .b = {filled((s.depth + MARGIN) * s.columns), s.depth + MARGIN, true},
               .c = filled((s.columns + MARGIN) * s.rows),
               .c_stride = s.columns + MARGIN,
               .alpha = 1,
               .beta = beta,
               .independent_rows = true};
  for (int64_t i = 0; i < p.c_stride * s.rows; i++) p.c[i] = before(&p, i);
  ot_matrix_multiply_f32(&p, threads);
  expect_product(&p);
  free((void *)(uintptr_t)p.a.data);
  free((void *)(uintptr_t)p.b.data);
  free(p.c);
}

static void independent_rows_are_the_sum_written_out(void **state) {
  (void)state;
  const shape shapes[] = {{1, 1, 1},   {1, 70, 40},  {2, 5, 16},   {3, 9, 31},      {4, 4, 64},
                          {5, 6, 100}, {7, 33, 129}, {13, 70, 48}, {600, 90, 1500}, {6, 4, 2049}};
  for (int i = 0; i < (int)(sizeof shapes / sizeof shapes[0]); i++) {
    check_rows(shapes[i], 0, 1);
    check_rows(shapes[i], 1, 3);
  }
}

// Sums of fractions round: a row alone must have the bits that it has among any others.
static void a_row_has_the_same_bits_alone_and_among_others(void **state) {
  (void)state;
  enum { ROWS = 19, COLUMNS = 37, DEPTH = 1111 };
  float *const a = malloc(sizeof(float) * ROWS * DEPTH);
  float *const b = malloc(sizeof(float) * COLUMNS * DEPTH);
  float all[ROWS * COLUMNS], part[ROWS * COLUMNS];
  for (int64_t i = 0; i < ROWS * DEPTH; i++) a[i] = value_at(i) / 7;
  for (int64_t i = 0; i < COLUMNS * DEPTH; i++) b[i] = value_at(3 * i) / 11;
  ot_gemm p = {.rows = ROWS,
               .columns = COLUMNS,
               .depth = DEPTH,
               .a = {a, DEPTH, false},
               .b = {b, DEPTH, true},
               .c = all,
               .c_stride = COLUMNS,
               .alpha = 1,
               .independent_rows = true};
  ot_matrix_multiply_f32(&p, 2);
  for (int64_t rows = 1; rows <= 7; rows++) {
    for (int64_t first = 0; first + rows <= ROWS; first++) {
      p.rows = rows;
      p.a.data = a + first * DEPTH;
      p.c = part;
      ot_matrix_multiply_f32(&p, 1);
      assert_memory_equal(part, all + first * COLUMNS, (size_t)(rows * COLUMNS) * sizeof *part);
    }
  }
  free(a);
  free(b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_form_is_the_sum_written_out),
      cmocka_unit_test(thread_tiles_cover_the_gemm),
      cmocka_unit_test(empty_depth_leaves_beta_times_what_was_there),
      cmocka_unit_test(beta_zero_does_not_read),
      cmocka_unit_test(independent_rows_are_the_sum_written_out),
      cmocka_unit_test(a_row_has_the_same_bits_alone_and_among_others),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
