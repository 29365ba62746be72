// SPDX-License-Identifier: Apache-2.0
// run: serial. A source whose law is known: a Markov chain, with a teacher that knows it and a
// student with a free logit for each pair of tokens, trained by the operators of the head alone. On
// the most probable ids the student is too sure by one over the kept mass; on draws it is
// calibrated, and it needs far fewer tokens than on the text.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "ops/head_draw.h"
#include "support/op_case.h"

enum { STATES = 4, V = 24, TOP = 12, MOST_ROWS = 2048 };

// How many tokens are likelier than `v` after `state`.
static int place(int state, int v) { return (v * 7 + state * 5) % V; }

static bool is_top(int state, int v) { return place(state, v) < TOP; }

// Probabilities fall as 1/3, 1/4, ...
static double chance(int state, int v) {
  double sum = 0;
  for (int i = 0; i < V; i++) sum += 1.0 / (3 + i);
  return 1.0 / (3 + place(state, v)) / sum;
}

// A student with logits w [V, STATES] of its own, and the head of its teacher; both read rows whose
// x is a state.
typedef struct lesson {
  int rows;
  int64_t ids, draws;  // of the teacher; ids 0: the text teaches
  uint64_t seed;
  ot_case teacher, student;
} lesson;

static int state_of(int64_t row) { return (int)(row % STATES); }

static void lesson_create(lesson *l) {
  const int64_t R = l->rows, K = l->ids > 0 ? l->ids : 1;
  const ot_tensor_type x = ot_type_matrix(OT_F64, R, STATES);
  const ot_tensor_type w = ot_type_matrix(OT_F64, V, STATES);
  l->teacher =
      (ot_case){.kind = OT_OP_HEAD_DRAW,
                .attributes = {.threads = 1, .compute = OT_F64, .draw_ids = K},
                .types = {.in = {x, w, ot_type_vector(OT_I32, R), ot_type_vector(OT_I64, R)}}};
  l->teacher.attributes.draws = l->draws;
  l->student =
      (ot_case){.kind = OT_OP_HEAD_LOSS,
                .attributes = {.threads = 1, .compute = OT_F64},
                .types = {.in = {x, w, ot_type_vector(OT_I32, R), ot_type_vector(OT_F64, 1),
                                 ot_type_matrix(OT_I32, R, K), ot_type_matrix(OT_F32, R, K)},
                          .out = {{0}, w, ot_type_vector(OT_F64, 1), ot_type_vector(OT_F64, 1)}},
                .fixed_inputs = 1u << 3 | 1u << 5};
  ot_case_create(&l->teacher);
  ot_case_create(&l->student);
  for (int64_t i = 0; i < R * STATES; i++) {
    const double is_state = i % STATES == state_of(i / STATES);
    ot_case_set(&l->teacher.in[0], i, is_state);
    ot_case_set(&l->student.in[0], i, is_state);
  }
  for (int64_t i = 0; i < V * STATES; i++) {
    ot_case_set(&l->teacher.in[1], i, log(chance((int)(i % STATES), (int)(i / STATES))));
    ot_case_set(&l->student.in[1], i, 0);
  }
  ot_case_set(&l->student.in[3], 0, (double)STATES / (double)R);
}

static void lesson_destroy(lesson *l) {
  ot_case_destroy(&l->teacher);
  ot_case_destroy(&l->student);
}

// The text: the token after each row's state.
static int draw_token(uint64_t seed, int64_t step, int64_t row) {
  double left = ot_rng_uniform(seed, 3, (uint64_t)(step * MOST_ROWS + row));
  for (int v = 0; v < V - 1; v++) {
    left -= chance(state_of(row), v);
    if (left < 0) return v;
  }
  return V - 1;
}

// One step of gradient descent.
static void learn(lesson *l, int64_t step, double rate) {
  ot_case *const student = &l->student;
  const int64_t R = l->rows;
  for (int64_t r = 0; r < R; r++) {
    const int token = draw_token(l->seed, step, r);
    ot_case_set(&l->teacher.in[2], r, token);
    ot_case_set(&student->in[2], r, token);
    ((int64_t *)l->teacher.in[3].data)[r] = (int64_t)ot_rng_key(l->seed, (uint64_t)(step * R + r));
    if (l->ids > 0) continue;
    ot_case_set(&student->in[4], r, token);
    ot_case_set(&student->in[5], r, 1);
  }
  if (l->ids > 0) {
    ot_case_run(&l->teacher);
    for (int i = 0; i < 2; i++) {
      memcpy(student->in[4 + i].data, l->teacher.out[i].data, (size_t)(R * l->ids * 4));
    }
  }
  memset(student->out[1].data, 0, (size_t)ot_type_bytes(&student->out[1].type));
  ot_case_run(student);
  for (int64_t i = 0; i < V * STATES; i++) {
    const double w = ot_case_get(&student->in[1], i);
    ot_case_set(&student->in[1], i, w - rate * ot_case_get(&student->out[1], i));
  }
}

static void read_law(const lesson *l, double p[STATES][V]) {
  for (int s = 0; s < STATES; s++) {
    double sum = 0;
    for (int v = 0; v < V; v++)
      sum += p[s][v] = exp(ot_case_get(&l->student.in[1], v * STATES + s));
    for (int v = 0; v < V; v++) p[s][v] /= sum;
  }
}

// ---- calibration ----

// The student's law, mean over the second half of its steps.
static void teach(int64_t ids, int64_t draws, double p[STATES][V]) {
  enum { STEPS = 240 };
  lesson l = {.rows = MOST_ROWS, .ids = ids, .draws = draws, .seed = 5};
  double now[STATES][V];
  memset(p, 0, sizeof now);
  lesson_create(&l);
  for (int step = 0; step < STEPS; step++) {
    learn(&l, step, 8);
    read_law(&l, now);
    for (int i = 0; i < STATES * V; i++) {
      if (step >= STEPS / 2) p[i / V][i % V] += now[i / V][i % V] / (STEPS / 2);
    }
  }
  lesson_destroy(&l);
}

static void draws_calibrate_and_the_most_probable_ids_do_not(void **state) {
  (void)state;
  double drawn[STATES][V], top[STATES][V], worst = 0, worst_top = 0, kept = 0;
  teach(V, 50, drawn);
  teach(TOP, 0, top);
  for (int v = 0; v < V; v++) kept += is_top(0, v) ? chance(0, v) : 0;
  for (int s = 0; s < STATES; s++) {
    for (int v = 0; v < V; v++) {
      const double t = chance(s, v);
      worst = fmax(worst, fabs(drawn[s][v] / t - 1));
      if (is_top(s, v)) worst_top = fmax(worst_top, fabs(top[s][v] / t * kept - 1));
    }
  }
  if (!(worst < 0.01)) fail_msg("draws: p / t differs from 1 by %.4f", worst);
  if (!(worst_top < 0.02)) fail_msg("top %d: p a / t differs from 1 by %.4f", TOP, worst_top);
  assert_true(kept > 0.5 && kept < 0.9);
}

// ---- value ----

// Tokens until the student's mean KL from the truth is at most 0.05 nats.
static int64_t tokens_needed(int64_t ids, uint64_t seed) {
  enum { ROWS = 16, MOST_STEPS = 2000 };
  lesson l = {.rows = ROWS, .ids = ids, .draws = 50, .seed = seed};
  double kl = 1;
  int64_t step = 0;
  lesson_create(&l);
  for (; kl > 0.05 && step < MOST_STEPS; step++) {
    double p[STATES][V];
    learn(&l, step, 8 / (1 + (double)step / 16));
    read_law(&l, p);
    kl = 0;
    for (int i = 0; i < STATES * V; i++) {
      const double t = chance(i / V, i % V);
      kl += t * log(t / p[i / V][i % V]) / STATES;
    }
  }
  lesson_destroy(&l);
  return step * ROWS;
}

static void a_teacher_saves_tokens(void **state) {
  (void)state;
  double shares = 0;
  for (uint64_t seed = 1; seed <= 5; seed++) {
    const double text = (double)tokens_needed(0, seed), taught = (double)tokens_needed(V, seed);
    print_message("seed %d: %g tokens of text, %g with the teacher\n", (int)seed, text, taught);
    shares += taught / text / 5;
  }
  if (!(shares < 0.1)) fail_msg("a teacher needs %.2f of the tokens", shares);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(draws_calibrate_and_the_most_probable_ids_do_not),
      cmocka_unit_test(a_teacher_saves_tokens),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
