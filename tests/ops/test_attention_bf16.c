// SPDX-License-Identifier: Apache-2.0
// ctest: device
// ctest: variant=forward full emulated OT_SHIM_ORDER=forward
// ctest: variant=mma_backward full emulated OT_ATTENTION=mma OT_SHIM_ORDER=backward
// ctest: variant=mma_random full emulated OT_ATTENTION=mma OT_SHIM_ORDER=random
// ctest: variant=sm_80 emulated OT_ATTENTION=mma OT_SHIM_SHARED=166912 OT_TEST_CASES=a_block*
// ctest: variant=sm_80_full full emulated OT_ATTENTION=mma OT_SHIM_SHARED=166912
// run: serial. Attention of bf16 activations at the head dims of models, for which GPUs have
// kernels of their own, against the formula in float64: whole sequences, and all blocks of a ring.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ops/attention.h"
#include "ops/zigzag.h"
#include "support/op_case.h"
#include "support/op_device.h"

// V: columns of values that are not zero. c: ranks of a ring, 0: whole sequences.
typedef struct shape {
  int c;
  int64_t B, T, H, G, D, V, window;
  bool documents, sinks;
} shape;

static const shape shapes[] = {
    {0, 1, 300, 1, 1, 64, 64, 0, false, false},     {0, 2, 97, 4, 2, 64, 64, 33, true, true},
    {0, 1, 201, 2, 1, 96, 96, 0, false, false},     {0, 2, 131, 3, 3, 96, 96, 40, true, false},
    {0, 1, 260, 2, 2, 128, 128, 0, true, false},    {0, 1, 191, 2, 1, 128, 128, 20, false, true},
    {0, 1, 290, 1, 1, 192, 128, 0, false, false},   {0, 2, 75, 2, 1, 192, 96, 20, true, false},
    {0, 1, 130, 2, 1, 256, 256, 0, false, true},    {0, 2, 133, 1, 1, 256, 256, 50, true, false},
    {0, 1, 700, 1, 1, 64, 64, 0, false, false},     {0, 1, 520, 1, 1, 128, 128, 0, false, false},
    {1, 1, 193, 2, 1, 64, 64, 0, true, true},       {2, 1, 300, 2, 1, 64, 64, 0, false, false},
    {2, 2, 260, 2, 2, 96, 96, 50, true, false},     {3, 1, 330, 1, 1, 128, 128, 0, true, true},
    {2, 1, 404, 1, 1, 128, 128, 130, false, false}, {2, 1, 292, 1, 1, 192, 128, 0, true, false},
    {2, 1, 140, 1, 1, 256, 256, 90, false, false},
};
enum { NUM_SHAPES = sizeof shapes / sizeof shapes[0], MOST_RANKS = 3, FIRST_SINK = 1 };
static const double SCALE = 0.11;
static const double LSE_ERROR = 3e-6, OUTPUT_ERROR = 4e-3, GRADIENT_ERROR = 8e-3;

// ---- the formula in float64 ----

// Tensors of whole sequences; q | k | v in one row.
typedef struct reference {
  shape s;
  double *qkv, *sinks, *doutput;  // given
  int32_t *doc_start;
  double *o, *lse, *dqkv;
} reference;

static int64_t row_width(shape s) { return (s.H + 2 * s.G) * s.D; }

// Values as bf16 has them, zeros behind the V columns of a head of values.
static double *random_values(uint64_t stream, int64_t rows, int64_t heads, shape s, int64_t first) {
  ot_tensor x = {.data = calloc((size_t)(rows * heads * s.D), sizeof(double)),
                 .type = ot_type_matrix(OT_F64, rows, heads * s.D)};
  ot_case_fill(&x, stream, 1, 0);
  double *const values = x.data;
  for (int64_t i = 0; i < rows * heads * s.D; i++) {
    if (i / s.D % heads >= first && i % s.D >= s.V) values[i] = 0;
  }
  return values;
}

static int32_t *documents_of(shape s) {
  int32_t *const start = calloc((size_t)(s.B * s.T), sizeof *start);
  for (int64_t b = 0; b < s.B; b++) {
    int64_t first = 0, length = 45 + b;
    for (int64_t t = 0; t < s.T; t++) {
      if (t == first + length) {
        first = t;
        length += 30;
      }
      start[b * s.T + t] = (int32_t)first;
    }
  }
  return start;
}

static const double *head(const reference *r, int64_t row, int64_t h) {
  return r->qkv + row * row_width(r->s) + h * r->s.D;
}

static double dot(const double *x, const double *y, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += x[i] * y[i];
  return sum;
}

static void add(double factor, const double *x, int64_t n, double *to) {
  for (int64_t i = 0; i < n; i++) to[i] += factor * x[i];
}

// The first key that row b T + i sees.
static int64_t first_key(const reference *r, int64_t b, int64_t i) {
  const int64_t oldest = r->s.window > 0 ? i - r->s.window + 1 : 0;
  const int64_t start = r->s.documents ? r->doc_start[b * r->s.T + i] : 0;
  return start > oldest ? start : oldest > 0 ? oldest : 0;
}

// Output, lse and gradients of one query and head.
static void add_query(reference *r, int64_t b, int64_t h, int64_t i) {
  const shape s = r->s;
  const int64_t row = b * s.T + i, low = first_key(r, b, i), key = s.H + h / (s.H / s.G);
  double *const score = calloc((size_t)s.T, sizeof *score);
  double *const o = r->o + (row * s.H + h) * s.D;
  const double *const doutput = r->doutput + (row * s.H + h) * s.D;
  double sum = s.sinks ? exp(r->sinks[FIRST_SINK + h]) : 0;
  for (int64_t j = low; j <= i; j++) {
    score[j] = SCALE * dot(head(r, row, h), head(r, b * s.T + j, key), s.D);
    sum += exp(score[j]);
  }
  r->lse[row * s.H + h] = log(sum);
  for (int64_t j = low; j <= i; j++) {
    add(exp(score[j]) / sum, head(r, b * s.T + j, key + s.G), s.D, o);
  }
  const double delta = dot(o, doutput, s.D);
  double *const d = r->dqkv, *const dq = d + row * row_width(s) + h * s.D;
  for (int64_t j = low; j <= i; j++) {
    double *const dk = d + (b * s.T + j) * row_width(s) + key * s.D;
    const double p = exp(score[j]) / sum;
    const double dp = dot(doutput, head(r, b * s.T + j, key + s.G), s.D);
    add(SCALE * p * (dp - delta), head(r, b * s.T + j, key), s.D, dq);
    add(SCALE * p * (dp - delta), head(r, row, h), s.D, dk);
    add(p, doutput, s.D, dk + s.G * s.D);
  }
  free(score);
}

static reference reference_of(shape s) {
  const int64_t R = s.B * s.T;
  reference r = {.s = s,
                 .qkv = random_values(3, R, s.H + 2 * s.G, s, s.H + s.G),
                 .doutput = random_values(4, R, s.H, s, 0),
                 .sinks = random_values(5, 1, FIRST_SINK + s.H, (shape){.D = 1, .V = 1}, 0),
                 .doc_start = documents_of(s),
                 .o = calloc((size_t)(R * s.H * s.D), sizeof(double)),
                 .lse = calloc((size_t)(R * s.H), sizeof(double)),
                 .dqkv = calloc((size_t)(R * row_width(s)), sizeof(double))};
  for (int64_t n = 0; n < R * s.H; n++) add_query(&r, n / s.H / s.T, n % s.H, n / s.H % s.T);
  return r;
}

static void destroy(reference *r) {
  free(r->qkv);
  free(r->doutput);
  free(r->sinks);
  free(r->doc_start);
  free(r->o);
  free(r->lse);
  free(r->dqkv);
}

// ---- cases ----

static bool runs_hopper(void) {
  const char *const kernels = getenv("OT_ATTENTION");
  return op_device_backend() == OT_BACKEND_CUDA && !(kernels && strcmp(kernels, "mma") == 0);
}

// Runs the case; the kernels for Hopper twice, which must give equal bits. In a ring that is shown
// for the queries of one rank.
static void run(ot_case *c) {
  ot_case_run(c);
  if (!runs_hopper() || c->attributes.context_index > 0) return;
  void *first[2] = {NULL, NULL};
  for (int i = 0; i < 2 && c->out[i].data; i++) {
    first[i] = malloc((size_t)ot_type_bytes(&c->out[i].type));
    assert_non_null(first[i]);
    memcpy(first[i], c->out[i].data, (size_t)ot_type_bytes(&c->out[i].type));
  }
  ot_case_run(c);
  for (int i = 0; i < 2 && first[i]; i++) {
    assert_memory_equal(first[i], c->out[i].data, (size_t)ot_type_bytes(&c->out[i].type));
    free(first[i]);
  }
}

static ot_op_attributes attributes_of(shape s) {
  return (ot_op_attributes){.threads = 2,
                            .compute = OT_F32,
                            .sequence_length = s.T,
                            .num_heads = s.H,
                            .num_kv_heads = s.G,
                            .head_dim = s.D,
                            .value_dim = s.V < s.D ? s.V : 0,
                            .window = s.window,
                            .scale = SCALE,
                            .first_sink = s.sinks ? FIRST_SINK : 0};
}

static void set_all(const ot_tensor *tensor, const double *values) {
  if (!tensor->data) return;
  for (int64_t i = 0; i < ot_type_elements(&tensor->type); i++) {
    ot_case_set(tensor, i, values[i]);
  }
}

static void set_documents(const ot_tensor *tensor, const int32_t *starts) {
  if (!tensor->data) return;
  for (int64_t i = 0; i < ot_type_elements(&tensor->type); i++) {
    ot_case_set(tensor, i, starts[i]);
  }
}

static void forward_is_the_formula(const reference *r, ot_case *c) {
  const shape s = r->s;
  const int64_t R = s.B * s.T;
  *c = (ot_case){.kind = OT_OP_ATTENTION,
                 .attributes = attributes_of(s),
                 .types = {.in = {ot_type_matrix(OT_BF16, R, row_width(s))},
                           .out = {[2] = ot_type_vector(OT_F64, 1)}}};
  if (s.documents) c->types.in[1] = ot_type_vector(OT_I32, R);
  if (s.sinks) c->types.in[3] = ot_type_vector(OT_BF16, FIRST_SINK + s.H);
  ot_case_create(c);
  set_all(&c->in[0], r->qkv);
  set_documents(&c->in[1], r->doc_start);
  set_all(&c->in[3], r->sinks);
  run(c);
  ot_case_expect(&c->out[0], r->o, OUTPUT_ERROR, "o");
  ot_case_expect(&c->out[1], r->lse, LSE_ERROR, "lse");
}

static void gradient_is_the_formula(const reference *r, const ot_case *forward) {
  ot_case c = {
      .kind = OT_OP_ATTENTION_GRAD,
      .attributes = attributes_of(r->s),
      .types = {
          .in = {forward->types.out[0], forward->types.in[0],
                 forward->types.in[1], [4] = forward->types.out[0], [5] = forward->types.out[1]}}};
  ot_case_create(&c);
  set_all(&c.in[0], r->doutput);
  set_all(&c.in[1], r->qkv);
  set_documents(&c.in[2], r->doc_start);
  set_all(&c.in[4], r->o);
  set_all(&c.in[5], r->lse);
  run(&c);
  ot_case_expect(&c.out[0], r->dqkv, GRADIENT_ERROR, "dqkv");
  ot_case_destroy(&c);
}

static void whole_sequences_are_the_formula(void **state) {
  (void)state;
  for (int k = 0; k < NUM_SHAPES; k++) {
    if (shapes[k].c > 0) continue;
    reference r = reference_of(shapes[k]);
    ot_case c;
    forward_is_the_formula(&r, &c);
    gradient_is_the_formula(&r, &c);
    ot_case_destroy(&c);
    destroy(&r);
  }
}

// ---- rings ----

// Columns [first, first + width) of the rows that a rank has of a tensor of whole sequences.
typedef struct share {
  const double *whole;
  int64_t row, first, width;  // row: elements of one
} share;

static double *cut(const reference *r, int rank, share x) {
  const int64_t rows = r->s.T / r->s.c;
  const ot_positions places = ot_positions_of(rows, r->s.c, rank);
  double *const values = calloc((size_t)(r->s.B * rows * x.width), sizeof *values);
  for (int64_t i = 0; i < r->s.B * rows; i++) {
    const int64_t from = i / rows * r->s.T + ot_token_position(&places, i % rows);
    add(1, x.whole + from * x.row + x.first, x.width, values + i * x.width);
  }
  return values;
}

static void give(const reference *r, int rank, share x, const ot_tensor *to) {
  double *const values = cut(r, rank, x);
  set_all(to, values);
  free(values);
}

static void expect(const reference *r, int rank, share x, const ot_tensor *found, double error) {
  double *const values = cut(r, rank, x);
  ot_case_expect(found, values, error, "the share of a rank");
  free(values);
}

static share share_of_q(const reference *r, const double *x) {
  return (share){x, row_width(r->s), 0, r->s.H * r->s.D};
}
static share share_of_kv(const reference *r, const double *x) {
  return (share){x, row_width(r->s), r->s.H * r->s.D, 2 * r->s.G * r->s.D};
}
static share whole_rows(const double *x, int64_t width) { return (share){x, width, 0, width}; }

// A block of the ring with its operands from input `first` on: qkv, kv, doc_start.
static ot_case block_of(const reference *r, ot_op_kind kind, int rank, int key_index) {
  const shape s = r->s;
  const int64_t R = s.B * s.T / s.c;
  const int first = kind == OT_OP_ATTENTION_BLOCK ? 0 : 1;
  ot_case c = {.kind = kind, .attributes = attributes_of(s)};
  c.attributes.sequence_length = s.T / s.c;
  c.attributes.context_size = s.c;
  c.attributes.context_index = rank;
  c.attributes.key_index = key_index;
  c.types.in[first] = ot_type_matrix(OT_BF16, R, row_width(s));
  c.types.in[first + 1] = ot_type_matrix(OT_BF16, R, 2 * s.G * s.D);
  if (s.documents) c.types.in[first + 2] = ot_type_vector(OT_I32, R);
  return c;
}

static void give_block(const reference *r, const ot_case *c, int first) {
  const int rank = c->attributes.context_index;
  give(r, rank, whole_rows(r->qkv, row_width(r->s)), &c->in[first]);
  give(r, c->attributes.key_index, share_of_kv(r, r->qkv), &c->in[first + 1]);
  if (!r->s.documents) return;
  const int64_t R = r->s.B * r->s.T;
  double *const starts = calloc((size_t)R, sizeof *starts);
  for (int64_t i = 0; i < R; i++) starts[i] = r->doc_start[i];
  give(r, rank, whole_rows(starts, 1), &c->in[first + 2]);
  free(starts);
}

static void copy_values(const ot_tensor *from, const ot_tensor *to) {
  for (int64_t i = 0; i < ot_type_elements(&to->type); i++) {
    ot_case_set(to, i, ot_case_get(from, i));
  }
}

// All blocks of a rank's queries, in the order of the ring.
static void blocks_are_the_formula(const reference *r, int rank) {
  const shape s = r->s;
  ot_case last = {.kind = OT_OP_COUNT};
  for (int step = 0; step < s.c; step++) {
    ot_case c = block_of(r, OT_OP_ATTENTION_BLOCK, rank, (rank - step + s.c) % s.c);
    for (int i = 0; step > 0 && i < 2; i++) c.types.in[4 + i] = last.types.out[i];
    if (s.sinks && step == 0) c.types.in[6] = ot_type_vector(OT_BF16, FIRST_SINK + s.H);
    ot_case_create(&c);
    give_block(r, &c, 0);
    for (int i = 0; step > 0 && i < 2; i++) copy_values(&last.out[i], &c.in[4 + i]);
    set_all(&c.in[6], r->sinks);
    run(&c);
    if (step > 0) ot_case_destroy(&last);
    last = c;
  }
  expect(r, rank, whole_rows(r->o, s.H * s.D), &last.out[0], OUTPUT_ERROR);
  expect(r, rank, whole_rows(r->lse, s.H), &last.out[1], LSE_ERROR);
  ot_case_destroy(&last);
}

// The gradients of blocks: dq is summed over the keys of all ranks, dkv over their queries.
static void block_gradients_are_the_formula(const reference *r) {
  const shape s = r->s;
  const int64_t R = s.B * s.T / s.c, W = s.H * s.D;
  ot_case keys[MOST_RANKS], queries;
  for (int rank = 0; rank < s.c; rank++) {
    for (int key = 0; key < s.c; key++) {
      ot_case c = block_of(r, OT_OP_ATTENTION_BLOCK_GRAD, rank, key);
      c.types.in[0] = c.types.in[5] = ot_type_matrix(OT_BF16, R, W);
      c.types.in[6] = ot_type_matrix(OT_F32, R, s.H);
      if (key > 0) c.types.in[7] = ot_type_matrix(OT_F32, R, W);
      if (rank > 0) c.types.in[8] = ot_type_matrix(OT_F32, R, 2 * s.G * s.D);
      ot_case_create(&c);
      give(r, rank, whole_rows(r->doutput, W), &c.in[0]);
      give_block(r, &c, 1);
      give(r, rank, whole_rows(r->o, W), &c.in[5]);
      give(r, rank, whole_rows(r->lse, s.H), &c.in[6]);
      if (key > 0) copy_values(&queries.out[0], &c.in[7]);
      if (rank > 0) copy_values(&keys[key].out[1], &c.in[8]);
      run(&c);
      if (rank > 0) ot_case_destroy(&keys[key]);
      queries = keys[key] = c;
    }
    expect(r, rank, share_of_q(r, r->dqkv), &queries.out[0], GRADIENT_ERROR);
  }
  for (int key = 0; key < s.c; key++) {
    expect(r, key, share_of_kv(r, r->dqkv), &keys[key].out[1], GRADIENT_ERROR);
    ot_case_destroy(&keys[key]);
  }
}

static void the_blocks_of_a_ring_are_the_formula(void **state) {
  (void)state;
  for (int k = 0; k < NUM_SHAPES; k++) {
    if (shapes[k].c == 0) continue;
    reference r = reference_of(shapes[k]);
    for (int rank = 0; rank < r.s.c; rank++) blocks_are_the_formula(&r, rank);
    block_gradients_are_the_formula(&r);
    destroy(&r);
  }
}

// Each token sees itself only, so that it sees no key of the other rank.
static void a_block_without_visible_keys_changes_no_bit(void **state) {
  (void)state;
  const int64_t dims[] = {64, 256};
  for (int k = 0; k < 4; k++) {
    const int64_t D = dims[k / 2];
    reference r = reference_of((shape){2, 1, 256, 1, 1, D, D, 1, false, false});
    ot_case c = block_of(&r, OT_OP_ATTENTION_BLOCK, k % 2, 1 - k % 2);
    c.types.in[4] = ot_type_matrix(OT_F32, 128, D);
    c.types.in[5] = ot_type_matrix(OT_F32, 128, 1);
    ot_case_create(&c);
    give_block(&r, &c, 0);
    run(&c);
    for (int i = 0; i < 2; i++) {
      assert_memory_equal(c.out[i].data, c.in[4 + i].data, (size_t)ot_type_bytes(&c.out[i].type));
    }
    ot_case_destroy(&c);
    destroy(&r);
  }
}

// Forward and backward, of whole sequences and of a ring.
static void kernels_for_hopper_run_unless_others_are_chosen(void **state) {
  (void)state;
  static const char *const names[] = {"(hopper_forward_kernel", "(hopper_key_gradient_kernel",
                                      "(hopper_query_gradient_kernel"};
  if (op_device_count_kernels("") <= 0) skip();  // the CPU or a real GPU
  for (int i = 0; i < (int)(sizeof names / sizeof names[0]); i++) {
    assert_true((op_device_count_kernels(names[i]) > 0) == runs_hopper());
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(whole_sequences_are_the_formula),
      cmocka_unit_test(the_blocks_of_a_ring_are_the_formula),
      cmocka_unit_test(a_block_without_visible_keys_changes_no_bit),
      cmocka_unit_test(kernels_for_hopper_run_unless_others_are_chosen),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
