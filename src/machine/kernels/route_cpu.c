// SPDX-License-Identifier: Apache-2.0
// Routing: a token's choice depends only on its own row. Expert choice and dropping run per expert
// and sequence, with a heap of the best tokens so far. Ties always go to the lower index, so every
// choice is unique and independent of the thread order. Ranks that share sequences all compute the
// whole choice and keep their own rows.
#include <stddef.h>
#include <string.h>

#include "kernels/cpu_tables.h"
#include "kernels/route_scores.h"
#include "kernels/tiles.h"
#include "ops/route.h"
#include "ops/zigzag.h"

// A choice over `rows` rows: of whole sequences, or only this rank's when tokens choose
// independently.
typedef struct routing {
  const ot_op_attributes *attributes;
  int64_t E, S, T;
  int64_t rows;
  const ot_real *logits;  // [rows, E], in rank order
  const ot_tensor *bias;  // [E] or absent
  ot_real *gates;         // [rows, S], in sequence order
  int32_t *experts;       // [rows, S]
  int32_t *heaps;         // [sequences, E, capacity]
} routing;

// ---- tokens choose ----

// Index of the largest of `values` [n] that is not taken.
static int64_t best_of(const ot_real *values, const bool *taken, int64_t n) {
  int64_t best = -1;
  for (int64_t i = 0; i < n; i++) {
    if (!taken[i] && (best < 0 || values[i] > values[best])) best = i;
  }
  return best;
}

// The sum of the two largest of `values` [n], n >= 2.
static ot_real two_largest(const ot_real *values, int64_t n) {
  ot_real first = values[0] > values[1] ? values[0] : values[1];
  ot_real second = values[0] > values[1] ? values[1] : values[0];
  for (int64_t i = 2; i < n; i++) {
    if (values[i] > first) {
      second = first;
      first = values[i];
    } else if (values[i] > second) {
      second = values[i];
    }
  }
  return first + second;
}

// Marks the experts of all groups except the best as taken.
static void drop_other_groups(const ot_op_attributes *a, const ot_real *choices, bool *taken) {
  ot_real sums[OT_MAX_EXPERTS];
  bool chosen[OT_MAX_EXPERTS] = {false};
  const int64_t size = a->num_experts / a->num_groups;
  for (int64_t g = 0; g < a->num_groups; g++) sums[g] = two_largest(choices + g * size, size);
  for (int64_t i = 0; i < a->groups_per_token; i++) {
    chosen[best_of(sums, chosen, a->num_groups)] = true;
  }
  for (int64_t e = 0; e < a->num_experts; e++) taken[e] = !chosen[e / size];
}

// Chooses experts from `logits` [E] for the slots of `row`.
static void choose(const routing *m, const ot_real *logits, int64_t row) {
  const ot_op_attributes *const a = m->attributes;
  ot_real scores[OT_MAX_EXPERTS];
  ot_real choices[OT_MAX_EXPERTS];
  bool taken[OT_MAX_EXPERTS] = {false};
  ot_route_scores(a, logits, scores);
  memset(choices, 0, (size_t)m->E * sizeof *choices);
  if (m->bias->data) ot_load_row(choices, m->bias->data, m->bias->type.dtype, 0, m->E);
  for (int64_t e = 0; e < m->E; e++) choices[e] += scores[e];
  if (a->num_groups > 1) drop_other_groups(a, choices, taken);
  int32_t *const experts = m->experts + row * m->S;
  ot_real *const gates = m->gates + row * m->S;
  ot_real sum = 0;
  for (int64_t j = 0; j < m->S; j++) {
    const int64_t e = best_of(choices, taken, m->E);
    taken[e] = true;
    experts[j] = (int32_t)e;
    gates[j] = scores[e];
    sum += scores[e];
  }
  const ot_real factor = (ot_real)a->scale / (a->renormalise ? sum : 1);
  for (int64_t j = 0; j < m->S; j++) gates[j] *= factor;
}

// ---- experts choose ----

// True when `slot` ranks below `other` for an expert; slots are elements of gates and experts.
static bool is_worse(const routing *m, int32_t slot, int32_t other) {
  const ot_real mine = m->gates[slot];
  const ot_real others = m->gates[other];
  return mine < others || (mine == others && slot > other);
}

// Sifts the element at `i` down in a heap [n] with the worst on top.
static void sink(const routing *m, int32_t *heap, int64_t n, int64_t i) {
  for (;;) {
    int64_t worst = i;
    for (int64_t child = 2 * i + 1; child <= 2 * i + 2 && child < n; child++) {
      if (is_worse(m, heap[child], heap[worst])) worst = child;
    }
    if (worst == i) return;
    const int32_t held = heap[i];
    heap[i] = heap[worst];
    heap[worst] = held;
    i = worst;
  }
}

// Offers `slot` to a heap of the best `capacity`, which has `count` so far; returns the new count.
static int64_t offer(const routing *m, int32_t *heap, int64_t count, int32_t slot) {
  const int64_t capacity = m->attributes->capacity;
  if (count < capacity) {
    heap[count++] = slot;
    if (count == capacity) {
      for (int64_t i = capacity / 2 - 1; i >= 0; i--) sink(m, heap, capacity, i);
    }
    return count;
  }
  if (is_worse(m, heap[0], slot)) {
    heap[0] = slot;
    sink(m, heap, capacity, 0);
  }
  return count;
}

// Offers the slot of a row that names `expert`; there is at most one.
static int64_t offer_row(const routing *m, int64_t row, int64_t expert, int32_t *heap,
                         int64_t count) {
  for (int64_t j = 0; j < m->S; j++) {
    const int64_t slot = row * m->S + j;
    if (ot_route_expert(m->experts[slot]) == expert) {
      return offer(m, heap, count, (int32_t)slot);
    }
  }
  return count;
}

// Drops every slot of the sequence that names `expert`, except the best.
static void keep_best(const routing *m, int64_t sequence, int64_t expert) {
  const int64_t T = m->T;
  int32_t *const heap = m->heaps + (sequence * m->E + expert) * m->attributes->capacity;
  int64_t count = 0;
  for (int64_t row = sequence * T; row < (sequence + 1) * T; row++) {
    count = offer_row(m, row, expert, heap, count);
  }
  for (int64_t slot = sequence * T * m->S; slot < (sequence + 1) * T * m->S; slot++) {
    if (m->experts[slot] == expert) m->experts[slot] = (int32_t)(-1 - expert);
  }
  for (int64_t i = 0; i < count; i++) m->experts[heap[i]] = (int32_t)expert;
}

static void keep_first(const routing *m, int64_t sequence, int64_t expert) {
  const int64_t T = m->T;
  int64_t count = 0;
  for (int64_t slot = sequence * T * m->S; slot < (sequence + 1) * T * m->S; slot++) {
    if (m->experts[slot] != expert) continue;
    if (++count > m->attributes->capacity) m->experts[slot] = (int32_t)(-1 - expert);
  }
}

// Makes every expert a candidate for every token, with its score as the gate.
static void mark_all_candidates(const routing *m, const ot_real *logits, int64_t row) {
  ot_real *const gates = m->gates + row * m->S;
  ot_route_scores(m->attributes, logits, gates);
  for (int64_t e = 0; e < m->E; e++) {
    gates[e] *= (ot_real)m->attributes->scale;
    m->experts[row * m->S + e] = (int32_t)e;
  }
}

// Gates of dropped slots are cleared after all choices of the sequence, which compare them.
static void drop_sequence(const routing *m, int64_t sequence) {
  const int64_t slots = m->T * m->S;
  for (int64_t expert = 0; expert < m->E; expert++) {
    if (m->attributes->routing == OT_MOE_DROP_BY_POSITION) {
      keep_first(m, sequence, expert);
    } else {
      keep_best(m, sequence, expert);
    }
  }
  for (int64_t slot = sequence * slots; slot < (sequence + 1) * slots; slot++) {
    if (m->experts[slot] < 0) m->gates[slot] = 0;
  }
}

static void drop(const ot_kernel_call *call, const routing *m) {
  const int64_t sequences = m->rows / m->T;
#pragma omp parallel for num_threads(ot_threads_for(call, m->rows * m->E)) schedule(static)
  for (int64_t sequence = 0; sequence < sequences; sequence++) drop_sequence(m, sequence);
}

// ---- tokens of all ranks ----

// The index, in sequence order, of row `row` of the blocks of all ranks of cp.
static int64_t ordered(const routing *m, int64_t row) {
  const ot_op_attributes *const a = m->attributes;
  const int64_t t = a->sequence_length;
  const int64_t piece = m->rows / (m->T / t);
  const int64_t sequence = row % piece / t;
  return sequence * m->T + ot_position_in_sequence(a, (int)(row / piece), row % t);
}

// This rank's rows of the choice, in its own order.
static void select_own(const ot_kernel_call *call, const routing *m) {
  const ot_op_attributes *const a = m->attributes;
  const int64_t first = a->context_index * (m->rows / (m->T / a->sequence_length)) + a->first_row;
  ot_real *const gates = call->out[0].data;
  int32_t *const experts = call->out[1].data;
  for (int64_t row = 0; row < call->in[0].type.dim[0]; row++) {
    const int64_t from = ordered(m, first + row) * m->S;
    memcpy(gates + row * m->S, m->gates + from, (size_t)m->S * sizeof *gates);
    memcpy(experts + row * m->S, m->experts + from, (size_t)m->S * sizeof *experts);
  }
}

static routing routing_of(const ot_kernel_call *call) {
  const ot_op_attributes *const a = call->attributes;
  const bool whole = call->in[2].data != NULL;
  const ot_tensor *const logits = &call->in[whole ? 2 : 0];
  routing m = {.attributes = a,
               .E = a->num_experts,
               .S = ot_route_slots(a),
               .T = ot_route_tokens(a),
               .rows = logits->type.dim[0],
               .logits = logits->data,
               .bias = &call->in[1],
               .gates = call->out[0].data,
               .experts = call->out[1].data,
               .heaps = call->workspace};
  if (!whole) return m;
  m.gates = call->workspace;
  m.experts = (int32_t *)(m.gates + m.rows * m.S);
  m.heaps = m.experts + m.rows * m.S;
  return m;
}

static void route(const ot_kernel_call *call) {
  const routing m = routing_of(call);
  const bool whole = call->in[2].data != NULL;
  const bool chosen = m.attributes->routing == OT_MOE_EXPERT_CHOICE;
#pragma omp parallel for num_threads(ot_threads_for(call, m.rows *m.E)) schedule(static)
  for (int64_t row = 0; row < m.rows; row++) {
    const int64_t to = whole ? ordered(&m, row) : row;
    if (chosen) {
      mark_all_candidates(&m, m.logits + row * m.E, to);
    } else {
      choose(&m, m.logits + row * m.E, to);
    }
  }
  if (m.attributes->routing != OT_MOE_DROPLESS) drop(call, &m);
  if (whole) select_own(call, &m);
}

// ---- gradient ----

// dscores [E] from the gradients of the gates of a row. A gate is scale * s_i / sum of the chosen
// s, or scale * s_i; dropped slots have a zero gradient and stay in the sum.
static void gates_grad(const ot_op_attributes *a, const ot_real *dgates, const int32_t *experts,
                       const ot_real *scores, ot_real *dscores) {
  const int64_t S = ot_route_slots(a);
  const bool shares = a->renormalise && a->routing != OT_MOE_EXPERT_CHOICE;
  ot_real sum = 0;
  ot_real mean = 0;
  memset(dscores, 0, (size_t)a->num_experts * sizeof *dscores);
  for (int64_t j = 0; j < S && shares; j++) sum += scores[ot_route_expert(experts[j])];
  for (int64_t j = 0; j < S && shares; j++) {
    if (experts[j] >= 0) mean += dgates[j] * scores[experts[j]] / sum;
  }
  const ot_real factor = (ot_real)a->scale / (shares ? sum : 1);
  for (int64_t j = 0; j < S; j++) {
    const ot_real dgate = experts[j] >= 0 ? dgates[j] : 0;
    dscores[ot_route_expert(experts[j])] += factor * (dgate - mean);
  }
}

static void grad_row(const ot_kernel_call *call, int64_t row) {
  const ot_op_attributes *const a = call->attributes;
  const int64_t E = a->num_experts;
  const int64_t S = ot_route_slots(a);
  const ot_real *const partial = call->in[3].data;
  ot_real *const dlogits = (ot_real *)call->out[0].data + row * E;
  ot_real scores[OT_MAX_EXPERTS];
  ot_real dscores[OT_MAX_EXPERTS];
  ot_route_scores(a, (const ot_real *)call->in[1].data + row * E, scores);
  gates_grad(a, (const ot_real *)call->in[0].data + row * S,
             (const int32_t *)call->in[2].data + row * S, scores, dscores);
  for (int64_t e = 0; e < E; e++) dlogits[e] = partial ? partial[row * E + e] : 0;
  ot_route_scores_grad(a, scores, dscores, dlogits);
}

static void route_grad(const ot_kernel_call *call) {
  const int64_t rows = call->in[0].type.dim[0];
  const int64_t elements = rows * call->attributes->num_experts;
#pragma omp parallel for num_threads(ot_threads_for(call, elements)) schedule(static)
  for (int64_t row = 0; row < rows; row++) grad_row(call, row);
}

// ---- order ----

// First row of each expert of the slots, and the end of the last.
static void count_rows(const int32_t *experts, int64_t slots, int64_t E, int32_t *offsets) {
  memset(offsets, 0, (size_t)(E + 1) * sizeof *offsets);
  for (int64_t i = 0; i < slots; i++) {
    if (experts[i] >= 0) offsets[experts[i] + 1]++;
  }
  for (int64_t e = 0; e < E; e++) offsets[e + 1] += offsets[e];
}

// A counting sort: one pass to count and one to place, both in memory order.
static void sort_by_expert(const ot_kernel_call *call) {
  const int64_t E = call->attributes->num_experts;
  const int64_t P = ot_route_copies(call->attributes);
  const int64_t slots = ot_type_elements(&call->in[0].type);
  const int64_t plane = ot_route_rows(call->attributes, call->in[0].type.dim[0]) / P;
  const int32_t *const experts = call->in[0].data;
  int32_t *const place = call->out[0].data;
  int32_t *const offsets = call->out[1].data;
  int32_t next[OT_MAX_EXPERTS];
  count_rows(experts, slots, E, offsets);
  memcpy(next, offsets, (size_t)E * sizeof *next);
  for (int64_t i = 0; i < slots; i++) {
    const int64_t row = experts[i] >= 0 ? next[experts[i]]++ : -1;
    for (int64_t q = 0; q < P; q++) place[i * P + q] = (int32_t)(row < 0 ? -1 : row + q * plane);
  }
}

const ot_kernel_entry OT_KERNEL(ot_route_cpu)[] = {
    {OT_OP_ROUTE, route},
    {OT_OP_ROUTE_GRAD, route_grad},
    {OT_OP_SORT_BY_EXPERT, sort_by_expert},
    {OT_OP_COUNT, NULL},
};
