// SPDX-License-Identifier: Apache-2.0
// ctest: device
// run: serial. Weighted targets: each objective of distillation as PyTorch's autograd has it in
// float64 (fixtures/distill_values.py), by the head as one op and by 1 to 3 shards of it; one
// target of weight 1 has the bits of none; equal ids add up; a masked row is nothing.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fixtures/distill_values.h"
#include "ops/head_parts.h"
#include "support/op_case.h"

enum { R = DISTILL_R, C = DISTILL_C, V = DISTILL_V, CHUNK = 4, MAX_SHARDS = 3 };

typedef struct objective {
  const char *name;
  int K;
  double soft_cap;
  const int32_t *ids;               // [R, K]
  const double *weights;            // [R, K]
  const double *results, *dx, *dw;  // loss and data_loss, [R, C], [V, C]
} objective;

#define OBJECTIVE(NAME, CAP)                                                                    \
  {                                                                                             \
#NAME, (int)(sizeof distill_##NAME##_ids / sizeof(int32_t) / R), CAP, distill_##NAME##_ids, \
        distill_##NAME##_weights, distill_##NAME##_results, distill_##NAME##_dx,                \
        distill_##NAME##_dw                                                                     \
  }

static const objective objectives[] = {OBJECTIVE(sampled, 0), OBJECTIVE(capped, 1.5),
                                       OBJECTIVE(mixed, 0),   OBJECTIVE(whole, 0),
                                       OBJECTIVE(top_k, 0),   OBJECTIVE(reverse_kl, 0)};

enum { NUM_OBJECTIVES = sizeof objectives / sizeof objectives[0] };

// head_loss with weighted targets of the objective; K = 0: without.
static ot_case head_case(const objective *o) {
  ot_case c = {
      .kind = OT_OP_HEAD_LOSS,
      .attributes = {.threads = 2, .compute = OT_F64, .chunk_rows = CHUNK, .soft_cap = o->soft_cap},
      .types = {.in = {ot_type_matrix(OT_F64, R, C), ot_type_matrix(OT_F64, V, C),
                       ot_type_vector(OT_I32, R), ot_type_vector(OT_F64, 1)},
                .out = {{0}, ot_type_matrix(OT_F64, V, C), ot_type_vector(OT_F64, 1)}},
      .fixed_inputs = 1u << 3 | 1u << 5};
  if (o->K > 0) {
    c.types.in[4] = ot_type_matrix(OT_I32, R, o->K);
    c.types.in[5] = ot_type_matrix(OT_F32, R, o->K);
    c.types.out[3] = ot_type_vector(OT_F64, 1);
  }
  ot_case_create(&c);
  ot_case_pattern(&c.in[0], 1);
  ot_case_pattern(&c.in[1], 2);
  for (int r = 0; r < R; r++) {
    ot_case_set(&c.in[2], r, r == DISTILL_MASKED ? -1 : distill_targets[r]);
  }
  ot_case_set(&c.in[3], 0, 1.0 / (R - 1));
  for (int i = 0; i < R * o->K; i++) {
    ot_case_set(&c.in[4], i, o->ids[i]);
    ot_case_set(&c.in[5], i, o->weights[i]);
  }
  return c;
}

static void expect(const ot_tensor *found, const double *wanted, const char *whose,
                   const char *what) {
  char name[64];
  snprintf(name, sizeof name, "%s: %s", whose, what);
  ot_case_expect(found, wanted, 1e-12, name);
}

static void objectives_have_the_gradients_of_pytorch(void **state) {
  (void)state;
  for (int i = 0; i < NUM_OBJECTIVES; i++) {
    const objective *const o = &objectives[i];
    ot_case c = head_case(o);
    ot_case_run(&c);
    expect(&c.out[0], o->dx, o->name, "dx");
    expect(&c.out[1], o->dw, o->name, "dw");
    expect(&c.out[2], &o->results[0], o->name, "loss");
    expect(&c.out[3], &o->results[1], o->name, "data_loss");
    ot_case_destroy(&c);
  }
}

static void every_precision_agrees(void **state) {
  (void)state;
  for (int i = 0; i < NUM_OBJECTIVES; i++) {
    ot_case c = head_case(&objectives[i]);
    c.roundings = (R + CHUNK - 1) / CHUNK;
    ot_case_check_precisions(&c, 3e-6, 3e-2);
    ot_case_destroy(&c);
  }
}

// In float64, float32 and bf16, with a soft cap and without.
static void one_target_of_weight_1_has_the_bits_of_none(void **state) {
  (void)state;
  static const double ones[R] = {1, 1, 1, 1, 1, 1};
  static const ot_dtype types[3][2] = {{OT_F64, OT_F64}, {OT_F32, OT_F32}, {OT_F32, OT_BF16}};
  for (int i = 0; i < 6; i++) {
    const double cap = i / 3 > 0 ? 1.5 : 0;
    const ot_dtype *const type = types[i % 3];
    const objective one = {"one", 1, cap, distill_targets, ones, NULL, NULL, NULL};
    const objective none = {"none", 0, cap, NULL, NULL, NULL, NULL, NULL};
    ot_case from[2] = {head_case(&one), head_case(&none)}, c[2];
    for (int k = 0; k < 2; k++) {
      ot_case_clone(&from[k], type[0], type[1], &c[k]);
      ot_case_run(&c[k]);
    }
    for (int k = 0; k < 3; k++) {
      assert_memory_equal(c[0].out[k].data, c[1].out[k].data,
                          (size_t)ot_type_bytes(&c[0].out[k].type));
    }
    // The loss of the data is the same, but not scaled.
    const double data = ot_case_get(&c[0].out[3], 0) / (R - 1);
    assert_true(fabs(data - ot_case_get(&c[0].out[2], 0)) < 1e-12);
    for (int k = 0; k < 2; k++) ot_case_destroy(&c[k]);
    for (int k = 0; k < 2; k++) ot_case_destroy(&from[k]);
  }
}

static void equal_ids_of_a_row_add_up(void **state) {
  (void)state;
  int32_t ids[R * 3];
  double weights[R * 3];
  for (int r = 0; r < R; r++) {
    for (int k = 0; k < 3; k++) {
      ids[3 * r + k] = distill_targets[r];
      weights[3 * r + k] = k == 0 ? 0.5 : k == 1 ? -0.75 : 1.25;  // sums to 1
    }
  }
  const objective three = {"three", 3, 0, ids, weights, NULL, NULL, NULL};
  const objective none = {"none", 0, 0, NULL, NULL, NULL, NULL, NULL};
  ot_case found = head_case(&three), wanted = head_case(&none);
  ot_case_run(&found);
  ot_case_run(&wanted);
  for (int k = 0; k < 3; k++) expect(&found.out[k], wanted.out[k].data, "three", "equal ids");
  ot_case_destroy(&found);
  ot_case_destroy(&wanted);
}

// ---- the ranks of tp ----

typedef struct shards {
  const objective *o;
  const ot_case *whole;
  int k;
  int64_t first[MAX_SHARDS], rows[MAX_SHARDS];  // of w
  ot_case statistics[MAX_SHARDS];
  double all[MAX_SHARDS * CHUNK * OT_HEAD_WEIGHTED];
  double dx[R * C], dw[V * C], loss[MAX_SHARDS], data_loss[MAX_SHARDS];
} shards;

static void copy(const ot_tensor *to, const ot_tensor *from, int64_t first) {
  const int64_t n = ot_type_elements(&to->type);
  for (int64_t e = 0; e < n; e++) ot_case_set(to, e, ot_case_get(from, first + e));
}

static ot_op_attributes attributes_of(const shards *s, int rank, int64_t first, int64_t rows) {
  return (ot_op_attributes){.threads = 2,
                            .compute = OT_F64,
                            .group_size = s->k,
                            .group_index = rank,
                            .first_vocab = s->first[rank],
                            .first_row = first,
                            .chunk_rows = rows,
                            .soft_cap = s->o->soft_cap};
}

static void run_statistics(shards *s, int rank, int64_t first, int64_t rows) {
  const ot_case *const whole = s->whole;
  ot_case *const c = &s->statistics[rank];
  *c = (ot_case){.kind = OT_OP_HEAD_STATISTICS,
                 .attributes = attributes_of(s, rank, first, rows),
                 .types = {.in = {whole->types.in[0], ot_type_matrix(OT_F64, s->rows[rank], C),
                                  whole->types.in[2], whole->types.in[4], whole->types.in[5]}}};
  ot_case_create(c);
  copy(&c->in[0], &whole->in[0], 0);
  copy(&c->in[1], &whole->in[1], s->first[rank] * C);
  copy(&c->in[2], &whole->in[2], 0);
  copy(&c->in[3], &whole->in[4], 0);
  copy(&c->in[4], &whole->in[5], 0);
  ot_case_run(c);
  memcpy(s->all + rank * rows * OT_HEAD_WEIGHTED, c->out[1].data,
         (size_t)ot_type_bytes(&c->types.out[1]));
}

// dlogits of the chunk, added to the gradients by loops.
static void run_dlogits(shards *s, int rank, int64_t first, int64_t rows) {
  const ot_case *const whole = s->whole, *const before = &s->statistics[rank];
  ot_case c = {
      .kind = OT_OP_HEAD_DLOGITS,
      .attributes = attributes_of(s, rank, first, rows),
      .types = {.in = {before->types.out[0], ot_type_matrix(OT_F64, s->k * rows, OT_HEAD_WEIGHTED),
                       whole->types.in[2], whole->types.in[3], whole->types.in[4],
                       whole->types.in[5], before->types.out[2]},
                .out = {{0}, ot_type_vector(OT_F64, 1), ot_type_vector(OT_F64, 1)}}};
  ot_case_create(&c);
  copy(&c.in[0], &before->out[0], 0);
  memcpy(c.in[1].data, s->all, (size_t)ot_type_bytes(&c.types.in[1]));
  for (int i = 2; i < 6; i++) copy(&c.in[i], &whole->in[i], 0);
  copy(&c.in[6], &before->out[2], 0);
  ot_case_run(&c);
  s->loss[rank] += ot_case_get(&c.out[1], 0);
  s->data_loss[rank] += ot_case_get(&c.out[2], 0);
  for (int64_t i = 0; i < rows * s->rows[rank]; i++) {
    const int64_t row = first + i / s->rows[rank], v = s->first[rank] + i % s->rows[rank];
    const double d = ot_case_get(&c.out[0], i);
    for (int j = 0; j < C; j++) {
      s->dx[row * C + j] += d * ot_case_get(&whole->in[1], v * C + j);
      s->dw[v * C + j] += d * ot_case_get(&whole->in[0], row * C + j);
    }
  }
  ot_case_destroy(&c);
}

static void shards_have_the_gradients_of_pytorch(void **state) {
  (void)state;
  for (int n = 0; n < NUM_OBJECTIVES * MAX_SHARDS; n++) {
    const objective *const o = &objectives[n / MAX_SHARDS];
    ot_case whole = head_case(o);
    ot_case_run(&whole);
    shards s = {.o = o, .whole = &whole, .k = n % MAX_SHARDS + 1};
    for (int i = 0; i < s.k; i++) {
      s.first[i] = V * i / s.k;
      s.rows[i] = V * (i + 1) / s.k - s.first[i];
    }
    for (int64_t first = 0; first < R; first += CHUNK) {
      const int64_t rows = R - first < CHUNK ? R - first : CHUNK;
      for (int i = 0; i < s.k; i++) run_statistics(&s, i, first, rows);
      for (int i = 0; i < s.k; i++) run_dlogits(&s, i, first, rows);
      for (int i = 0; i < s.k; i++) ot_case_destroy(&s.statistics[i]);
    }
    expect(&whole.out[0], s.dx, o->name, "dx of shards");
    expect(&whole.out[1], s.dw, o->name, "dw of shards");
    for (int i = 0; i < s.k; i++) {
      expect(&whole.out[2], &s.loss[i], o->name, "loss of shards");
      expect(&whole.out[3], &s.data_loss[i], o->name, "data_loss of shards");
    }
    ot_case_destroy(&whole);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(objectives_have_the_gradients_of_pytorch),
      cmocka_unit_test(every_precision_agrees),
      cmocka_unit_test(one_target_of_weight_1_has_the_bits_of_none),
      cmocka_unit_test(equal_ids_of_a_row_add_up),
      cmocka_unit_test(shards_have_the_gradients_of_pytorch),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
