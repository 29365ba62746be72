// SPDX-License-Identifier: Apache-2.0
// Computes the rows of a pass from the counts of all ranks: integers, equal on all ranks.
#include <stddef.h>

#include "kernels/cpu_tables.h"
#include "kernels/real.h"
#include "ops/expert_exchange.h"
#include "ops/route.h"

typedef struct plan {
  const ot_op_attributes *attributes;
  const int32_t *counts;  // [n][E + 1]
  int64_t begin, end;     // of the pass, in the list of a rank
} plan;

typedef struct run {
  int64_t first, rows;
} run;

static int64_t first_of(const plan *p, int64_t source, int64_t expert) {
  return p->counts[source * (p->attributes->num_experts + 1) + expert];
}

static int64_t rows_of(const plan *p, int64_t source, int64_t expert) {
  return first_of(p, source, expert + 1) - first_of(p, source, expert);
}

// First of the experts of a rank.
static int64_t experts_of(const plan *p, int64_t rank) {
  return rank / ot_route_copies(p->attributes) * p->attributes->held_experts;
}

// The part of rows [at, at + rows) of a list that is in the pass.
static run in_round(const plan *p, int64_t at, int64_t rows) {
  const int64_t begin = at > p->begin ? at : p->begin;
  const int64_t end = at + rows < p->end ? at + rows : p->end;
  return (run){begin, end > begin ? end - begin : 0};
}

// The row of the pass's buffer for row `at` of the list.
static int32_t row_in_round(const plan *p, int64_t at) {
  const int64_t clamped = at < p->begin ? p->begin : at > p->end ? p->end : at;
  return (int32_t)(clamped - p->begin);
}

// All rows that a rank receives.
static int64_t list_length(const plan *p, int64_t rank) {
  int64_t rows = 0;
  for (int64_t s = 0; s < p->attributes->group_size; s++) {
    const int64_t first = experts_of(p, rank);
    rows += first_of(p, s, first + p->attributes->held_experts) - first_of(p, s, first);
  }
  return rows;
}

static int32_t rounds_of_all(const plan *p) {
  const int64_t B = p->attributes->exchange_rows;
  int64_t most = 1;
  for (int64_t rank = 0; rank < p->attributes->group_size; rank++) {
    const int64_t rounds = (list_length(p, rank) + B - 1) / B;
    if (rounds > most) most = rounds;
  }
  return (int32_t)most;
}

static void write_run(const ot_tensor *runs, int64_t index, run r) {
  int32_t *const at = (int32_t *)runs->data + 2 * index;
  at[0] = (int32_t)(r.rows > 0 ? r.first : 0);
  at[1] = (int32_t)r.rows;
}

// This rank's rows in the pass of `rank`: consecutive in both lists.
static run run_to(const plan *p, int64_t rank) {
  const ot_op_attributes *const a = p->attributes;
  const int64_t first = experts_of(p, rank);
  run found = {0, 0};
  int64_t at = 0;
  for (int64_t e = first; e < first + a->held_experts; e++) {
    for (int64_t s = 0; s < a->group_size; s++) {
      const int64_t rows = rows_of(p, s, e);
      const run part = in_round(p, at, rows);
      if (s == a->group_index && part.rows > 0) {
        if (found.rows == 0) found.first = first_of(p, s, e) + part.first - at;
        found.rows += part.rows;
      }
      at += rows;
    }
  }
  found.first += rank % ot_route_copies(a) * a->copy_rows;
  return found;
}

// The rows that this rank receives from all ranks.
static void list_arrivals(const plan *p, const ot_tensor *here, int32_t *offsets) {
  const ot_op_attributes *const a = p->attributes;
  const int64_t H = a->held_experts;
  const int64_t first = experts_of(p, a->group_index);
  int64_t at = 0;
  for (int64_t h = 0; h < H; h++) {
    offsets[h] = row_in_round(p, at);
    for (int64_t s = 0; s < a->group_size; s++) {
      const int64_t rows = rows_of(p, s, first + h);
      run part = in_round(p, at, rows);
      part.first -= p->begin;
      write_run(here, s * H + h, part);
      at += rows;
    }
  }
  offsets[H] = row_in_round(p, at);
}

static void all_to_all_v_plan(const ot_kernel_call *call) {
  const ot_op_attributes *const a = call->attributes;
  const int32_t *const round = call->in[1].data;
  plan p = {.attributes = a, .counts = call->in[0].data};
  p.begin = round ? round[0] * a->exchange_rows : 0;
  p.end = p.begin + a->exchange_rows;
  for (int64_t rank = 0; rank < a->group_size; rank++) {
    write_run(&call->out[0], rank, run_to(&p, rank));
  }
  list_arrivals(&p, &call->out[1], call->out[2].data);
  if (call->out[3].data) *(int32_t *)call->out[3].data = rounds_of_all(&p);
}

const ot_kernel_entry OT_KERNEL(ot_exchange_cpu)[] = {
    {OT_OP_ALL_TO_ALL_V_PLAN, all_to_all_v_plan},
    {OT_OP_COUNT, NULL},
};
