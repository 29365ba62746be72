// SPDX-License-Identifier: Apache-2.0
// Runs all sequences of a step in one micro-batch on one rank: their scores are still in memory
// after the step. The router bias in effect is the one left by the step before.
#include "support/rank_case_margin.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ops/route.h"

enum {
  TRIES = 64,
  SEQUENCES_APART = 4096,
  MAX_BLOCKS = 2 * RANK_MAX_LAYERS + 2,
  MAX_KNOWN = 1024,
};

typedef struct margin_search {
  double least;
  float bias[MAX_BLOCKS][OT_MAX_EXPERTS];  // in effect during the current step, by block
} margin_search;

// ---- one token ----

static int by_size_down(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x < y) - (x > y);
}

// The `chosen`-th largest of values [n] minus the next; infinite if all are chosen.
static double gap_behind(const double *values, int64_t n, int64_t chosen) {
  double sorted[OT_MAX_EXPERTS];
  if (chosen >= n) return INFINITY;
  memcpy(sorted, values, (size_t)n * sizeof *sorted);
  qsort(sorted, (size_t)n, sizeof *sorted, by_size_down);
  return sorted[chosen - 1] - sorted[chosen];
}

static double value_at(const double *values, int64_t n, int64_t place) {
  double sorted[OT_MAX_EXPERTS];
  memcpy(sorted, values, (size_t)n * sizeof *sorted);
  qsort(sorted, (size_t)n, sizeof *sorted, by_size_down);
  return sorted[place];
}

static void scores_of(const ot_op_attributes *a, const float *logits, double *scores) {
  double sum = 0;
  for (int64_t e = 0; e < a->num_experts; e++) {
    const double x = exp((double)logits[e]);
    scores[e] = a->score == OT_MOE_SIGMOID ? x / (1 + x) : x;
    sum += x;
  }
  for (int64_t e = 0; e < a->num_experts && a->score == OT_MOE_SOFTMAX; e++) scores[e] /= sum;
}

// Keeps the scores of experts in the best groups and removes the others. Returns the gap between
// the groups.
static double keep_groups(const ot_op_attributes *a, double *scores) {
  const int64_t members = a->num_experts / a->num_groups;
  double sums[OT_MAX_EXPERTS];
  for (int64_t g = 0; g < a->num_groups; g++) {
    const double *const own = scores + g * members;
    sums[g] = value_at(own, members, 0) + (members > 1 ? value_at(own, members, 1) : 0);
  }
  const double worst = value_at(sums, a->num_groups, a->groups_per_token - 1);
  for (int64_t e = 0; e < a->num_experts; e++) {
    if (sums[e / members] < worst) scores[e] = -INFINITY;
  }
  return gap_behind(sums, a->num_groups, a->groups_per_token);
}

static double token_margin(const ot_op_attributes *a, const float *logits, const float *bias,
                           const int32_t *experts) {
  double scores[OT_MAX_EXPERTS];
  scores_of(a, logits, scores);
  for (int64_t e = 0; e < a->num_experts; e++) scores[e] += (double)bias[e];
  const double groups = a->num_groups > 1 ? keep_groups(a, scores) : INFINITY;
  const double worst = value_at(scores, a->num_experts, a->experts_per_token - 1);
  for (int64_t i = 0; i < a->experts_per_token; i++) {
    assert_true(scores[ot_route_expert(experts[i])] >= worst - 1e-6);
  }
  return fmin(groups, gap_behind(scores, a->num_experts, a->experts_per_token));
}

// ---- a step ----

static void *read_operand(ot_executor *executor, const ot_entry *entry, const ot_operand *operand) {
  const int64_t bytes = ot_type_bytes(&operand->type);
  void *const values = malloc((size_t)bytes);
  assert_non_null(values);
  ot_executor_read(executor, entry->base[operand->base] + operand->offset, values, bytes);
  return values;
}

static void look_at_task(margin_search *m, ot_executor *executor, const ot_entry *entry,
                         const ot_task *task) {
  const int64_t rows = task->in[0].type.dim[0];
  float *const logits = read_operand(executor, entry, &task->in[0]);
  int32_t *const experts = read_operand(executor, entry, &task->out[1]);
  const ot_op_attributes *const a = &task->attributes;
  for (int64_t row = 0; row < rows; row++) {
    const double found = token_margin(a, logits + row * a->num_experts, m->bias[entry->block],
                                      experts + row * a->experts_per_token);
    m->least = fmin(found, m->least);
  }
  if (task->in[1].base != OT_BASE_NONE) {
    float *const bias = read_operand(executor, entry, &task->in[1]);
    memcpy(m->bias[entry->block], bias, (size_t)a->num_experts * sizeof *bias);
    free(bias);
  }
  free(logits);
  free(experts);
}

static void look(ot_runtime *runtime, int step, void *context) {
  const ot_schedule *const schedule = ot_runtime_schedule(runtime);
  const ot_order *const order =
      &schedule->orders[ot_schedule_find_order(schedule, OT_ORDER_STEP, 1)];
  (void)step;
  for (int i = 0; i < order->num_entries; i++) {
    const ot_entry *const entry = &order->entries[i];
    const ot_segment *const segment = &schedule->segments[entry->segment];
    for (int k = 0; k < segment->num_tasks && entry->phase == OT_PHASE_FORWARD; k++) {
      if (segment->tasks[k].op != OT_OP_ROUTE) continue;
      look_at_task(context, ot_runtime_executor(runtime), entry, &segment->tasks[k]);
    }
  }
}

double rank_routing_margin(const rank_request *request) {
  margin_search *const m = calloc(1, sizeof *m);
  assert_non_null(m);
  m->least = INFINITY;
  rank_request whole = rank_unsharded_request(request);
  whole.dtype = OT_F32;
  whole.micro_batch = request->batch;
  whole.observe = look;
  whole.observe_context = m;
  const ot_moe_balance balance = rank_model(request->model, 1, false).moe.balance;
  for (int b = 0; b < MAX_BLOCKS && balance == OT_MOE_BALANCE_BIAS; b++) {
    for (int e = 0; e < OT_MAX_EXPERTS; e++) m->bias[b][e] = rank_initial_bias(&whole, e);
  }
  rank_result result;
  if (rank_run(&whole, &result) != OT_OK) fail_msg("%s", ot_fail_message());
  rank_release(&result);
  const double least = m->least;
  free(m);
  return least;
}

// Requests already settled, and the result.
typedef struct settled {
  rank_request asked;
  int64_t first_sample;
} settled;

static settled known[MAX_KNOWN];
static int num_known;

static int64_t find_sequences(const rank_request *asked) {
  rank_request request = *asked;
  double found = 0;
  for (int i = 0; i < TRIES; i++, request.first_sample += SEQUENCES_APART) {
    found = rank_routing_margin(&request);
    if (found >= RANK_LEAST_MARGIN) return request.first_sample;
  }
  fail_msg("no sequences with a routing margin of %g, only %g", RANK_LEAST_MARGIN, found);
  return 0;
}

void rank_choose_sample(rank_request *request) {
  if (!rank_has_experts(request->model)) return;
  const rank_request asked = rank_unsharded_request(request);
  int i = 0;
  while (i < num_known && !rank_same_reference(&known[i].asked, &asked)) i++;
  if (i == num_known) {
    assert_true(num_known < MAX_KNOWN);
    known[num_known++] = (settled){asked, find_sequences(&asked)};
  }
  request->first_sample = known[i].first_sample;
}
