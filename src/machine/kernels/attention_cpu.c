// SPDX-License-Identifier: Apache-2.0
// Attention forward. A thread packs the keys and values of a key head once, then for each query
// tile iterates over the key tiles: transposed scores, running maximum and sum per query, and o^T =
// o^T * exp(old maximum - new) + v^T p. Fully masked tiles are skipped; masks are applied only in
// partially masked tiles. A ring block is the same with the keys of another sequence block, merged
// with the previous result when a tile is written.
#include <math.h>
#include <omp.h>

#include "kernels/attention_score.h"
#include "kernels/attention_tile.h"
#include "kernels/cpu_tables.h"
#include "kernels/vector_math.h"

// A thread's slot of the workspace.
typedef struct slot {
  ot_real *keys, *values;  // [layout.keys][width]
  ot_real *queries;        // [panel][width][OT_PANEL], scaled
  ot_real *output;         // [panel][width][OT_PANEL]
  ot_real *scores;         // [OT_KEYS][OT_PANEL]
} slot;

typedef struct forward {
  ot_attention p;
  ot_heads o;
  ot_real *lse;
  const ot_real *o_before;    // [R, H * D] or null
  const ot_real *lse_before;  // [R, H], with o_before
  const ot_tensor *sinks;     // scored before any key; not with lse_before
  double *maxima;             // [units]
} forward;

// Running state per query of a tile.
typedef struct running {
  _Alignas(64) ot_real largest[OT_QUERIES];
  _Alignas(64) ot_real sum[OT_QUERIES];
  _Alignas(64) ot_real rescale[OT_QUERIES];  // factor of the sums before the last key tile
} running;

static slot slot_of(const ot_attention *p, ot_real *workspace) {
  slot s;
  s.keys = workspace + omp_get_thread_num() * p->layout.slot;
  s.values = s.keys + p->layout.keys * p->width;
  s.queries = s.values + p->layout.keys * p->width;
  s.output = s.queries + OT_QUERIES * p->width;
  s.scores = s.output + OT_QUERIES * p->width;
  return s;
}

static void pack_queries(const ot_attention *p, const ot_query_tile *q, const slot *s) {
  ot_tile_pack(p, &p->queries, q, s->output);
  ot_panels_transpose(s->output, p->width, (ot_real)p->attributes->scale, s->queries);
}

// Turns scores [n][OT_PANEL] of the queries from `first` on into exp(score - largest so far).
static void exponentiate(running *state, int first, int64_t n, ot_real *restrict scores) {
  ot_real *const rescale = state->rescale + first;
  ot_real largest[OT_PANEL];
  ot_real sum[OT_PANEL];
  ot_real base[OT_PANEL];
  for (int i = 0; i < OT_PANEL; i++) largest[i] = state->largest[first + i];
  for (int64_t j = 0; j < n; j++) {
    const ot_real *const row = scores + j * OT_PANEL;
    for (int i = 0; i < OT_PANEL; i++) largest[i] = row[i] > largest[i] ? row[i] : largest[i];
  }
  for (int i = 0; i < OT_PANEL; i++) {
    // No visible key yet: any finite base makes exp(-inf - base) zero.
    base[i] = largest[i] > -(ot_real)INFINITY ? largest[i] : 0;
    rescale[i] = OT_KERNEL(ot_exp_nonpositive)(state->largest[first + i] - base[i]);
    state->largest[first + i] = largest[i];
    sum[i] = 0;
  }
  for (int64_t j = 0; j < n; j++) {
    ot_real *const row = scores + j * OT_PANEL;
    for (int i = 0; i < OT_PANEL; i++) {
      row[i] = OT_KERNEL(ot_exp_nonpositive)(row[i] - base[i]);
      sum[i] += row[i];
    }
  }
  for (int i = 0; i < OT_PANEL; i++) {
    state->sum[first + i] = state->sum[first + i] * rescale[i] + sum[i];
  }
}

// The rows that write_output will write: each is in another page.
static void prefetch_output(const forward *f, const ot_query_tile *q) {
  const ot_attention *const p = &f->p;
  const int64_t size = ot_dtype_bytes(f->o.tensor->type.dtype);
  for (int64_t i = 0; i < q->n; i++) {
    const char *const row = (const char *)f->o.tensor->data +
                            ot_head_element(p, &f->o, q->b, q->first + i, q->h) * size;
    for (int64_t byte = 0; byte < p->D * size; byte += 64) __builtin_prefetch(row + byte, 1);
  }
}

// Per query of a tile: factors that merge the block with the previous result.
typedef struct joint {
  ot_real output[OT_QUERIES];  // factors of the tile's sum and of o_before
  ot_real before[OT_QUERIES];
  ot_real lse[OT_QUERIES];
} joint;

// The log-sum-exp before the block.
static ot_real seen_before(const forward *f, const ot_query_tile *q, int64_t i) {
  const ot_attention *const p = &f->p;
  if (i >= q->n) return -(ot_real)INFINITY;
  if (f->lse_before) return f->lse_before[(q->b * p->T + q->first + i) * p->H + q->h];
  return ot_sink_of(p->attributes, f->sinks, q->h);
}

// With o_before = sum_before / exp(lse_before), both sums are relative to the larger exponent. A
// sink counts as a previous sum without output.
static joint join(const forward *f, const ot_query_tile *q, const running *state) {
  ot_real lse_before[OT_QUERIES];
  for (int64_t i = 0; i < OT_QUERIES; i++) lse_before[i] = seen_before(f, q, i);
  joint j;
  for (int i = 0; i < OT_QUERIES; i++) {
    const ot_real largest = lse_before[i] > state->largest[i] ? lse_before[i] : state->largest[i];
    const ot_real base = largest > -(ot_real)INFINITY ? largest : 0;
    const ot_real before = OT_KERNEL(ot_exp_nonpositive)(lse_before[i] - base);
    const ot_real block = OT_KERNEL(ot_exp_nonpositive)(state->largest[i] - base);
    const ot_real sum = before + block * state->sum[i];
    j.output[i] = sum > 0 ? block / sum : 0;
    j.before[i] = sum > 0 ? before / sum : 0;
    j.lse[i] = sum > 0 ? base + OT_KERNEL(ot_log)(sum) : -(ot_real)INFINITY;
  }
  return j;
}

static void write_output(const forward *f, const ot_query_tile *q, const slot *s,
                         const running *state) {
  const ot_attention *const p = &f->p;
  const joint j = join(f, q, state);
  ot_real *const row = s->queries;
  for (int64_t i = 0; i < q->n; i++) {
    const ot_real *const column = s->output + i / OT_PANEL * OT_PANEL * p->width + i % OT_PANEL;
    const int64_t first = ot_head_element(p, &f->o, q->b, q->first + i, q->h);
    for (int64_t d = 0; d < p->D; d++) row[d] = column[d * OT_PANEL] * j.output[i];
    if (f->o_before) {
      for (int64_t d = 0; d < p->D; d++) row[d] += j.before[i] * f->o_before[first + d];
    }
    ot_store_row(f->o.tensor->data, f->o.tensor->type.dtype, first, row, p->D);
    f->lse[(q->b * p->T + q->first + i) * p->H + q->h] = j.lse[i];
  }
}

static void run_panel(const ot_tile_pair *pair, int first, const slot *s, running *state) {
  const ot_attention *const p = pair->p;
  const ot_panel_scores scores = {s->scores, OT_PANEL, first};
  ot_scores(pair, s->keys + pair->first * p->width, s->queries, scores);
  if (ot_scores_transform(p->attributes)) ot_transform_scores(pair, scores);
  if (pair->edge) ot_mask_scores(pair, scores, -(ot_real)INFINITY);
  exponentiate(state, first, pair->n, s->scores);
  if (p->attributes->dropout > 0) ot_drop_scores(pair, scores);
  // output = output * rescale + values^T p
  ot_add_rows(pair, s->values + pair->first * p->width, scores, s->output, state->rescale + first);
}

// Returns the largest score. Inlined into run_unit, the GEMMs would run out of registers.
static __attribute__((noinline)) ot_real run_tile(const forward *f, const ot_query_tile *q,
                                                  const slot *s) {
  const ot_attention *const p = &f->p;
  running state;
  for (int i = 0; i < OT_QUERIES; i++) {
    state.largest[i] = -(ot_real)INFINITY;
    state.sum[i] = 0;
  }
  if (q->key_begin < q->key_end) pack_queries(p, q, s);
  prefetch_output(f, q);
  memset(s->output, 0, (size_t)(OT_QUERIES * p->width) * sizeof *s->output);
  for (int64_t first = q->key_begin; first < q->key_end; first += OT_KEYS) {
    const ot_tile_pair pair = ot_tile_pair_of(p, q, first);
    for (int i = 0; i < OT_QUERIES; i += OT_PANEL) run_panel(&pair, i, s, &state);
  }
  write_output(f, q, s, &state);
  ot_real largest = -(ot_real)INFINITY;
  for (int i = 0; i < OT_QUERIES; i++) {
    largest = state.largest[i] > largest ? state.largest[i] : largest;
  }
  return largest;
}

static void run_unit(const forward *f, int64_t unit, ot_real *workspace) {
  const ot_attention *const p = &f->p;
  const ot_attention_unit u = ot_attention_unit_of(p, unit);
  const slot s = slot_of(p, workspace);
  ot_sequence_pack(p, u.b, u.g, s.keys);
  ot_sequence_pack(p, u.b, p->G + u.g, s.values);
  double largest = -INFINITY;
  for (int64_t item = u.part; item < p->heads * p->tiles; item += p->layout.parts) {
    const ot_query_tile q =
        ot_query_tile_of(p, u.b, u.g * p->heads + item / p->tiles, item % p->tiles);
    const double found = (double)run_tile(f, &q, &s);
    largest = found > largest ? found : largest;
  }
  f->maxima[unit] = largest;
}

static void run(const ot_kernel_call *call, const forward *f) {
  const ot_attention *const p = &f->p;
#pragma omp parallel for schedule(dynamic, 1) num_threads(call->attributes->threads)
  for (int64_t unit = 0; unit < p->layout.units; unit++) run_unit(f, unit, call->workspace);
  double *const max_logit = call->out[2].data;
  if (!max_logit) return;
  for (int64_t unit = 0; unit < p->layout.units; unit++) {
    if (f->maxima[unit] > *max_logit) *max_logit = f->maxima[unit];
  }
}

static forward forward_of(const ot_kernel_call *call, ot_op_kind kind) {
  forward f = {.p = ot_attention_of(call, kind, 0), .lse = call->out[1].data};
  f.o = (ot_heads){&call->out[0], f.p.H, 0};
  f.maxima = (double *)((ot_real *)call->workspace + f.p.layout.maxima);
  return f;
}

static void attention(const ot_kernel_call *call) {
  forward f = forward_of(call, OT_OP_ATTENTION);
  f.sinks = &call->in[3];
  run(call, &f);
}

static void attention_block(const ot_kernel_call *call) {
  forward f = forward_of(call, OT_OP_ATTENTION_BLOCK);
  f.o_before = call->in[4].data;
  f.lse_before = call->in[5].data;
  f.sinks = &call->in[6];
  run(call, &f);
}

const ot_kernel_entry OT_KERNEL(ot_attention_cpu)[] = {
    {OT_OP_ATTENTION, attention},
    {OT_OP_ATTENTION_BLOCK, attention_block},
    {OT_OP_COUNT, NULL},
};
