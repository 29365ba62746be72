// SPDX-License-Identifier: Apache-2.0
// All-to-all-v plans: the plans of all ranks for one pass, executed as plain copies, give each rank
// the tokens of the defined list.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ops/expert_exchange.h"
#include "support/op_case.h"

enum { MAX_RANKS = 8, MAX_E = 12, MAX_ROWS = 60, MAX_LIST = MAX_RANKS * MAX_ROWS };

// The tokens of all ranks, sorted by expert.
typedef struct load {
  int n, copies, held, experts;
  int offsets[MAX_RANKS][MAX_E + 1];
  int plane;  // copy_rows
} load;

// One token, identified by its origin.
typedef struct row {
  int source, place;
} row;

static uint64_t state = 7;

static int below(int n) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (int)((state >> 33) % (uint64_t)n);
}

// Tokens of each rank for each expert; zero for some ranks and some experts.
static load random_load(int n, int copies, int held) {
  load l = {.n = n, .copies = copies, .held = held, .experts = n / copies * held};
  for (int s = 0; s < n; s++) {
    const int busy = below(4);
    for (int e = 0; e < l.experts; e++) {
      const int rows = busy == 0 || below(3) == 0 ? 0 : below(6);
      l.offsets[s][e + 1] = l.offsets[s][e] + rows;
    }
    if (l.offsets[s][l.experts] > l.plane) l.plane = l.offsets[s][l.experts];
  }
  l.plane += 3;  // dropped slots leave unused rows
  return l;
}

// Tokens that `rank` receives in all passes: by expert, by source rank, in row order.
static int list_of(const load *l, int rank, row *list, int *firsts) {
  int count = 0;
  const int part = rank / l->copies, plane = rank % l->copies;
  for (int h = 0; h < l->held; h++) {
    firsts[h] = count;
    const int e = part * l->held + h;
    for (int s = 0; s < l->n; s++) {
      for (int r = l->offsets[s][e]; r < l->offsets[s][e + 1]; r++) {
        list[count++] = (row){s, plane * l->plane + r};
      }
    }
  }
  firsts[l->held] = count;
  return count;
}

static ot_case plan_case(const load *l, int rank, int rows, int round) {
  ot_case c = {
      .kind = OT_OP_ALL_TO_ALL_V_PLAN,
      .attributes = {.threads = 1,
                     .compute = OT_F64,
                     .num_experts = l->experts,
                     .held_experts = l->held,
                     .expert_copies = l->copies,
                     .copy_rows = l->plane,
                     .exchange_rows = rows,
                     .group = OT_GROUP_EXPERT,
                     .group_size = l->n,
                     .group_index = rank},
      .types = {.in = {ot_type_vector(OT_I32, l->n * (l->experts + 1))}},
  };
  if (round > 0) c.types.in[1] = ot_type_vector(OT_I32, 1);
  ot_case_create(&c);
  for (int s = 0; s < l->n; s++) {
    for (int e = 0; e <= l->experts; e++) {
      ot_case_set(&c.in[0], s * (l->experts + 1) + e, l->offsets[s][e]);
    }
  }
  if (round > 0) ot_case_set(&c.in[1], 0, round);
  ot_case_run(&c);
  return c;
}

static int32_t whole(const ot_tensor *tensor, int64_t i) {
  return ((const int32_t *)tensor->data)[i];
}

// Tokens that a rank receives in one pass.
typedef struct arrivals {
  int size;
  row rows[MAX_LIST];
} arrivals;

// Copies the tokens that `from` sends to `to` into the buffer of `to` according to its plan.
static void carry(const load *l, const ot_case *plans, int from, int to, arrivals *buffer) {
  const ot_tensor *const home = &plans[from].out[0];
  const ot_tensor *const here = &plans[to].out[1];
  int next = whole(home, 2 * to);
  int left = whole(home, 2 * to + 1);
  for (int h = 0; h < l->held; h++) {
    const int64_t at = 2 * ((int64_t)from * l->held + h);
    for (int r = 0; r < whole(here, at + 1); r++) {
      const int place = whole(here, at) + r;
      assert_in_range(place, 0, buffer->size - 1);
      assert_int_equal(buffer->rows[place].source, -1);
      buffer->rows[place] = (row){from, next++};
      left--;
    }
  }
  assert_int_equal(left, 0);
}

static void expect_round(const load *l, const ot_case *plans, int rank, int size, int round) {
  row list[MAX_LIST];
  arrivals buffer = {.size = size};
  int firsts[MAX_E + 1];
  const int count = list_of(l, rank, list, firsts);
  const int begin = round * size;
  const int rows = count - begin < 0 ? 0 : count - begin < size ? count - begin : size;
  for (int i = 0; i < size; i++) buffer.rows[i].source = -1;
  for (int s = 0; s < l->n; s++) carry(l, plans, s, rank, &buffer);
  for (int i = 0; i < size; i++) {
    assert_int_equal(buffer.rows[i].source, i < rows ? list[begin + i].source : -1);
    if (i < rows) assert_int_equal(buffer.rows[i].place, list[begin + i].place);
  }
  for (int h = 0; h <= l->held; h++) {
    const int first = firsts[h] - begin;
    assert_int_equal(whole(&plans[rank].out[2], h), first < 0 ? 0 : first < rows ? first : rows);
  }
}

static int rounds_of(const load *l, int size) {
  int most = 1;
  for (int rank = 0; rank < l->n; rank++) {
    row list[MAX_LIST];
    int firsts[MAX_E + 1];
    const int count = list_of(l, rank, list, firsts);
    if ((count + size - 1) / size > most) most = (count + size - 1) / size;
  }
  return most;
}

static void every_row_comes_once_in_the_order_of_experts_and_sources(void **unused) {
  (void)unused;
  static const int shapes[][3] = {{2, 1, 3}, {4, 1, 2}, {4, 2, 3}, {8, 2, 1}, {2, 2, 4}, {3, 1, 4}};
  for (int trial = 0; trial < 60; trial++) {
    const int *const shape = shapes[trial % 6];
    const load l = random_load(shape[0], shape[1], shape[2]);
    const int size = 1 + below(trial % 2 ? 8 : 60);
    const int rounds = rounds_of(&l, size);
    for (int round = 0; round <= rounds; round++) {
      ot_case plans[MAX_RANKS];
      for (int i = 0; i < l.n; i++) plans[i] = plan_case(&l, i, size, round);
      for (int i = 0; i < l.n; i++) expect_round(&l, plans, i, size, round);
      if (round == 0) assert_int_equal(whole(&plans[below(l.n)].out[3], 0), rounds);
      for (int i = 0; i < l.n; i++) ot_case_destroy(&plans[i]);
    }
  }
}

// A buffer that can hold the worst case is limited to it.
static void the_receive_bound_is_known(void **unused) {
  (void)unused;
  ot_op_attributes a = {.num_experts = 8,
                        .experts_per_token = 3,
                        .held_experts = 2,
                        .group_size = 4,
                        .sequence_length = 16};
  assert_int_equal(ot_all_to_all_v_max_rows(&a, 32), 4 * 32 * 2);
  a.held_experts = 4;
  assert_int_equal(ot_all_to_all_v_max_rows(&a, 32), 4 * 32 * 3);
  a.routing = OT_MOE_DROP_BY_SCORE;
  a.capacity = 5;
  assert_int_equal(ot_all_to_all_v_max_rows(&a, 32), 4 * 2 * 4 * 5);
  a.routing = OT_MOE_EXPERT_CHOICE;
  assert_int_equal(ot_all_to_all_v_max_rows(&a, 32), 4 * 2 * 4 * 5);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_row_comes_once_in_the_order_of_experts_and_sources),
      cmocka_unit_test(the_receive_bound_is_known),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
