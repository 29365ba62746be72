// SPDX-License-Identifier: Apache-2.0
// run: any machine; in builds without CUDA on an emulated GPU. Matrix products of every kind
// against their formula, that cuBLASLt has them, and that their algorithms are kept (gemm.table).
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "base/text_builder.h"
#include "checkpoint/elements.h"
#include "device/device.h"
#include "host/heap.h"
#include "kernels/cuda/matmul.h"
#include "kernels/kernels.h"

enum { ROWS = 24, COLUMNS = 40, DEPTH = 72 };

typedef enum addend_kind { NO_ADDEND, OTHER_ADDEND, IN_PLACE } addend_kind;

typedef struct product_kind {
  ot_dtype operands, result, compute;
  bool a_transposed, b_transposed, bias;
  addend_kind addend;
  int64_t gap;     // elements after each row
  int64_t offset;  // elements before each matrix
  int64_t bias_offset;
} product_kind;

static const product_kind of_library[] = {
    {OT_BF16, OT_BF16, OT_F32, false, true, true, NO_ADDEND, 0, 0, 0},
    {OT_BF16, OT_BF16, OT_F32, false, true, true, OTHER_ADDEND, 0, 0, 0},
    {OT_BF16, OT_BF16, OT_F32, false, false, false, IN_PLACE, 8, 0, 0},
    {OT_BF16, OT_F32, OT_F32, true, false, false, IN_PLACE, 0, 0, 0},
    {OT_BF16, OT_F32, OT_F32, false, true, false, NO_ADDEND, 1, 0, 0},
    {OT_F32, OT_F32, OT_F32, false, true, true, OTHER_ADDEND, 8, 0, 0},
    {OT_F32, OT_F32, OT_F32, true, true, false, IN_PLACE, 1, 0, 0},
    {OT_F64, OT_F64, OT_F64, false, true, true, NO_ADDEND, 0, 0, 0},
    {OT_F64, OT_F64, OT_F64, true, false, false, IN_PLACE, 1, 0, 0},
    {OT_BF16, OT_BF16, OT_F32, false, true, true, OTHER_ADDEND, 0, 1, 1},
    {OT_F32, OT_F32, OT_F32, false, true, false, NO_ADDEND, 0, 1, 0},
    {OT_F32, OT_F32, OT_F32, false, true, true, NO_ADDEND, 0, 0, 1},
};

// Of the emulated GPU alone.
extern void shim_set_order(int order, uint64_t seed) __attribute__((weak));

// ---- a device with its kernels' context ----

typedef struct device_case {
  ot_heap heap;
  ot_arena arena;
  ot_device *device;
  ot_stream *stream;
  void *context;
} device_case;

static void must(ot_status status) {
  if (status != OT_OK) fail_msg("%s", ot_fail_message());
}

static void open_case(device_case *c) {
  *c = (device_case){.device = NULL};
  c->arena = ot_heap_arena_create(&c->heap);
  must(ot_device_create(OT_BACKEND_CUDA, 0, &c->device));
  must(ot_device_bind(c->device));
  must(ot_stream_create(c->device, &c->stream));
  must(ot_kernel_context_create(OT_BACKEND_CUDA, ot_stream_native(c->stream), &c->context));
}

static void close_case(device_case *c) {
  ot_kernel_context_destroy(OT_BACKEND_CUDA, &c->context);
  ot_stream_destroy(&c->stream);
  ot_device_destroy(&c->device);
  ot_heap_release(&c->heap);
}

static const char *table_of(device_case *c) {
  return ot_kernel_algorithms_print(OT_BACKEND_CUDA, c->context, &c->arena);
}

static const char *read_table(device_case *c, const char *text) {
  return ot_kernel_algorithms_read(OT_BACKEND_CUDA, c->context, text, &c->arena);
}

// ---- products ----

typedef struct matrix {
  ot_cuda_matrix view;
  void *memory;
  int64_t bytes;
  double *values;  // as stored, rounded to the type
} matrix;

static matrix make_matrix(device_case *c, const product_kind *k, ot_dtype dtype, int64_t rows,
                          int64_t stride) {
  const int64_t n = rows * stride + k->offset, element_bytes = ot_dtype_bytes(dtype);
  matrix m = {.view = {.dtype = dtype, .stride = stride}, .bytes = n * element_bytes};
  void *const stored = ot_arena_take(&c->arena, m.bytes);
  m.values = ot_arena_array(&c->arena, n, sizeof *m.values);
  for (int64_t i = 0; i < n; i++) {
    m.values[i] = sin(0.7 * (double)i + (double)rows) * (1 + (double)(i % 3));
  }
  ot_elements_convert(OT_F64, m.values, dtype, stored, n);
  ot_elements_convert(dtype, stored, OT_F64, m.values, n);
  must(ot_device_allocate(c->device, m.bytes, &m.memory));
  must(ot_device_write(c->device, m.memory, 0, stored, m.bytes));
  m.view.data = (char *)m.memory + k->offset * element_bytes;
  m.values += k->offset;
  return m;
}

static double element(const matrix *m, int64_t row, int64_t column) {
  const int64_t i = m->view.transposed ? column : row, j = m->view.transposed ? row : column;
  return m->values[i * m->view.stride + j];
}

static matrix make_operand(device_case *c, const product_kind *k, int64_t rows, int64_t columns,
                           bool transposed) {
  matrix m = make_matrix(c, k, k->operands, transposed ? columns : rows,
                         (transposed ? rows : columns) + k->gap);
  m.view.transposed = transposed;
  return m;
}

typedef struct operands {
  matrix a, b, y, addend, bias;
} operands;

static void make_operands(device_case *c, const product_kind *k, operands *o) {
  o->a = make_operand(c, k, ROWS, DEPTH, k->a_transposed);
  o->b = make_operand(c, k, DEPTH, COLUMNS, k->b_transposed);
  o->y = make_matrix(c, k, k->result, ROWS, COLUMNS + k->gap);
  o->addend = make_matrix(c, k, k->result, ROWS, COLUMNS + 2 * k->gap);
  product_kind of_bias = *k;
  of_bias.offset = k->bias_offset;
  o->bias = make_matrix(c, &of_bias, k->result, 1, COLUMNS);
}

static void release_operands(device_case *c, operands *o) {
  matrix *const all[] = {&o->a, &o->b, &o->y, &o->addend, &o->bias};
  for (int i = 0; i < OT_COUNT(all); i++)
    ot_device_release(c->device, &all[i]->memory, all[i]->bytes);
}

typedef struct formula {
  double value;
  double tolerance;
} formula;

// The error of the result, in units of 2^-8 if it is bf16: its own rounding, and if there is an
// addend the one of the product, alone or with the bias, to which it is added (matmul.h). Sums are
// in the compute type.
static formula formula_of(const product_kind *k, const operands *o, int64_t row, int64_t column) {
  double product = 0;
  for (int64_t i = 0; i < DEPTH; i++) product += element(&o->a, row, i) * element(&o->b, i, column);
  const double bias = k->bias ? element(&o->bias, 0, column) : 0;
  const double addend = k->addend == IN_PLACE       ? element(&o->y, row, column)
                        : k->addend == OTHER_ADDEND ? element(&o->addend, row, column)
                                                    : 0;
  const double value = product + bias + addend, unit = k->result == OT_BF16 ? 0x1p-8 : 0;
  const double first =
      k->addend == NO_ADDEND ? 0 : unit * fmax(fabs(product), fabs(product + bias));
  return (formula){value,
                   first + unit * (fabs(value) + first) + (k->compute == OT_F64 ? 1e-11 : 1e-3)};
}

static void check(const product_kind *k, const operands *o, const double *y) {
  for (int64_t row = 0; row < ROWS; row++) {
    for (int64_t i = 0; i < o->y.view.stride; i++) {
      const double found = y[row * o->y.view.stride + i];
      const formula wanted =
          i < COLUMNS ? formula_of(k, o, row, i) : (formula){element(&o->y, row, i), 0};
      if (!(fabs(found - wanted.value) <= wanted.tolerance))
        fail_msg("product %d: [%d, %d] is %g, not %g", (int)(k - of_library), (int)row, (int)i,
                 found, wanted.value);
    }
  }
}

// Queues one product of the kind, checks it, and returns `hash` with its bits.
static uint64_t multiply(device_case *c, const product_kind *k, uint64_t hash) {
  operands o;
  make_operands(c, k, &o);
  const ot_cuda_product product = {.rows = ROWS,
                                   .columns = COLUMNS,
                                   .depth = DEPTH,
                                   .a = o.a.view,
                                   .b = o.b.view,
                                   .y = o.y.view,
                                   .addend = k->addend == IN_PLACE ? o.y.view
                                             : k->addend == OTHER_ADDEND
                                                 ? o.addend.view
                                                 : (ot_cuda_matrix){.data = NULL},
                                   .bias = k->bias ? o.bias.view : (ot_cuda_matrix){.data = NULL},
                                   .compute = k->compute};
  ot_cuda_multiply(c->context, &product);
  must(ot_stream_synchronize(c->stream));
  void *const stored = ot_arena_take(&c->arena, o.y.bytes);
  const int64_t n = ROWS * o.y.view.stride + k->offset;
  double *const y = ot_arena_array(&c->arena, n, sizeof *y);
  must(ot_device_read(c->device, o.y.memory, 0, stored, o.y.bytes));
  ot_elements_convert(k->result, stored, OT_F64, y, n);
  check(k, &o, y + k->offset);
  release_operands(c, &o);
  return ot_hash_bytes(hash, stored, o.y.bytes);
}

static uint64_t multiply_all(device_case *c) {
  uint64_t hash = OT_HASH_START;
  for (int i = 0; i < OT_COUNT(of_library); i++) hash = multiply(c, &of_library[i], hash);
  return hash;
}

static int count_lines(const char *text) {
  int lines = 0;
  for (; *text; text++) lines += *text == '\n';
  return lines;
}

// ---- tests ----

static void products_are_their_formula_and_run_by_the_library(void **state) {
  (void)state;
  device_case c;
  open_case(&c);
  const uint64_t bits = multiply_all(&c);
  const char *const table = table_of(&c);
  assert_null(ot_text_find(table, " own"));
  assert_int_equal(count_lines(table), 2 + OT_COUNT(of_library));
  assert_int_equal(multiply_all(&c), bits);
  assert_string_equal(table_of(&c), table);
  close_case(&c);
}

// The library has no product of float32 into float64.
static void what_the_library_lacks_runs_by_our_own_kernel(void **state) {
  (void)state;
  const product_kind mixed = {.operands = OT_F32, .result = OT_F64, .compute = OT_F64, .gap = 1};
  device_case c;
  open_case(&c);
  const uint64_t bits = multiply(&c, &mixed, OT_HASH_START);
  const char *const table = table_of(&c);
  assert_non_null(ot_text_find(table, " : own\n"));
  assert_null(read_table(&c, table));
  assert_int_equal(multiply(&c, &mixed, OT_HASH_START), bits);
  assert_string_equal(table_of(&c), table);
  close_case(&c);
}

static void products_may_all_run_by_our_own_kernel(void **state) {
  (void)state;
  device_case c;
  setenv("OT_PRODUCTS", "own", 1);
  open_case(&c);
  (void)multiply_all(&c);
  assert_int_equal(count_lines(table_of(&c)), 2);
  assert_non_null(ot_text_find(table_of(&c), "cuBLASLt 0 "));
  ot_kernel_context_destroy(OT_BACKEND_CUDA, &c.context);
  setenv("OT_PRODUCTS", "mine", 1);
  assert_int_equal(
      ot_kernel_context_create(OT_BACKEND_CUDA, ot_stream_native(c.stream), &c.context),
      OT_ENVIRONMENT);
  assert_string_equal(ot_fail_message(), "OT_PRODUCTS is mine, must be library (default) or own");
  unsetenv("OT_PRODUCTS");
  close_case(&c);
}

// The table of a context that has run all products, in `arena`, and their bits.
static const char *make_table(ot_arena *arena, uint64_t *bits) {
  device_case c;
  open_case(&c);
  *bits = multiply_all(&c);
  const char *const text = table_of(&c);
  const char *const copy = ot_arena_text(arena, text, ot_text_length(text));
  close_case(&c);
  return copy;
}

typedef struct table_case {
  ot_heap heap;
  ot_arena arena;
  uint64_t bits;
  const char *table;
} table_case;

static void open_table(table_case *t) {
  *t = (table_case){.bits = 0};
  t->arena = ot_heap_arena_create(&t->heap);
  t->table = make_table(&t->arena, &t->bits);
}

static void a_table_keeps_bits(void **state) {
  (void)state;
  table_case t;
  device_case c;
  open_table(&t);
  setenv("OT_SHIM_LT_ORDER", "reversed", 1);
  open_case(&c);
  assert_null(read_table(&c, t.table));
  assert_string_equal(table_of(&c), t.table);
  assert_int_equal(multiply_all(&c), t.bits);
  assert_string_equal(table_of(&c), t.table);
  close_case(&c);
  if (shim_set_order) {
    open_case(&c);
    assert_int_not_equal(multiply_all(&c), t.bits);
    // After other choices, too.
    assert_null(read_table(&c, t.table));
    assert_int_equal(multiply_all(&c), t.bits);
    close_case(&c);
  }
  unsetenv("OT_SHIM_LT_ORDER");
  ot_heap_release(&t.heap);
}

static void expect_note(device_case *c, const char *table, const char *wanted) {
  const char *const note = read_table(c, table);
  if (!note || !ot_text_find(note, wanted))
    fail_msg("\"%s\" instead of \"... %s\"", note ? note : "no note", wanted);
}

static void a_table_of_another_version_is_told_and_not_used(void **state) {
  (void)state;
  if (!shim_set_order) skip();
  table_case t;
  device_case c;
  open_table(&t);
  setenv("OT_SHIM_LT_VERSION", "130200", 1);
  open_case(&c);
  expect_note(&c, t.table,
              "they were by cuBLASLt 130100 on emulated device, and are now by cuBLASLt 130200");
  assert_int_equal(count_lines(table_of(&c)), 2);
  close_case(&c);
  setenv("OT_PRODUCTS", "own", 1);
  open_case(&c);
  expect_note(&c, t.table, "and are now by cuBLASLt 0 on emulated device");
  multiply_all(&c);
  close_case(&c);
  unsetenv("OT_PRODUCTS");
  unsetenv("OT_SHIM_LT_VERSION");
  ot_heap_release(&t.heap);
}

// The words of a real library's algorithm have no stated meaning, so none is changed there.
static void refused_algorithms_are_told(void **state) {
  (void)state;
  if (!shim_set_order) skip();
  table_case t;
  device_case c;
  open_table(&t);
  open_case(&c);
  const char *const words = ot_text_find(t.table, " : ") + 3;
  expect_note(&c,
              ot_arena_format(&t.arena, "%.*s1%s", (int)(words - t.table), t.table,
                              ot_text_find(words, " ")),
              "refuses 1 of 12 algorithms");
  int own, replaced;
  ot_kernel_algorithms_refused(OT_BACKEND_CUDA, c.context, &own, &replaced);
  assert_int_equal(replaced, 1);
  assert_int_equal(own, 0);
  assert_int_equal(multiply_all(&c), t.bits);
  close_case(&c);
  ot_heap_release(&t.heap);
}

// More rows than a reader takes, each of another product.
static const char *too_many_rows(table_case *t) {
  const char *const rows = ot_text_find(ot_text_find(t->table, "\n") + 1, "\n") + 1;
  ot_text_builder text = {.arena = &t->arena};
  ot_text_append(&text, t->table, rows - t->table);
  for (int i = 1; i <= (1 << 14) + 1; i++)
    ot_text_appendf(&text, "%d 1 1 1 1 1 1 4 4 4 4 0 0 0 68 0 0 0 : own\n", i);
  return ot_text_builder_text(&text);
}

static void damaged_tables_are_told(void **state) {
  (void)state;
  table_case t;
  device_case c;
  open_table(&t);
  open_case(&c);
  const int length = (int)(ot_text_find(t.table, " : ") - t.table);
  expect_note(&c, ot_arena_format(&t.arena, "9%s", t.table), "cannot be read");
  expect_note(&c, ot_arena_format(&t.arena, "%.*s", length, t.table), "cannot be read");
  expect_note(&c, "", "cannot be read");
  expect_note(&c, too_many_rows(&t), "cannot be read");
  close_case(&c);
  ot_heap_release(&t.heap);
}

// The first product with 10^5 times the rows, by an algorithm that adds halves in the workspace.
static void an_algorithm_needs_no_more_workspace_than_there_is(void **state) {
  (void)state;
  if (!shim_set_order) skip();
  table_case t;
  device_case c;
  open_table(&t);
  open_case(&c);
  const char *const row = ot_text_find(t.table, "emulated device\n") + 16;
  const char *const number = ot_text_find(row, " 130100 1 ") + 8;
  expect_note(&c,
              ot_arena_format(&t.arena, "%.*s24000%.*s3 0 0 0 0 0\n", (int)(row - t.table), t.table,
                              (int)(number - row), row),
              "refuses 1 of 1 algorithms");
  close_case(&c);
  ot_heap_release(&t.heap);
}

static int count(const char *text, const char *wanted) {
  int found = 0;
  for (; (text = ot_text_find(text, wanted)); text++) found++;
  return found;
}

// The text of a race after all products and one by our own kernel, and the bits of the products
// afterwards, which are their formula.
static const char *race_all(device_case *c, uint64_t *bits) {
  const product_kind mixed = {.operands = OT_F32, .result = OT_F64, .compute = OT_F64, .gap = 1};
  (void)multiply_all(c);
  (void)multiply(c, &mixed, OT_HASH_START);
  const char *const raced = ot_kernel_algorithms_race(OT_BACKEND_CUDA, c->context, 2, &c->arena);
  assert_non_null(raced);
  *bits = multiply_all(c);
  return raced;
}

static void a_race_times_what_the_library_proposes_and_products_stay_right(void **state) {
  (void)state;
  device_case c;
  uint64_t bits;
  open_case(&c);
  const char *const raced = race_all(&c, &bits);
  assert_int_equal(count(raced, "\"seconds\":["), OT_COUNT(of_library));
  assert_int_equal(count(raced, "\"own\":true"), 1);
  assert_int_equal(count(raced, "[0,") + count(raced, ",0]") + count(raced, "[]"), 0);
  assert_int_equal(multiply_all(&c), bits);
  const char *const table = table_of(&c);
  assert_int_equal(count_lines(table), 3 + OT_COUNT(of_library));
  assert_null(read_table(&c, table));
  assert_int_equal(multiply_all(&c), bits);
  close_case(&c);
}

int main(void) {
  setenv("OT_TEST_DEVICE", "cuda", 1);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(products_are_their_formula_and_run_by_the_library),
      cmocka_unit_test(what_the_library_lacks_runs_by_our_own_kernel),
      cmocka_unit_test(products_may_all_run_by_our_own_kernel),
      cmocka_unit_test(a_table_keeps_bits),
      cmocka_unit_test(a_table_of_another_version_is_told_and_not_used),
      cmocka_unit_test(refused_algorithms_are_told),
      cmocka_unit_test(damaged_tables_are_told),
      cmocka_unit_test(a_race_times_what_the_library_proposes_and_products_stay_right),
      cmocka_unit_test(an_algorithm_needs_no_more_workspace_than_there_is),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
