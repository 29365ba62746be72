// SPDX-License-Identifier: Apache-2.0
// ctest: device
// run: serial. Routing against the definitions: chosen experts, gates, dropped tokens; gradients
// against differences; the same choice if ranks hold parts of sequences; rows sorted by expert.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ops/route.h"
#include "support/op_case.h"

enum { MAX_E = 64 };

static ot_op_attributes token_choice(int64_t E, int64_t k) {
  return (ot_op_attributes){.threads = 2,
                            .compute = OT_F64,
                            .num_experts = E,
                            .experts_per_token = k,
                            .num_groups = 1,
                            .groups_per_token = 1,
                            .scale = 1,
                            .sequence_length = 8};
}

static ot_case route_case(int64_t R, ot_op_attributes attributes, bool bias) {
  const int64_t E = attributes.num_experts;
  ot_case c = {.kind = OT_OP_ROUTE,
               .attributes = attributes,
               .types = {.in = {ot_type_matrix(OT_F64, R, E),
                                bias ? ot_type_vector(OT_F32, E) : (ot_tensor_type){0}}},
               .fixed_inputs = 1u << 1,
               .statistic_inputs = 1u << 0};
  ot_case_create(&c);
  return c;
}

static void copy_row(const ot_tensor *from, int64_t row, const ot_tensor *to, int64_t to_row) {
  const int64_t width = from->type.dim[1];
  for (int64_t i = 0; i < width; i++) {
    ot_case_set(to, to_row * width + i, ot_case_get(from, row * width + i));
  }
}

// Some tokens equal earlier ones, of their sequence and of others: ties go to the first.
static void repeat_tokens(const ot_case *c) {
  for (int64_t row = 4; row < c->types.in[0].dim[0]; row += 5) {
    copy_row(&c->in[0], row - 3, &c->in[0], row);
  }
}

static void scores_of(const ot_case *c, int64_t row, double *s) {
  const int64_t E = c->attributes.num_experts;
  double sum = 0;
  for (int64_t e = 0; e < E; e++) {
    const double u = ot_case_get(&c->in[0], row * E + e);
    s[e] = c->attributes.score == OT_MOE_SIGMOID ? 1 / (1 + exp(-u)) : exp(u);
    sum += s[e];
  }
  for (int64_t e = 0; e < E && c->attributes.score == OT_MOE_SOFTMAX; e++) s[e] /= sum;
}

static double choice_of(const ot_case *c, const double *s, int64_t e) {
  return s[e] + (c->in[1].data ? ot_case_get(&c->in[1], e) : 0);
}

// Number of experts preferred to `e` by the token, within the allowed groups.
static int better_experts(const ot_case *c, const double *s, const bool *allowed, int64_t e) {
  int better = 0;
  for (int64_t o = 0; o < c->attributes.num_experts; o++) {
    const double mine = choice_of(c, s, e), other = choice_of(c, s, o);
    better += allowed[o] && (other > mine || (other == mine && o < e));
  }
  return better;
}

static double best_two(const ot_case *c, const double *s, int64_t group, int64_t size) {
  double first = -1e300, second = -1e300;
  for (int64_t e = group * size; e < (group + 1) * size; e++) {
    const double v = choice_of(c, s, e);
    if (v > first) {
      second = first;
      first = v;
    } else if (v > second) {
      second = v;
    }
  }
  return first + second;
}

static void allowed_of(const ot_case *c, const double *s, bool *allowed) {
  const ot_op_attributes *const a = &c->attributes;
  const int64_t size = a->num_experts / a->num_groups;
  for (int64_t g = 0; g < a->num_groups; g++) {
    int better = 0;
    for (int64_t o = 0; o < a->num_groups && a->num_groups > 1; o++) {
      const double mine = best_two(c, s, g, size), other = best_two(c, s, o, size);
      better += other > mine || (other == mine && o < g);
    }
    for (int64_t e = g * size; e < (g + 1) * size; e++) allowed[e] = better < a->groups_per_token;
  }
}

// The token's slots by definition; slot j is the expert with j better ones.
static void expect_choice(const ot_case *c, int64_t row) {
  const ot_op_attributes *const a = &c->attributes;
  double s[MAX_E], sum = 0;
  bool allowed[MAX_E];
  int64_t chosen[MAX_E];
  scores_of(c, row, s);
  allowed_of(c, s, allowed);
  for (int64_t e = 0; e < a->num_experts; e++) {
    const int better = better_experts(c, s, allowed, e);
    if (!allowed[e] || better >= a->experts_per_token) continue;
    chosen[better] = e;
    sum += s[e];
  }
  for (int64_t j = 0; j < a->experts_per_token; j++) {
    const int64_t at = row * a->experts_per_token + j;
    const double gate = a->scale * s[chosen[j]] / (a->renormalise ? sum : 1);
    assert_int_equal((int64_t)ot_case_get(&c->out[1], at), chosen[j]);
    assert_true(fabs(ot_case_get(&c->out[0], at) - gate) <= 1e-14 * fabs(gate));
  }
}

static void tokens_take_their_best_experts_with_the_gates_of_the_formula(void **state) {
  (void)state;
  for (int variant = 0; variant < 16; variant++) {
    ot_op_attributes a = token_choice(variant & 8 ? 64 : 12, 3);
    a.score = variant & 1 ? OT_MOE_SIGMOID : OT_MOE_SOFTMAX;
    a.renormalise = (variant & 2) != 0;
    a.scale = variant & 2 ? 2.5 : 1;
    if (variant & 4) {
      a.num_groups = 4;
      a.groups_per_token = 2;
    }
    ot_case c = route_case(40, a, (variant & 4) != 0);
    ot_case_run(&c);
    for (int64_t row = 0; row < 40; row++) expect_choice(&c, row);
    ot_case_check_precisions(&c, 2e-6, 2e-6);
    ot_case_destroy(&c);
  }
}

static void the_lower_index_wins_among_equals(void **state) {
  (void)state;
  ot_case c = route_case(1, token_choice(5, 3), false);
  for (int i = 0; i < 5; i++) ot_case_set(&c.in[0], i, i == 4 ? 1 : 0);
  ot_case_run(&c);
  assert_int_equal((int)ot_case_get(&c.out[1], 0), 4);
  assert_int_equal((int)ot_case_get(&c.out[1], 1), 0);
  assert_int_equal((int)ot_case_get(&c.out[1], 2), 1);
  ot_case_destroy(&c);
}

static void the_router_bias_affects_choice_not_gates(void **state) {
  (void)state;
  ot_op_attributes a = token_choice(4, 1);
  a.score = OT_MOE_SIGMOID;
  ot_case c = route_case(1, a, true);
  const double logits[] = {0.5, 2, -1, 0};
  for (int i = 0; i < 4; i++) {
    ot_case_set(&c.in[0], i, logits[i]);
    ot_case_set(&c.in[1], i, i == 2 ? 1 : 0);
  }
  ot_case_run(&c);
  assert_int_equal((int)ot_case_get(&c.out[1], 0), 2);
  assert_true(fabs(ot_case_get(&c.out[0], 0) - 1 / (1 + exp(1))) < 1e-15);
  ot_case_destroy(&c);
}

static void gradients_are_those_of_the_gates(void **state) {
  (void)state;
  for (int variant = 0; variant < 8; variant++) {
    ot_op_attributes a = token_choice(6, 2);
    a.score = variant & 1 ? OT_MOE_SIGMOID : OT_MOE_SOFTMAX;
    a.renormalise = (variant & 2) != 0;
    a.scale = 1.5;
    a.routing = variant & 4 ? OT_MOE_DROP_BY_POSITION : OT_MOE_DROPLESS;
    a.capacity = 2;
    ot_case c = route_case(16, a, false);
    ot_case_check_gradients(&c, 1e-5, 1e-9);
    ot_case_destroy(&c);
  }
  ot_op_attributes a = token_choice(6, 2);
  a.routing = OT_MOE_EXPERT_CHOICE;
  a.capacity = 3;
  ot_case c = route_case(16, a, false);
  ot_case_check_gradients(&c, 1e-5, 1e-9);
  ot_case_destroy(&c);
}

// ---- capacity ----

enum { R = 24, T = 8, CAPACITY = 2 };

// Slots that their expert prefers to slot `i`: with larger gates, or earlier in the sequence. `all`
// has the choices before any drop.
static int slots_before(const ot_case *all, int i, bool by_score) {
  const int slots = (int)(all->attributes.sequence_length * all->attributes.experts_per_token);
  const int32_t *const experts = all->out[1].data;
  const double *const gates = all->out[0].data;
  int before = 0;
  for (int o = i / slots * slots; o < i / slots * slots + slots; o++) {
    if (o == i || experts[o] != experts[i]) continue;
    before += by_score && gates[o] != gates[i] ? gates[o] > gates[i] : o < i;
  }
  return before;
}

// Returns the number of dropped slots.
static int expect_kept(const ot_case *all, const ot_case *some) {
  const bool by_score = some->attributes.routing == OT_MOE_DROP_BY_SCORE;
  int dropped = 0;
  for (int i = 0; i < (int)ot_type_elements(&all->out[1].type); i++) {
    const int expert = (int)ot_case_get(&all->out[1], i);
    const bool kept = slots_before(all, i, by_score) < some->attributes.capacity;
    assert_int_equal((int)ot_case_get(&some->out[1], i), kept ? expert : -1 - expert);
    assert_true(ot_case_get(&some->out[0], i) == (kept ? ot_case_get(&all->out[0], i) : 0));
    dropped += !kept;
  }
  return dropped;
}

static void an_expert_keeps_its_capacity_of_each_sequence(void **state) {
  (void)state;
  static const int shapes[][4] = {{3, T, 1, CAPACITY}, {2, 1100, 2, 300}};  // sequences, T, k
  for (int i = 0; i < 4; i++) {
    const int *const shape = shapes[i / 2];
    ot_op_attributes a = token_choice(3, shape[2]);
    a.sequence_length = shape[1];
    ot_case all = route_case(shape[0] * shape[1], a, false);
    a.routing = i % 2 ? OT_MOE_DROP_BY_SCORE : OT_MOE_DROP_BY_POSITION;
    a.capacity = shape[3];
    ot_case some = route_case(shape[0] * shape[1], a, false);
    repeat_tokens(&all);
    repeat_tokens(&some);
    ot_case_run(&all);
    ot_case_run(&some);
    const int dropped = expect_kept(&all, &some), slots = shape[0] * shape[1] * shape[2];
    assert_true(dropped >= slots - shape[0] * 3 * shape[3] && dropped < slots);
    if (i < 2) ot_case_check_precisions(&some, 2e-6, 2e-6);
    ot_case_destroy(&some);
    ot_case_destroy(&all);
  }
}

// Tokens of the sequence of `row` with a larger score for `expert`, or an equal one and earlier.
static int tokens_before(const ot_case *c, int row, int expert) {
  const int tokens = (int)c->attributes.sequence_length;
  double mine[MAX_E], other[MAX_E];
  int before = 0;
  scores_of(c, row, mine);
  for (int o = row / tokens * tokens; o < row / tokens * tokens + tokens; o++) {
    scores_of(c, o, other);
    before += other[expert] > mine[expert] || (other[expert] == mine[expert] && o < row);
  }
  return before;
}

static void experts_take_their_best_tokens_of_each_sequence(void **state) {
  (void)state;
  static const int shapes[][4] = {{R, T, 5, CAPACITY}, {1100, 1100, 2, 77}};  // rows, T, E
  for (int k = 0; k < 2; k++) {
    const int rows = shapes[k][0], E = shapes[k][2], capacity = shapes[k][3];
    ot_op_attributes a = token_choice(E, 2);
    a.routing = OT_MOE_EXPERT_CHOICE;
    a.sequence_length = shapes[k][1];
    a.capacity = capacity;
    ot_case c = route_case(rows, a, false);
    repeat_tokens(&c);
    ot_case_run(&c);
    for (int i = 0; i < rows * E; i++) {
      double mine[MAX_E];
      scores_of(&c, i / E, mine);
      const int e = i % E;
      const bool taken = tokens_before(&c, i / E, e) < capacity;
      assert_int_equal((int)ot_case_get(&c.out[1], i), taken ? e : -1 - e);
      assert_true(fabs(ot_case_get(&c.out[0], i) - (taken ? mine[e] : 0)) < 1e-15);
    }
    if (k == 0) ot_case_check_precisions(&c, 2e-6, 2e-6);
    ot_case_destroy(&c);
  }
}

// ---- parts of sequences ----

// B sequences of T tokens on cp x tp ranks, sharded as in training.
typedef struct cut {
  int64_t B;
  int cp, tp;
  ot_context_parallel context;
} cut;

static const cut cuts[] = {
    {3, 1, 1, OT_CONTEXT_RING}, {3, 1, 2, OT_CONTEXT_RING},    {3, 1, 8, OT_CONTEXT_RING},
    {3, 2, 1, OT_CONTEXT_RING}, {3, 2, 1, OT_CONTEXT_ULYSSES}, {3, 4, 1, OT_CONTEXT_RING},
    {2, 4, 4, OT_CONTEXT_RING}, {3, 2, 3, OT_CONTEXT_ULYSSES}, {1, 2, 4, OT_CONTEXT_RING},
};

// Index among the tokens of all sequences of row `row`, where rows are concatenated over the cp
// ranks.
static int64_t token_of(const cut *l, int64_t row) {
  const int64_t t = T / l->cp;
  const int64_t rank = row / (l->B * t), sequence = row % (l->B * t) / t, i = row % t;
  int64_t piece = rank, in_piece = i, length = t;
  if (l->context == OT_CONTEXT_RING && l->cp > 1) {
    length = t / 2;
    in_piece = i % length;
    piece = i < length ? rank : 2 * l->cp - 1 - rank;
  }
  return sequence * T + piece * length + in_piece;
}

static void expect_row(const ot_tensor *found, int64_t row, const ot_tensor *all, int64_t token) {
  const int64_t width = all->type.dim[1];
  assert_int_equal(found->type.dim[1], width);
  for (int64_t i = 0; i < width; i++) {
    assert_true(ot_case_get(found, row * width + i) == ot_case_get(all, token * width + i));
  }
}

// Expects the part of `rank` of the choice that `all` made for whole sequences.
static void expect_part(const cut *l, int rank, const ot_case *all) {
  const int64_t rows = l->B * T, E = all->attributes.num_experts;
  const int64_t own = rows / (l->cp * l->tp);
  ot_case c = *all;
  c.attributes.sequence_length = T / l->cp;
  c.attributes.context_size = l->cp;
  c.attributes.context_index = rank / l->tp;
  c.attributes.context = l->context;
  c.attributes.first_row = rank % l->tp * own;
  c.types.in[0] = ot_type_matrix(OT_F64, own, E);
  c.types.in[2] = ot_type_matrix(OT_F64, rows, E);
  c.statistic_inputs |= 1u << 2;
  ot_case_create(&c);
  for (int64_t row = 0; row < rows; row++) copy_row(&all->in[0], token_of(l, row), &c.in[2], row);
  for (int64_t row = 0; row < own; row++) copy_row(&c.in[2], rank * own + row, &c.in[0], row);
  ot_case_run(&c);
  for (int64_t row = 0; row < own; row++) {
    expect_row(&c.out[0], row, &all->out[0], token_of(l, rank * own + row));
    expect_row(&c.out[1], row, &all->out[1], token_of(l, rank * own + row));
  }
  ot_case_check_precisions(&c, 2e-6, 2e-6);
  ot_case_destroy(&c);
}

static void ranks_with_parts_of_sequences_route_alike(void **state) {
  (void)state;
  for (int i = 0; i < OT_COUNT(cuts); i++) {
    for (int routing = OT_MOE_DROP_BY_POSITION; routing <= OT_MOE_EXPERT_CHOICE; routing++) {
      ot_op_attributes a = token_choice(5, 2);
      a.routing = (ot_moe_routing)routing;
      a.capacity = CAPACITY;
      ot_case all = route_case(cuts[i].B * T, a, false);
      repeat_tokens(&all);
      ot_case_run(&all);
      for (int rank = 0; rank < cuts[i].cp * cuts[i].tp; rank++) expect_part(&cuts[i], rank, &all);
      ot_case_destroy(&all);
    }
  }
}

static void parts_that_are_no_sequences_are_refused(void **state) {
  (void)state;
  ot_op_attributes a = token_choice(5, 2);
  a.routing = OT_MOE_DROP_BY_SCORE;
  a.capacity = CAPACITY;
  a.sequence_length = T / 2;
  a.context_size = 2;
  ot_op_types types = {.in = {ot_type_matrix(OT_F64, 12, 5), {0}, ot_type_matrix(OT_F64, 24, 5)}};
  const ot_op_info *const info = ot_op_info_of(OT_OP_ROUTE);
  assert_int_equal(info->infer(&a, &types), OT_OK);
  a.first_row = 1;
  assert_int_equal(info->infer(&a, &types), OT_BUG);
  assert_non_null(strstr(ot_fail_message(), "tokens 1 to 13 of block 0 of 2, of 24 tokens"));
  a.first_row = 0;
  a.context_index = 2;
  assert_int_equal(info->infer(&a, &types), OT_BUG);
  a.context_index = 0;
  types.in[2] = (ot_tensor_type){0};  // 12 rows are one and a half sequences
  assert_int_equal(info->infer(&a, &types), OT_BUG);
  assert_non_null(strstr(ot_fail_message(), "capacity 2 does not fit 12 tokens in sequences of 8"));
}

// ---- permutation ----

static void rows_are_sorted_by_expert_then_by_token(void **state) {
  (void)state;
  ot_op_attributes a = token_choice(4, 2);
  ot_case c = {.kind = OT_OP_SORT_BY_EXPERT,
               .attributes = a,
               .types = {.in = {ot_type_matrix(OT_I32, 4, 2)}}};
  ot_case_create(&c);
  static const int experts[] = {3, 1, 1, -1 - 0, 3, 0, -1 - 3, 1};
  static const int place[] = {4, 1, 2, -1, 5, 0, -1, 3};
  static const int offsets[] = {0, 1, 4, 4, 6};
  for (int i = 0; i < 8; i++) ot_case_set(&c.in[0], i, experts[i]);
  ot_case_run(&c);
  for (int i = 0; i < 8; i++) assert_int_equal((int)ot_case_get(&c.out[0], i), place[i]);
  for (int i = 0; i < 5; i++) assert_int_equal((int)ot_case_get(&c.out[1], i), offsets[i]);
  ot_case_destroy(&c);
}

// By the definition: the rows of an expert in the order of its slots, after those of lower experts.
static void expect_sorted(const ot_case *c) {
  const ot_op_attributes *const a = &c->attributes;
  const int64_t slots = ot_type_elements(&c->in[0].type), P = ot_route_copies(a);
  const int64_t plane = ot_route_rows(a, c->types.in[0].dim[0]) / P;
  int64_t row = 0;
  for (int64_t e = 0; e < a->num_experts; e++) {
    assert_int_equal((int64_t)ot_case_get(&c->out[1], e), row);
    for (int64_t i = 0; i < slots; i++) {
      if ((int64_t)ot_case_get(&c->in[0], i) != e) continue;
      for (int64_t q = 0; q < P; q++) {
        assert_int_equal((int64_t)ot_case_get(&c->out[0], i * P + q), row + q * plane);
      }
      row++;
    }
  }
  assert_int_equal((int64_t)ot_case_get(&c->out[1], a->num_experts), row);
  for (int64_t i = 0; i < slots * P; i++) {
    if (ot_case_get(&c->in[0], i / P) < 0) assert_true(ot_case_get(&c->out[0], i) == -1);
  }
}

static void many_rows_are_sorted_by_expert_then_by_slot(void **state) {
  (void)state;
  static const int shapes[][4] = {{1, 1, 1, 1}, {1500, 2, 70, 1}, {700, 3, 5, 2}, {60, 8, 512, 3}};
  for (int k = 0; k < 4; k++) {
    const int rows = shapes[k][0], S = shapes[k][1], E = shapes[k][2];
    ot_op_attributes a = token_choice(E, S);
    a.expert_copies = shapes[k][3];
    ot_case c = {.kind = OT_OP_SORT_BY_EXPERT,
                 .attributes = a,
                 .types = {.in = {ot_type_matrix(OT_I32, rows, S)}}};
    ot_case_create(&c);
    for (int i = 0; i < rows * S; i++) {
      const int expert = (int)((int64_t)i * i / 3 % 1009 % E);
      ot_case_set(&c.in[0], i, i % 11 == 3 ? -1 - expert : expert);
    }
    ot_case_run(&c);
    expect_sorted(&c);
    ot_case_destroy(&c);
  }
}

static void the_number_of_rows_is_known_before_anyone_chooses(void **state) {
  (void)state;
  ot_op_attributes a = token_choice(64, 8);
  a.sequence_length = 32;
  assert_int_equal(ot_route_rows(&a, 128), 128 * 8);
  a.capacity = 5;  // 1.25 * 32 * 8 / 64
  a.routing = OT_MOE_DROP_BY_POSITION;
  assert_int_equal(ot_route_rows(&a, 128), 128 * 8);  // at most all rows
  a.capacity = 3;
  assert_int_equal(ot_route_rows(&a, 128), 4 * 64 * 3);
  a.routing = OT_MOE_EXPERT_CHOICE;
  assert_int_equal(ot_route_slots(&a), 64);
  assert_int_equal(ot_route_rows(&a, 128), 4 * 64 * 3);
}

// Rows of one rank of n, which start wherever a rank may start.
static void the_sequences_of_a_rank_are_no_more_than_it_can_have(void **state) {
  (void)state;
  for (int64_t length = 1; length <= 12; length++) {
    for (int64_t tokens = 1; tokens <= 30; tokens++) {
      const ot_op_attributes a = {.sequence_length = length};
      int64_t most = 0;
      for (int64_t first = 0; first < length * tokens; first += tokens) {
        const int64_t touched = (first + tokens - 1) / length - first / length + 1;
        most = touched > most ? touched : most;
      }
      assert_int_equal(ot_route_sequences(&a, tokens), most);
    }
  }
  // Of two sequences of 8 over two cp ranks, all tokens of the experts may be on one rank.
  ot_op_attributes a = token_choice(4, 1);
  a.routing = OT_MOE_EXPERT_CHOICE;
  a.sequence_length = 4;
  a.context_size = 2;
  a.capacity = 3;
  assert_int_equal(ot_route_rows(&a, 8), 2 * 4 * 3);
  assert_int_equal(ot_route_even_rows(&a, 8), 4 * 3);  // half of each expert's capacity
  a.capacity = 6;
  assert_int_equal(ot_route_rows(&a, 8), 8 * 4);  // a token chooses an expert at most once
  assert_int_equal(ot_route_even_rows(&a, 8), 4 * 6);
  a.expert_copies = 2;
  assert_int_equal(ot_route_even_rows(&a, 8), 2 * 4 * 6);
  // Number of used rows, of N rows or of a receive buffer.
  assert_true(ot_route_used(&a, 64) == 64);
  a.even_rows = 48;
  assert_true(ot_route_used(&a, 64) == 48 && ot_route_used(&a, 40) == 40);
  a.exchange_rows = 64;
  a.copy_rows = 32;
  assert_true(ot_route_used(&a, 64) == 48 && ot_route_used(&a, 40) == 40);
  // Whole sequences use their maximum.
  a = token_choice(64, 8);
  a.sequence_length = 32;
  a.routing = OT_MOE_EXPERT_CHOICE;
  a.capacity = 3;
  assert_int_equal(ot_route_even_rows(&a, 128), ot_route_rows(&a, 128));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tokens_take_their_best_experts_with_the_gates_of_the_formula),
      cmocka_unit_test(the_lower_index_wins_among_equals),
      cmocka_unit_test(the_router_bias_affects_choice_not_gates),
      cmocka_unit_test(gradients_are_those_of_the_gates),
      cmocka_unit_test(an_expert_keeps_its_capacity_of_each_sequence),
      cmocka_unit_test(experts_take_their_best_tokens_of_each_sequence),
      cmocka_unit_test(ranks_with_parts_of_sequences_route_alike),
      cmocka_unit_test(parts_that_are_no_sequences_are_refused),
      cmocka_unit_test(rows_are_sorted_by_expert_then_by_token),
      cmocka_unit_test(many_rows_are_sorted_by_expert_then_by_slot),
      cmocka_unit_test(the_number_of_rows_is_known_before_anyone_chooses),
      cmocka_unit_test(the_sequences_of_a_rank_are_no_more_than_it_can_have),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
