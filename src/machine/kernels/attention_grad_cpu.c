// SPDX-License-Identifier: Apache-2.0
// Attention backward (Dao et al. 2022, algorithm 4, queries outside). With p from lse and
// delta_i = do_i . o_i:
//   dv_j = sum_i p_ij do_i    dp_ij = do_i . v_j    ds_ij = p_ij (dp_ij - delta_i)
//   dq_i = scale sum_j ds_ij k_j                    dk_j = scale sum_i ds_ij q_i
// Where scores are transformed (attention_score.h), ds_ij is multiplied by the slope.
// A unit owns dk and dv of its key head and adds query tiles in order. Few heads make few units:
// then the query tiles are divided among several units, each with its own dk and dv, which are
// added in unit order. A ring block is the same with the keys of another sequence block, added to
// the previous result.
#include <omp.h>

#include "kernels/attention_score.h"
#include "kernels/attention_tile.h"
#include "kernels/cpu_tables.h"
#include "kernels/real.h"
#include "kernels/vector_math.h"

// A thread's slot of the workspace.
typedef struct slot {
  ot_real *keys, *values, *dkeys, *dvalues;  // [layout.keys][width]
  ot_real *queries, *outputs;                // [OT_QUERIES][width] scale * q, do
  ot_real *queries_t, *outputs_t;            // [panel][width][OT_PANEL]
  ot_real *dqueries_t;                       // [panel][width][OT_PANEL]
  ot_real *p, *ds;                           // [OT_KEYS][OT_QUERIES]
} slot;

// Destination of head gradients, and the previous value that is added.
typedef struct gradient {
  ot_heads to;
  const ot_real *before;  // like `to`, in the compute type, or null
} gradient;

typedef struct backward {
  ot_attention p;
  ot_heads doutput, o;
  gradient dqueries, dkeys;  // in dkeys, head G + g is the values
  const ot_real *lse;        // [R, H]
  ot_real *workspace;
} backward;

// State per query of a tile.
typedef struct per_query {
  ot_real lse[OT_QUERIES];
  ot_real delta[OT_QUERIES];
} per_query;

static ot_real *partial_of(const backward *f, int64_t unit) {
  const ot_attention_layout *const layout = &f->p.layout;
  return f->workspace + f->p.attributes->threads * layout->slot + unit * layout->partial;
}

static slot slot_of(const backward *f, int64_t unit) {
  const ot_attention *const p = &f->p;
  const int64_t sequence = p->layout.keys * p->width;
  const int64_t tile = OT_QUERIES * p->width;
  slot s;
  s.keys = f->workspace + omp_get_thread_num() * p->layout.slot;
  s.values = s.keys + sequence;
  s.dkeys = s.values + sequence;
  s.dvalues = s.dkeys + sequence;
  s.queries = s.dvalues + sequence;
  s.outputs = s.queries + tile;
  s.queries_t = s.outputs + tile;
  s.outputs_t = s.queries_t + tile;
  s.dqueries_t = s.outputs_t + tile;
  s.p = s.dqueries_t + tile;
  s.ds = s.p + OT_KEYS * OT_QUERIES;
  if (p->layout.parts > 1) {
    s.dkeys = partial_of(f, unit);
    s.dvalues = s.dkeys + sequence;
  }
  return s;
}

static void pack_tile(const backward *f, const ot_query_tile *q, const slot *s, per_query *each) {
  const ot_attention *const p = &f->p;
  const ot_real scale = (ot_real)p->attributes->scale;
  ot_tile_pack(p, &p->queries, q, s->queries);
  for (int64_t k = 0; k < OT_QUERIES * p->width; k++) s->queries[k] *= scale;
  ot_panels_transpose(s->queries, p->width, 1, s->queries_t);
  ot_real *const o = s->dqueries_t;
  ot_tile_pack(p, &f->o, q, o);
  ot_tile_pack(p, &f->doutput, q, s->outputs);
  ot_panels_transpose(s->outputs, p->width, 1, s->outputs_t);
  for (int64_t i = 0; i < OT_QUERIES; i++) {
    const bool given = i < q->n;
    each->lse[i] = given ? f->lse[(q->b * p->T + q->first + i) * p->H + q->h] : 0;
    ot_real sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t d = 0; d < p->width; d++)
      sum += o[i * p->width + d] * s->outputs[i * p->width + d];
    each->delta[i] = sum;
  }
}

// p = exp(scores - lse)
static void probabilities(const per_query *each, int64_t n, ot_panel_scores scores) {
  const ot_real *const lse = each->lse + scores.first;
  for (int64_t j = 0; j < n; j++) {
    ot_real *const row = scores.data + j * scores.stride;
    for (int i = 0; i < OT_PANEL; i++) row[i] = OT_KERNEL(ot_exp_nonpositive)(row[i] - lse[i]);
  }
}

// ds = p (dp - delta) in place of dp
static void score_gradients(const per_query *each, int64_t n, ot_panel_scores p,
                            ot_panel_scores dp) {
  const ot_real *const delta = each->delta + p.first;
  for (int64_t j = 0; j < n; j++) {
    const ot_real *const weight = p.data + j * p.stride;
    ot_real *const row = dp.data + j * dp.stride;
    for (int i = 0; i < OT_PANEL; i++) row[i] = weight[i] * (row[i] - delta[i]);
  }
}

// Converts ds of transformed scores to ds of scaled scores.
static void multiply_slopes(int64_t n, const ot_real *slopes, ot_panel_scores ds) {
  for (int64_t j = 0; j < n; j++) {
    ot_real *const row = ds.data + j * ds.stride;
    for (int i = 0; i < OT_PANEL; i++) row[i] *= slopes[j * OT_PANEL + i];
  }
}

// sums[j] += sum over queries of weights[j][i] rows[i], for the group of keys from `key` on.
// Queries before the first key or beyond the window of the last have weight 0.
static void add_key_group(const ot_tile_pair *pair, int64_t key, const ot_real *weights,
                          const ot_real *rows, ot_real *sums) {
  const ot_attention *const p = pair->p;
  const int64_t first = pair->q->first;
  const int64_t window = p->attributes->window;
  const int64_t oldest = ot_token_position(&p->key_places, key);
  const int64_t newest = ot_token_position(&p->key_places, key + OT_TILE_ROWS - 1);
  const int64_t before = ot_tokens_before(&p->query_places, oldest);
  const int64_t seeing = ot_tokens_before(&p->query_places, newest + window) - first;
  const int64_t begin = before > first ? before - first : 0;
  const int64_t end = window > 0 && seeing < OT_QUERIES ? seeing : OT_QUERIES;
  const int64_t vectors = (p->D + OT_VECTOR_LANES - 1) / OT_VECTOR_LANES;
  for (int64_t v = 0; v < vectors && begin < end; v += OT_TILE_VECTORS) {
    const ot_register_tile tile = {.a = weights + begin,
                                   .a_row = OT_QUERIES,
                                   .a_depth = 1,
                                   .b = rows + begin * p->width + v * OT_VECTOR_LANES,
                                   .b_stride = p->width,
                                   .c = sums + v * OT_VECTOR_LANES,
                                   .c_stride = p->width,
                                   .depth = end - begin};
    if (v + 1 < vectors) {
      ot_tile_multiply(&tile, OT_TILE_VECTORS, OT_TILE_ADD, NULL);
    } else {
      ot_tile_multiply(&tile, 1, OT_TILE_ADD, NULL);
    }
  }
}

// The last group may extend beyond the sequence; the excess rows are never read.
static void add_key_gradients(const ot_tile_pair *pair, const slot *s) {
  const int64_t width = pair->p->width;
  for (int64_t j = 0; j < pair->n; j += OT_TILE_ROWS) {
    const int64_t key = pair->first + j;
    add_key_group(pair, key, s->p + j * OT_QUERIES, s->outputs, s->dvalues + key * width);
    add_key_group(pair, key, s->ds + j * OT_QUERIES, s->queries, s->dkeys + key * width);
  }
}

// Stores `row` [D], overwriting it, as head `head` of token `t`.
static void write_gradient(const backward *f, const gradient *g, const int64_t *at, ot_real *row) {
  const ot_attention *const p = &f->p;
  const int64_t first = ot_head_element(p, &g->to, at[0], at[1], at[2]);
  if (g->before) {
    for (int64_t d = 0; d < p->D; d++) row[d] += g->before[first + d];
  }
  ot_store_row(g->to.tensor->data, g->to.tensor->type.dtype, first, row, p->D);
}

static void write_query_gradients(const backward *f, const ot_query_tile *q, const slot *s) {
  const ot_attention *const p = &f->p;
  const ot_real scale = (ot_real)p->attributes->scale;
  ot_real *const row = s->queries;
  for (int64_t i = 0; i < q->n; i++) {
    const ot_real *const column = s->dqueries_t + i / OT_PANEL * OT_PANEL * p->width + i % OT_PANEL;
    for (int64_t d = 0; d < p->D; d++) row[d] = column[d * OT_PANEL] * scale;
    write_gradient(f, &f->dqueries, (int64_t[]){q->b, q->first + i, q->h}, row);
  }
}

// p and ds of a panel, and its contribution to dq.
static void run_panel(const ot_tile_pair *pair, int first, const slot *s, const per_query *each) {
  const int64_t width = pair->p->width;
  const bool drops = pair->p->attributes->dropout > 0;
  const bool transforms = ot_scores_transform(pair->p->attributes);
  ot_real slopes[OT_KEYS * OT_PANEL];
  const ot_panel_scores p = {s->p + first, OT_QUERIES, first};
  const ot_panel_scores ds = {s->ds + first, OT_QUERIES, first};
  ot_scores(pair, s->keys + pair->first * width, s->queries_t, p);
  if (transforms) ot_transform_scores(pair, p);
  if (transforms) ot_score_slopes(pair, p, slopes);
  probabilities(each, pair->n, p);
  if (pair->edge) ot_mask_scores(pair, p, 0);
  ot_scores(pair, s->values + pair->first * width, s->outputs_t, ds);
  if (drops) ot_drop_scores(pair, ds);
  score_gradients(each, pair->n, p, ds);
  if (transforms) multiply_slopes(pair->n, slopes, ds);
  if (pair->edge) ot_mask_scores(pair, ds, 0);
  if (drops) ot_drop_scores(pair, p);
  ot_add_rows(pair, s->keys + pair->first * width, ds, s->dqueries_t, NULL);
}

// Stores rows [T][width], overwriting them, of dk (head g) or dv (head G + g).
static void write_key_gradients(const backward *f, int64_t b, int64_t head, ot_real *rows) {
  const ot_attention *const p = &f->p;
  for (int64_t t = 0; t < p->T; t++) {
    write_gradient(f, &f->dkeys, (int64_t[]){b, t, head}, rows + t * p->width);
  }
}

static void run_unit(const backward *f, int64_t unit) {
  const ot_attention *const p = &f->p;
  const ot_attention_unit u = ot_attention_unit_of(p, unit);
  const slot s = slot_of(f, unit);
  const size_t bytes = (size_t)(p->layout.keys * p->width) * sizeof *s.dkeys;
  ot_sequence_pack(p, u.b, u.g, s.keys);
  ot_sequence_pack(p, u.b, p->G + u.g, s.values);
  memset(s.dkeys, 0, bytes);
  memset(s.dvalues, 0, bytes);
  for (int64_t item = u.part; item < p->heads * p->tiles; item += p->layout.parts) {
    const ot_query_tile q =
        ot_query_tile_of(p, u.b, u.g * p->heads + item / p->tiles, item % p->tiles);
    per_query each;
    if (q.key_begin < q.key_end) pack_tile(f, &q, &s, &each);
    memset(s.dqueries_t, 0, (size_t)(OT_QUERIES * p->width) * sizeof *s.dqueries_t);
    for (int64_t first = q.key_begin; first < q.key_end; first += OT_KEYS) {
      const ot_tile_pair pair = ot_tile_pair_of(p, &q, first);
      for (int i = 0; i < OT_QUERIES; i += OT_PANEL) run_panel(&pair, i, &s, &each);
      add_key_gradients(&pair, &s);
    }
    write_query_gradients(f, &q, &s);
  }
  if (p->layout.parts > 1) return;
  write_key_gradients(f, u.b, u.g, s.dkeys);
  write_key_gradients(f, u.b, p->G + u.g, s.dvalues);
}

// Adds the parts of one (sequence, key head) into its first part and stores it.
static void join_parts(const backward *f, int64_t group) {
  const ot_attention *const p = &f->p;
  const int64_t first = group * p->layout.parts;
  ot_real *const total = partial_of(f, first);
  for (int64_t part = 1; part < p->layout.parts; part++) {
    const ot_real *const more = partial_of(f, first + part);
    for (int64_t k = 0; k < p->layout.partial; k++) total[k] += more[k];
  }
  const ot_attention_unit u = ot_attention_unit_of(p, first);
  write_key_gradients(f, u.b, u.g, total);
  write_key_gradients(f, u.b, p->G + u.g, total + p->layout.partial / 2);
}

static void run(const backward *f) {
  const int threads = f->p.attributes->threads;
  const int64_t units = f->p.layout.units;
  const int64_t parts = f->p.layout.parts;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
  for (int64_t unit = 0; unit < units; unit++) run_unit(f, unit);
  if (parts == 1) return;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
  for (int64_t group = 0; group < units / parts; group++) join_parts(f, group);
}

// o and lse are inputs `saved` and `saved` + 1.
static backward backward_of(const ot_kernel_call *call, ot_op_kind kind, int saved) {
  backward f = {.p = ot_attention_of(call, kind, 1),
                .lse = call->in[saved + 1].data,
                .workspace = call->workspace};
  f.doutput = (ot_heads){&call->in[0], f.p.H, 0};
  f.o = (ot_heads){&call->in[saved], f.p.H, 0};
  return f;
}

static void attention_grad(const ot_kernel_call *call) {
  backward f = backward_of(call, OT_OP_ATTENTION_GRAD, 4);
  f.dqueries.to = (ot_heads){&call->out[0], f.p.H + 2 * f.p.G, 0};
  f.dkeys.to = (ot_heads){&call->out[0], f.p.H + 2 * f.p.G, f.p.H};
  run(&f);
}

static void attention_block_grad(const ot_kernel_call *call) {
  backward f = backward_of(call, OT_OP_ATTENTION_BLOCK_GRAD, 5);
  f.dqueries = (gradient){{&call->out[0], f.p.H, 0}, call->in[7].data};
  f.dkeys = (gradient){{&call->out[1], 2 * f.p.G, 0}, call->in[8].data};
  run(&f);
}

// The gradient of one head's sink, summed over tokens in order.
static double sink_gradient(const ot_kernel_call *call, int64_t head) {
  const ot_op_attributes *const a = call->attributes;
  const int64_t R = call->in[0].type.dim[0], H = a->num_heads, D = a->head_dim;
  const ot_real *const lse = call->in[2].data;
  const ot_real sink = ot_sink_of(a, &call->in[3], head);
  double total = 0;
  for (int64_t r = 0; r < R; r++) {
    const int64_t first = (r * H + head) * D;
    ot_real delta = 0;
    for (int64_t d = 0; d < D; d += OT_TILE) {
      const int64_t n = D - d < OT_TILE ? D - d : OT_TILE;
      ot_real scratch[2][OT_TILE];
      const ot_real *const dout =
          ot_row_in(call->in[0].data, call->in[0].type.dtype, first + d, n, scratch[0]);
      const ot_real *const o =
          ot_row_in(call->in[1].data, call->in[1].type.dtype, first + d, n, scratch[1]);
#pragma omp simd reduction(+ : delta)
      for (int64_t i = 0; i < n; i++) delta += dout[i] * o[i];
    }
    total -= (double)(OT_KERNEL(ot_exp_nonpositive)(sink - lse[r * H + head]) * delta);
  }
  return total;
}

static void attention_sinks_grad(const ot_kernel_call *call) {
  const ot_op_attributes *const a = call->attributes;
  const ot_tensor *const dsinks = &call->out[0];
#pragma omp parallel for num_threads(a->threads)
  for (int64_t i = 0; i < dsinks->type.dim[0]; i++) {
    const int64_t head = i - a->first_sink;
    ot_real sum = 0;
    if (a->accumulate) ot_load_row(&sum, dsinks->data, dsinks->type.dtype, i, 1);
    if (head >= 0 && head < a->num_heads) sum += (ot_real)sink_gradient(call, head);
    ot_store_row(dsinks->data, dsinks->type.dtype, i, &sum, 1);
  }
}

const ot_kernel_entry OT_KERNEL(ot_attention_grad_cpu)[] = {
    {OT_OP_ATTENTION_GRAD, attention_grad},
    {OT_OP_ATTENTION_SINKS_GRAD, attention_sinks_grad},
    {OT_OP_ATTENTION_BLOCK_GRAD, attention_block_grad},
    {OT_OP_COUNT, NULL},
};
