// SPDX-License-Identifier: Apache-2.0
// ctest: device full
// run: serial. Attention in the blocks of a ring: all ranks of c = 1, 2, 4 in one process, blocks
// in ring order, against the same whole sequences on one rank in float64; costs against pairs
// counted one by one.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "ops/attention.h"
#include "support/op_case.h"

enum { MOST_RANKS = 4, FIRST_HEAD = 5 };

typedef struct shape {
  int c;  // ranks
  int64_t B, T, H, G, D, window;
  bool documents;
  double dropout, soft_cap;
} shape;

static const shape shapes[] = {
    {1, 2, 70, 3, 1, 5, 0, true, 0, 0},        {2, 1, 4, 1, 1, 3, 0, false, 0, 0},
    {2, 2, 36, 4, 2, 8, 0, true, 0, 0},        {2, 1, 300, 2, 1, 16, 0, false, 0, 0},
    {2, 2, 260, 2, 2, 33, 40, true, 0, 0},     {2, 1, 1040, 1, 1, 8, 700, true, 0, 0},
    {2, 2, 140, 6, 2, 12, 0, true, 0.25, 0},   {4, 1, 8, 2, 1, 4, 0, false, 0, 0},
    {4, 2, 56, 3, 3, 5, 0, true, 0, 0},        {4, 1, 520, 4, 2, 16, 0, true, 0, 0},
    {4, 2, 280, 2, 1, 24, 9, false, 0, 0},     {4, 1, 280, 2, 1, 8, 1, false, 0, 0},
    {4, 1, 312, 4, 1, 20, 100, true, 0.5, 0},  {4, 1, 1040, 2, 1, 64, 0, false, 0.1, 0},
    {4, 2, 280, 2, 1, 8, 90, true, 0.25, 0.6},
};

enum { NUM_SHAPES = sizeof shapes / sizeof shapes[0] };

static ot_op_attributes attributes_of(shape s, ot_dtype compute) {
  return (ot_op_attributes){.threads = 2,
                            .compute = compute,
                            .sequence_length = s.T,
                            .num_heads = s.H,
                            .num_kv_heads = s.G,
                            .head_dim = s.D,
                            .window = s.window,
                            .scale = 0.5,
                            .soft_cap = s.soft_cap,
                            .dropout = s.dropout,
                            .seed = 11,
                            .rng_stream = 5,
                            .first_head = FIRST_HEAD};
}

// ---- reference: one rank in float64 ----

// Documents of 13, 26, 39, ... tokens, shifted from sequence to sequence.
static void fill_documents(const ot_tensor *doc_start, shape s) {
  for (int64_t b = 0; b < s.B; b++) {
    int64_t start = 0;
    int64_t length = 13 + b;
    for (int64_t t = 0; t < s.T; t++) {
      if (t == start + length) {
        start = t;
        length += 13;
      }
      ot_case_set(doc_start, b * s.T + t, (double)start);
    }
  }
}

static void copy_values(const ot_tensor *from, const ot_tensor *to) {
  assert_int_equal(ot_type_elements(&from->type), ot_type_elements(&to->type));
  for (int64_t i = 0; i < ot_type_elements(&to->type); i++) {
    ot_case_set(to, i, ot_case_get(from, i));
  }
}

static ot_case whole_case(shape s) {
  const int64_t R = s.B * s.T;
  ot_case c = {
      .kind = OT_OP_ATTENTION,
      .attributes = attributes_of(s, OT_F64),
      .types = {.in = {ot_type_matrix(OT_F64, R, (s.H + 2 * s.G) * s.D), [2] = ot_type_vector(
                                                                             OT_I64, s.B)},
                .out = {[2] = ot_type_vector(OT_F64, 1)}}};
  if (s.documents) c.types.in[1] = ot_type_vector(OT_I32, R);
  ot_case_create(&c);
  if (s.documents) fill_documents(&c.in[1], s);
  for (int64_t b = 0; b < s.B; b++) ot_case_set(&c.in[2], b, 1000 - 7 * (double)b);
  ot_case_set(&c.out[2], 0, -INFINITY);
  ot_case_run(&c);
  return c;
}

static ot_case whole_grad_case(const ot_case *f) {
  ot_case c = {.kind = OT_OP_ATTENTION_GRAD,
               .attributes = f->attributes,
               .types = {.in = {f->types.out[0], f->types.in[0], f->types.in[1], f->types.in[2],
                                f->types.out[0], f->types.out[1]}}};
  ot_case_create(&c);
  for (int i = 0; i < 3; i++) copy_values(&f->in[i], &c.in[1 + i]);
  for (int i = 0; i < 2; i++) copy_values(&f->out[i], &c.in[4 + i]);
  ot_case_run(&c);
  return c;
}

// ---- the ring ----

typedef struct ring {
  shape s;
  ot_dtype compute, storage;
  ot_case whole, whole_grad;
  ot_case slice[MOST_RANKS];              // qkv and kv of each rank
  ot_case block[MOST_RANKS][MOST_RANKS];  // [rank][step]
  ot_case grad[MOST_RANKS][MOST_RANKS];
} ring;

// Position of row i of a rank's shard in the whole sequence.
static int64_t place_of(shape s, int rank, int64_t i) {
  const int64_t half = s.T / s.c / 2;
  if (s.c == 1) return i;
  return i < half ? rank * half + i : (2 * s.c - 1 - rank) * half + i - half;
}

// Row of the whole [B * T, ...] that equals row `row` of a rank's [B * t, ...].
static int64_t whole_row(shape s, int rank, int64_t row) {
  const int64_t t = s.T / s.c;
  return row / t * s.T + place_of(s, rank, row % t);
}

// Copies the rows of `rank` out of the whole tensor.
static void cut(const ring *g, const ot_tensor *whole, int rank, const ot_tensor *piece) {
  const int64_t rows = piece->type.rank > 0 ? piece->type.dim[0] : 0;
  const int64_t width = rows > 0 ? ot_type_elements(&piece->type) / rows : 0;
  for (int64_t k = 0; k < rows * width; k++) {
    const int64_t from = whole_row(g->s, rank, k / width) * width + k % width;
    ot_case_set(piece, k, ot_case_get(whole, from));
  }
}

static void expect_piece(const ring *g, int rank, const ot_tensor *found, const ot_tensor *whole,
                         double tolerance) {
  const int64_t rows = found->type.dim[0];
  const int64_t width = ot_type_elements(&found->type) / rows;
  double largest = 1e-30;
  for (int64_t k = 0; k < ot_type_elements(&whole->type); k++) {
    largest = fmax(largest, fabs(ot_case_get(whole, k)));
  }
  for (int64_t k = 0; k < rows * width; k++) {
    const double expected =
        ot_case_get(whole, whole_row(g->s, rank, k / width) * width + k % width);
    const double value = ot_case_get(found, k);
    if (fabs(value - expected) <= tolerance * largest) continue;
    fail_msg("T %d on %d ranks, rank %d, element %d: %.17g, expected %.17g", (int)g->s.T, g->s.c,
             rank, (int)k, value, expected);
  }
}

static ot_op_attributes block_attributes(const ring *g, int rank, int key_index) {
  ot_op_attributes a = attributes_of(g->s, g->compute);
  a.sequence_length = g->s.T / g->s.c;
  a.context_size = g->s.c;
  a.context_index = rank;
  a.key_index = key_index;
  return a;
}

static void slice_pieces(ring *g) {
  const int64_t R = g->s.B * g->s.T / g->s.c;
  for (int rank = 0; rank < g->s.c; rank++) {
    ot_case *const c = &g->slice[rank];
    *c =
        (ot_case){.kind = OT_OP_KV_SLICE,
                  .attributes = block_attributes(g, rank, rank),
                  .types = {.in = {ot_type_matrix(g->storage, R, (g->s.H + 2 * g->s.G) * g->s.D)}}};
    ot_case_create(c);
    cut(g, &g->whole.in[0], rank, &c->in[0]);
    ot_case_run(c);
  }
}

// Sets inputs from `first` on: qkv, kv, doc_start and sample_ids.
static void give_operands(const ring *g, ot_case *c, int first) {
  const int rank = c->attributes.context_index;
  copy_values(&g->slice[rank].in[0], &c->in[first]);
  copy_values(&g->slice[c->attributes.key_index].out[0], &c->in[first + 1]);
  cut(g, &g->whole.in[1], rank, &c->in[first + 2]);
  copy_values(&g->whole.in[2], &c->in[first + 3]);
}

static void set_types(const ring *g, ot_case *c, int first) {
  const int64_t R = g->s.B * g->s.T / g->s.c;
  c->types.in[first] = g->slice[0].types.in[0];
  c->types.in[first + 1] = g->slice[0].types.out[0];
  if (g->s.documents) c->types.in[first + 2] = ot_type_vector(OT_I32, R);
  c->types.in[first + 3] = ot_type_vector(OT_I64, g->s.B);
}

// A block after `before`, which may be null.
static void run_block(const ring *g, int rank, int key_index, const ot_case *before, ot_case *c) {
  *c = (ot_case){.kind = OT_OP_ATTENTION_BLOCK,
                 .attributes = block_attributes(g, rank, key_index),
                 .statistic_inputs = 1u << 4 | 1u << 5,
                 .types = {.out = {[2] = ot_type_vector(OT_F64, 1)}}};
  set_types(g, c, 0);
  for (int i = 0; before && i < 2; i++) c->types.in[4 + i] = before->types.out[i];
  ot_case_create(c);
  give_operands(g, c, 0);
  for (int i = 0; before && i < 2; i++) copy_values(&before->out[i], &c->in[4 + i]);
  ot_case_set(&c->out[2], 0, before ? ot_case_get(&before->out[2], 0) : -INFINITY);
  ot_case_run(c);
}

// Index of the shard that a rank holds at a step of the ring.
static int held_at(const ring *g, int rank, int step) { return (rank - step + g->s.c) % g->s.c; }

static void run_forward(ring *g) {
  for (int rank = 0; rank < g->s.c; rank++) {
    for (int step = 0; step < g->s.c; step++) {
      run_block(g, rank, held_at(g, rank, step), step > 0 ? &g->block[rank][step - 1] : NULL,
                &g->block[rank][step]);
    }
  }
}

// Step by step: dq stays on its rank, dkv moves to the next rank with its shard.
static void run_backward(ring *g) {
  const int last = g->s.c - 1;
  for (int step = 0; step < g->s.c; step++) {
    for (int rank = 0; rank < g->s.c; rank++) {
      ot_case *const c = &g->grad[rank][step];
      *c = (ot_case){.kind = OT_OP_ATTENTION_BLOCK_GRAD,
                     .attributes = block_attributes(g, rank, held_at(g, rank, step)),
                     .statistic_inputs = 1u << 6 | 1u << 7 | 1u << 8};
      const ot_case *const f = &g->block[rank][last];
      const ot_case *const here = step > 0 ? &g->grad[rank][step - 1] : NULL;
      const ot_case *const sender = step > 0 ? &g->grad[(rank + last) % g->s.c][step - 1] : NULL;
      set_types(g, c, 1);
      c->types.in[0] = f->types.out[0];
      c->types.in[0].dtype = g->storage;
      c->types.in[5] = c->types.in[0];
      c->types.in[6] = f->types.out[1];
      if (here) c->types.in[7] = here->types.out[0];
      if (here) c->types.in[8] = here->types.out[1];
      ot_case_create(c);
      give_operands(g, c, 1);
      cut(g, &g->whole_grad.in[0], rank, &c->in[0]);
      for (int i = 0; i < 2; i++) copy_values(&f->out[i], &c->in[5 + i]);
      if (here) copy_values(&here->out[0], &c->in[7]);
      if (here) copy_values(&sender->out[1], &c->in[8]);
      ot_case_run(c);
    }
  }
}

static void destroy_ring(ring *g) {
  for (int rank = 0; rank < g->s.c; rank++) {
    ot_case_destroy(&g->slice[rank]);
    for (int step = 0; step < g->s.c; step++) {
      ot_case_destroy(&g->block[rank][step]);
      ot_case_destroy(&g->grad[rank][step]);
    }
  }
  ot_case_destroy(&g->whole);
  ot_case_destroy(&g->whole_grad);
}

// Runs the whole on one rank, and the shards on every rank.
static ring pieces_of(shape s, ot_dtype compute, ot_dtype storage) {
  ring g = {.s = s, .compute = compute, .storage = storage, .whole = whole_case(s)};
  slice_pieces(&g);
  return g;
}

static ring ring_of(shape s, ot_dtype compute, ot_dtype storage) {
  ring g = pieces_of(s, compute, storage);
  g.whole_grad = whole_grad_case(&g.whole);
  run_forward(&g);
  run_backward(&g);
  return g;
}

static void expect_forward(const ring *g, double tolerance) {
  double largest = -INFINITY;
  for (int rank = 0; rank < g->s.c; rank++) {
    const ot_case *const c = &g->block[rank][g->s.c - 1];
    expect_piece(g, rank, &c->out[0], &g->whole.out[0], tolerance);
    expect_piece(g, rank, &c->out[1], &g->whole.out[1], tolerance);
    largest = fmax(largest, ot_case_get(&c->out[2], 0));
  }
  ot_tensor found = {.data = &largest, .type = ot_type_vector(OT_F64, 1)};
  ot_case_expect(&found, g->whole.out[2].data, tolerance, "max_logit");
}

static void expect_backward(const ring *g, double tolerance) {
  const int last = g->s.c - 1;
  for (int rank = 0; rank < g->s.c; rank++) {
    const ot_case *const at_home = &g->grad[(rank + last) % g->s.c][last];
    ot_case join = {.kind = OT_OP_QKV_JOIN,
                    .attributes = block_attributes(g, rank, rank),
                    .types = {.in = {g->grad[rank][last].types.out[0], at_home->types.out[1]},
                              .out = {g->slice[rank].types.in[0]}}};
    assert_int_equal(at_home->attributes.key_index, rank);
    ot_case_create(&join);
    assert_int_equal(join.types.out[0].dtype, g->storage);
    copy_values(&g->grad[rank][last].out[0], &join.in[0]);
    copy_values(&at_home->out[1], &join.in[1]);
    ot_case_run(&join);
    expect_piece(g, rank, &join.out[0], &g->whole_grad.out[0], tolerance);
    ot_case_destroy(&join);
  }
}

// ---- tests ----

static void a_ring_of_blocks_equals_one_rank(void **state) {
  (void)state;
  for (int k = 0; k < NUM_SHAPES; k++) {
    ring g = ring_of(shapes[k], OT_F64, OT_F64);
    expect_forward(&g, 1e-13);
    expect_backward(&g, 1e-13);
    destroy_ring(&g);
  }
}

static void a_bf16_ring_is_as_accurate_as_one_rank(void **state) {
  (void)state;
  const shape few[] = {shapes[2], shapes[6], shapes[9], shapes[12]};
  for (int k = 0; k < 4; k++) {
    ring g = ring_of(few[k], OT_F32, OT_F32);
    expect_forward(&g, 2e-6);
    expect_backward(&g, 3e-6);
    destroy_ring(&g);
    g = ring_of(few[k], OT_F32, OT_BF16);
    expect_forward(&g, 2e-6);  // o stays in float32, and the inputs are exact in bf16
    expect_backward(&g, 3e-2);
    destroy_ring(&g);
  }
}

static void blocks_give_the_same_bits_on_any_number_of_threads(void **state) {
  (void)state;
  const shape few[] = {shapes[6], shapes[8]};
  for (int k = 0; k < 2; k++) {
    ring g = ring_of(few[k], OT_F64, OT_F64);
    for (int rank = 0; rank < g.s.c; rank += g.s.c - 1) {
      for (int step = 0; step < 2; step++) {
        ot_case_check_precisions(&g.block[rank][step], 2e-6, 8e-3);
        ot_case_check_precisions(&g.grad[rank][step], 3e-6, 3e-2);
      }
    }
    destroy_ring(&g);
  }
}

// Unlike in the ring, visible blocks come last, after blocks without visible keys.
static void the_order_of_blocks_does_not_matter(void **state) {
  (void)state;
  for (int k = 0; k < NUM_SHAPES; k++) {
    ring g = pieces_of(shapes[k], OT_F64, OT_F64);
    const int last = g.s.c - 1;
    for (int rank = 0; rank < g.s.c; rank++) {
      for (int step = 0; step < g.s.c; step++) {
        run_block(&g, rank, held_at(&g, rank, last - step),
                  step > 0 ? &g.block[rank][step - 1] : NULL, &g.block[rank][step]);
      }
    }
    expect_forward(&g, 1e-13);
    destroy_ring(&g);
  }
}

static void expect_same_outputs(const ot_case *found, const ot_case *expected) {
  for (int i = 0; i < 3; i++) {
    assert_memory_equal(found->out[i].data, expected->out[i].data,
                        (size_t)ot_type_bytes(&expected->out[i].type));
  }
}

static void expect_all(const ot_tensor *tensor, double value) {
  for (int64_t i = 0; i < ot_type_elements(&tensor->type); i++) {
    assert_true(ot_case_get(tensor, i) == value);
  }
}

// Runs the other rank's hidden block: alone, after the local block, and before it.
static void hide_other_block(const ring *g, int rank) {
  ot_case hidden, own, after, before;
  run_block(g, rank, 1 - rank, NULL, &hidden);
  expect_all(&hidden.out[0], 0);
  expect_all(&hidden.out[1], -INFINITY);
  expect_all(&hidden.out[2], -INFINITY);
  run_block(g, rank, rank, NULL, &own);
  run_block(g, rank, 1 - rank, &own, &after);
  run_block(g, rank, rank, &hidden, &before);
  expect_same_outputs(&after, &own);
  expect_same_outputs(&before, &own);
  ot_case_destroy(&hidden);
  ot_case_destroy(&own);
  ot_case_destroy(&after);
  ot_case_destroy(&before);
}

static void a_block_without_visible_keys_changes_no_bit(void **state) {
  (void)state;
  for (int documents = 0; documents < 2; documents++) {
    const shape s = {2, 1, 280, 2, 1, 8, documents ? 0 : 1, documents, 0, 0};
    ring g = {.s = s, .compute = OT_F32, .storage = OT_F32, .whole = whole_case(s)};
    for (int64_t t = 0; documents && t < s.T; t++) ot_case_set(&g.whole.in[1], t, (double)t);
    slice_pieces(&g);
    for (int rank = 0; rank < 2; rank++) hide_other_block(&g, rank);
    destroy_ring(&g);
  }
}

static void a_block_on_one_rank_has_the_bits_of_attention(void **state) {
  (void)state;
  ring g = ring_of(shapes[0], OT_F64, OT_F64);
  expect_same_outputs(&g.block[0][0], &g.whole);
  destroy_ring(&g);
}

// ---- costs ----

static double pairs_counted(shape s, int rank, int key_index) {
  double pairs = 0;
  for (int64_t i = 0; i < s.T / s.c; i++) {
    for (int64_t j = 0; j < s.T / s.c; j++) {
      const int64_t apart = place_of(s, rank, i) - place_of(s, key_index, j);
      pairs += apart >= 0 && (s.window == 0 || apart < s.window);
    }
  }
  return pairs;
}

static ot_cost cost_of(shape s, int rank, int key_index, bool backward) {
  const ring g = {.s = s, .compute = OT_F32, .storage = OT_F32};
  const int64_t R = s.B * s.T / s.c;
  const ot_tensor_type qkv = ot_type_matrix(OT_BF16, R, (s.H + 2 * s.G) * s.D);
  const ot_tensor_type kv = ot_type_matrix(OT_BF16, R, 2 * s.G * s.D);
  const ot_tensor_type o = ot_type_matrix(OT_BF16, R, s.H * s.D);
  const ot_tensor_type lse = ot_type_matrix(OT_F32, R, s.H);
  const ot_op_attributes a = block_attributes(&g, rank, key_index);
  ot_op_types types = {.in = {qkv, kv}};
  if (backward) types = (ot_op_types){.in = {o, qkv, kv, {0}, {0}, o, lse}};
  const ot_op_kind kind = backward ? OT_OP_ATTENTION_BLOCK_GRAD : OT_OP_ATTENTION_BLOCK;
  assert_int_equal(ot_op_infer(kind, &a, &types), OT_OK);
  return ot_op_cost(kind, &a, &types);
}

static void costs_count_the_pairs_that_a_block_sees(void **state) {
  (void)state;
  const int64_t windows[] = {0, 1, 3, 4, 5, 8, 11, 24, 31, 32, 100};
  for (int k = 0; k < 11; k++) {
    shape s = {4, 3, 32, 4, 2, 8, windows[k], false, 0, 0};
    for (int at = 0; at < 16; at++) {
      const double products = 2 * 3 * 4 * 8 * pairs_counted(s, at / 4, at % 4);
      assert_true(cost_of(s, at / 4, at % 4, false).matrix_flops == 2 * products);
      const ot_cost backward = cost_of(s, at / 4, at % 4, true);
      assert_true(backward.matrix_flops == 5 * products);
      assert_true(backward.repeated_flops == products);
    }
    s.c = 1;
    const double products = 2 * 3 * 4 * 8 * pairs_counted(s, 0, 0);
    assert_true(cost_of(s, 0, 0, false).matrix_flops == 2 * products);
  }
}

// Pairs of one head in the key tiles from the first to the last that a query tile sees, minus the
// visible pairs.
static double hidden_pairs_counted(shape s, int rank, int key_index) {
  const int64_t rows = s.T / s.c;
  int64_t held = 0;
  for (int64_t first = 0; first < rows; first += OT_ATTENTION_QUERIES) {
    int64_t n = 0, least = rows, most = -1;
    for (int64_t i = first; i < first + OT_ATTENTION_QUERIES && i < rows; i++, n++) {
      for (int64_t j = 0; j < rows; j++) {
        const int64_t apart = place_of(s, rank, i) - place_of(s, key_index, j);
        if (apart < 0 || (s.window > 0 && apart >= s.window)) continue;
        const int64_t tile = j / OT_ATTENTION_KEYS;
        least = tile < least ? tile : least;
        most = tile > most ? tile : most;
      }
    }
    for (int64_t tile = least; tile <= most; tile++) {
      const int64_t left = rows - tile * OT_ATTENTION_KEYS;
      held += n * (left < OT_ATTENTION_KEYS ? left : OT_ATTENTION_KEYS);
    }
  }
  return (double)held - pairs_counted(s, rank, key_index);
}

static void costs_include_hidden_pairs_in_tiles(void **state) {
  (void)state;
  const int64_t windows[] = {0, 1, 70, 130, 300};
  for (int k = 0; k < 5; k++) {
    for (int c = 2; c <= 4; c += 2) {
      const shape s = {c, 3, 1000, 4, 2, 8, windows[k], false, 0, 0};
      for (int at = 0; at < c * c; at++) {
        const double hidden = hidden_pairs_counted(s, at / c, at % c);
        const double padded = cost_of(s, at / c, at % c, false).padded_flops;
        assert_true(padded == 4 * 3 * 4 * 8 * hidden);
        assert_true(cost_of(s, at / c, at % c, true).padded_flops == 10 * 3 * 4 * 8 * hidden);
      }
    }
  }
}

static void every_rank_has_the_same_work_in_every_step(void **state) {
  (void)state;
  const shape s = {8, 1, 8192, 4, 2, 64, 0, false, 0, 0};
  double all = 0;
  for (int step = 0; step < s.c; step++) {
    const double first = cost_of(s, 0, (8 - step) % 8, false).matrix_flops;
    for (int rank = 0; rank < s.c; rank++) {
      const double work = cost_of(s, rank, (rank - step + 8) % 8, false).matrix_flops;
      assert_true(work == first);
      all += work;
    }
  }
  assert_true(all == 4.0 * 64 * 4 * (8192.0 * 8193 / 2));
}

static void costs_exclude_unread_keys_in_qkv(void **state) {
  (void)state;
  const shape s = {2, 1, 8, 4, 2, 8, 0, false, 0, 0};
  const ot_cost cost = cost_of(s, 0, 1, false);
  assert_true(cost.bytes_read == 4 * (4 + 4) * 8 * 2);
  assert_true(cost.bytes_written == 4 * (32 * 4 + 4 * 4));
}

// ---- rejected inputs ----

static void rejects_invalid_ring_blocks(void **state) {
  (void)state;
  const ring g = {.s = {2, 1, 8, 2, 1, 4, 0, false, 0, 0}, .compute = OT_F32};
  const ot_tensor_type qkv = ot_type_matrix(OT_F32, 4, 16);
  ot_op_types types = {.in = {qkv, ot_type_matrix(OT_F32, 4, 8)}};
  ot_op_attributes a = block_attributes(&g, 0, 2);
  assert_int_equal(ot_op_infer(OT_OP_ATTENTION_BLOCK, &a, &types), OT_BUG);
  assert_string_equal(ot_fail_message(),
                      "attention_block: queries of block 0 and keys of block 2, not all in [0, 2)");
  a.key_index = 1;
  types.in[5] = ot_type_matrix(OT_F32, 4, 2);
  assert_int_equal(ot_op_infer(OT_OP_ATTENTION_BLOCK, &a, &types), OT_BUG);
  assert_string_equal(
      ot_fail_message(),
      "attention_block: one of o_before and lse_before is absent, must be both or neither");
  types.in[5] = (ot_tensor_type){0};
  types.in[0].dim[0] = types.in[1].dim[0] = a.sequence_length = 5;
  assert_int_equal(ot_op_infer(OT_OP_ATTENTION_BLOCK, &a, &types), OT_BUG);
  assert_string_equal(ot_fail_message(),
                      "attention_block: 5 tokens of a sequence on each of 2 ranks, must be even");
  a.sequence_length = 1 << 24;
  types.in[0].dim[0] = types.in[1].dim[0] = 1 << 24;
  types.in[3] = ot_type_vector(OT_I64, 1);
  assert_int_equal(ot_op_infer(OT_OP_ATTENTION_BLOCK, &a, &types), OT_OK);
  a.dropout = 0.1;
  assert_int_equal(ot_op_infer(OT_OP_ATTENTION_BLOCK, &a, &types), OT_BUG);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_ring_of_blocks_equals_one_rank),
      cmocka_unit_test(a_bf16_ring_is_as_accurate_as_one_rank),
      cmocka_unit_test(blocks_give_the_same_bits_on_any_number_of_threads),
      cmocka_unit_test(the_order_of_blocks_does_not_matter),
      cmocka_unit_test(a_block_without_visible_keys_changes_no_bit),
      cmocka_unit_test(a_block_on_one_rank_has_the_bits_of_attention),
      cmocka_unit_test(costs_count_the_pairs_that_a_block_sees),
      cmocka_unit_test(every_rank_has_the_same_work_in_every_step),
      cmocka_unit_test(costs_include_hidden_pairs_in_tiles),
      cmocka_unit_test(costs_exclude_unread_keys_in_qkv),
      cmocka_unit_test(rejects_invalid_ring_blocks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
