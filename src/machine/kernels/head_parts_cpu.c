// SPDX-License-Identifier: Apache-2.0
// The vocabulary-parallel head: the GEMMs are those of linear.h on the chunk's tokens; between them
// one pass over e for the statistics and one for the gradient. The first computes the exponentials;
// the second multiplies a row by one number.
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "kernels/cpu_tables.h"
#include "kernels/head_rows.h"
#include "kernels/largest.h"
#include "kernels/tiles.h"
#include "ops/head.h"
#include "ops/head_parts.h"
#include "ops/linear.h"

// ---- GEMMs ----

// Runs a kernel of linear.h on `in` and `out`, with the attributes and workspace of `call`.
static void multiply(const ot_kernel_call *call, ot_op_kind kind, const ot_tensor *in,
                     const ot_tensor *out) {
  const ot_kernel_call product = {
      .attributes = call->attributes, .in = in, .out = out, .workspace = call->workspace};
  const ot_kernel_entry *entry = OT_KERNEL(ot_linear_cpu);
  while (entry->kind != kind) entry++;
  entry->run(&product);
}

// The tokens of the chunk in a tensor of all tokens.
static ot_tensor chunk_of(const ot_kernel_call *call, const ot_tensor *x) {
  ot_tensor rows = *x;
  const int64_t columns = x->type.dim[1];
  rows.type.dim[0] = call->attributes->chunk_rows;
  rows.data =
      (char *)x->data + call->attributes->first_row * columns * ot_dtype_bytes(x->type.dtype);
  return rows;
}

// ---- rows ----

// The statistics of one token in one shard.
typedef struct row_statistics {
  double largest, sum, target;
  double pulled;  // with weights only: of the weighted targets in the shard
} row_statistics;

static row_statistics statistics_at(const ot_kernel_call *call, const ot_tensor *all, int64_t shard,
                                    int64_t row) {
  const int64_t width = all->type.dim[1];
  const double *const s =
      (const double *)all->data + (shard * call->attributes->chunk_rows + row) * width;
  return (row_statistics){s[0], s[1], s[2], width == OT_HEAD_WEIGHTED ? s[3] : 0};
}

static void put_statistics(const ot_tensor *to, int64_t row, row_statistics s) {
  const int64_t width = to->type.dim[1];
  double *const at = (double *)to->data + row * width;
  at[0] = s.largest;
  at[1] = s.sum;
  at[2] = s.target;
  if (width == OT_HEAD_WEIGHTED) at[3] = s.pulled;
}

// The sum of the weighted logits of this shard, and how strongly each id pulls its own.
static double read_pulls(const ot_kernel_call *call, const ot_real *row, int64_t index,
                         ot_real *pulls) {
  const ot_head_targets to = ot_head_targets_of(&call->in[3], &call->in[4], &call->in[2], index);
  const ot_real cap = (ot_real)call->attributes->soft_cap;
  double pulled = 0;
  for (int64_t k = 0; k < to.num; k++) {
    const int64_t place = to.ids[k] - call->attributes->first_vocab;
    const bool own = place >= 0 && place < call->out[0].type.dim[1];
    pulls[k] = own ? (ot_real)to.weights[k] * ot_soft_cap_slope(row[place], cap) : 0;
    if (own) pulled += (double)to.weights[k] * (double)row[place];
  }
  return pulled;
}

// Replaces row `r` of the chunk's logits by its exponentials.
static row_statistics reduce_row(const ot_kernel_call *call, int64_t r) {
  const int64_t n = call->out[0].type.dim[1], index = call->attributes->first_row + r;
  const int32_t target = ((const int32_t *)call->in[2].data)[index];
  const ot_real cap = (ot_real)call->attributes->soft_cap;
  ot_real *const row = (ot_real *)call->out[0].data + r * n;
  const int64_t K = call->in[4].data ? call->in[3].type.dim[1] : 0;
  ot_real *const pulls = (ot_real *)call->out[2].data + r * K;
  row_statistics s = {0, 0, -INFINITY, 0};
  if (target < 0) {
    memset(row, 0, (size_t)n * sizeof *row);
    if (K > 0) memset(pulls, 0, (size_t)K * sizeof *pulls);
    return s;
  }
  const int64_t place = target - call->attributes->first_vocab;
  ot_soft_cap(row, n, cap);
  if (place >= 0 && place < n) s.target = (double)row[place];
  if (K > 0) s.pulled = read_pulls(call, row, index, pulls);
  const ot_real largest = ot_row_largest(row, n);
  s.largest = (double)largest;
  s.sum = ot_row_exponentials(row, n, largest, cap);
  return s;
}

// The statistics of the whole row, shards in order.
static row_statistics join_row(const ot_kernel_call *call, const ot_tensor *all, int64_t row) {
  const int64_t shards = ot_head_shards(call->attributes);
  row_statistics joined = statistics_at(call, all, 0, row);
  for (int64_t i = 1; i < shards; i++) {
    const row_statistics s = statistics_at(call, all, i, row);
    if (s.largest > joined.largest) joined.largest = s.largest;
    if (s.target != -INFINITY) joined.target = s.target;
    joined.pulled += s.pulled;
  }
  joined.sum = 0;
  for (int64_t i = 0; i < shards; i++) {
    const row_statistics s = statistics_at(call, all, i, row);
    joined.sum += s.sum * ot_exp_f64(s.largest - joined.largest);
  }
  return joined;
}

static double nats_of_row(row_statistics row) {
  return ot_nats_of(row.target, row.largest, row.sum);
}

static int32_t target_of(const ot_kernel_call *call, const ot_tensor *targets, int64_t row) {
  return ((const int32_t *)targets->data)[call->attributes->first_row + row];
}

// ---- the operators ----

static void head_statistics(const ot_kernel_call *call) {
  const ot_tensor *const e = &call->out[0];
  const int64_t rows = e->type.dim[0], V = e->type.dim[1];
  const ot_tensor in[OT_MAX_INPUTS] = {chunk_of(call, &call->in[0]), call->in[1]};
  const ot_tensor out[OT_MAX_OUTPUTS] = {*e};
  multiply(call, OT_OP_LINEAR, in, out);
#pragma omp parallel for num_threads(ot_threads_for(call, rows *V))
  for (int64_t r = 0; r < rows; r++) put_statistics(&call->out[1], r, reduce_row(call, r));
}

// Subtracts from row `row` of the chunk's dlogits what its weighted targets pull.
static void subtract_pulls(const ot_kernel_call *call, const ot_head_targets *to, int64_t row,
                           ot_real *dlogits) {
  const ot_real *const pulls = (const ot_real *)call->in[6].data + row * to->num;
  const ot_real inverse_tokens = (ot_real) * (const double *)call->in[3].data;
  for (int64_t k = 0; k < to->num; k++) {
    const int64_t place = to->ids[k] - call->attributes->first_vocab;
    const bool own = place >= 0 && place < call->in[0].type.dim[1];
    if (own) dlogits[place] -= inverse_tokens * pulls[k];
  }
}

// Writes a row of dlogits and its losses in nats, of the weighted targets and of the data's.
static void row_gradient(const ot_kernel_call *call, int64_t row, double *nats, double *data) {
  const int64_t V = call->in[0].type.dim[1];
  const ot_real *const e = (const ot_real *)call->in[0].data + row * V;
  ot_real *const dlogits = (ot_real *)call->out[0].data + row * V;
  const int32_t target = target_of(call, &call->in[2], row);
  if (target < 0) {
    memset(dlogits, 0, (size_t)V * sizeof *dlogits);
    *nats = *data = 0;
    return;
  }
  const double inverse_tokens = *(const double *)call->in[3].data;
  const row_statistics whole = join_row(call, &call->in[1], row);
  const row_statistics own = statistics_at(call, &call->in[1], call->attributes->group_index, row);
  const ot_head_targets to = ot_head_targets_of(&call->in[4], &call->in[5], &call->in[2],
                                                call->attributes->first_row + row);
  double weight = 0;
  for (int64_t k = 0; k < to.num; k++) weight += ot_head_weight(&to, k);
  const ot_real factor =
      (ot_real)(inverse_tokens * weight * ot_exp_f64(own.largest - whole.largest) / whole.sum);
#pragma omp simd
  for (int64_t i = 0; i < V; i++) dlogits[i] = e[i] * factor;
  *data = nats_of_row(whole);
  if (to.weights) {
    *nats = ot_weighted_nats_of(weight, whole.pulled, whole.largest, whole.sum);
    subtract_pulls(call, &to, row, dlogits);
    return;
  }
  *nats = *data;
  const int64_t place = target - call->attributes->first_vocab;
  const ot_real slope =
      ot_soft_cap_slope((ot_real)whole.target, (ot_real)call->attributes->soft_cap);
  if (place >= 0 && place < V) dlogits[place] -= (ot_real)inverse_tokens * slope;
}

static void head_dlogits(const ot_kernel_call *call) {
  const int64_t rows = call->in[0].type.dim[0];
  const int64_t elements = ot_type_elements(&call->in[0].type);
  double *const nats = call->workspace;
  double *const data_nats = call->in[5].data ? nats + rows : NULL;
#pragma omp parallel for num_threads(ot_threads_for(call, elements))
  for (int64_t r = 0; r < rows; r++) {
    double data;
    row_gradient(call, r, &nats[r], &data);
    if (data_nats) data_nats[r] = data;
  }
  double total = 0, data_total = 0;
  for (int64_t r = 0; r < rows; r++) total += nats[r];
  for (int64_t r = 0; data_nats && r < rows; r++) data_total += data_nats[r];
  *(double *)call->out[1].data += total * *(const double *)call->in[3].data;
  if (call->out[2].data) *(double *)call->out[2].data += data_total;
}

static void head_gradient(const ot_kernel_call *call) {
  const ot_tensor *const dx = &call->out[0];
  const void *const before = call->in[0].data;
  const ot_tensor x = chunk_of(call, &call->in[2]);
  const int64_t row_bytes = dx->type.dim[1] * ot_dtype_bytes(dx->type.dtype);
  if (before && before != dx->data) {
    memcpy(dx->data, before, (size_t)(call->attributes->first_row * row_bytes));
  }
  const ot_tensor dx_in[OT_MAX_INPUTS] = {call->in[1], call->in[3]};
  const ot_tensor dx_out[OT_MAX_OUTPUTS] = {chunk_of(call, dx)};
  multiply(call, OT_OP_LINEAR_DX, dx_in, dx_out);
  if (!call->out[1].data) return;
  const ot_tensor dw_in[OT_MAX_INPUTS] = {call->in[1], x};
  const ot_tensor dw_out[OT_MAX_OUTPUTS] = {call->out[1]};
  multiply(call, OT_OP_LINEAR_DW, dw_in, dw_out);
}

static void head_count(const ot_kernel_call *call) {
  double total = 0;
  int64_t count = 0;
  for (int64_t r = 0; r < call->attributes->chunk_rows; r++) {
    if (target_of(call, &call->in[1], r) < 0) continue;
    total += nats_of_row(join_row(call, &call->in[0], r));
    count++;
  }
  *(double *)call->out[0].data += total;
  *(double *)call->out[1].data += (double)count;
}

const ot_kernel_entry OT_KERNEL(ot_head_parts_cpu)[] = {
    {OT_OP_HEAD_STATISTICS, head_statistics}, {OT_OP_HEAD_DLOGITS, head_dlogits},
    {OT_OP_HEAD_GRADIENT, head_gradient},     {OT_OP_HEAD_GRADIENT_LAST, head_gradient},
    {OT_OP_HEAD_COUNT, head_count},           {OT_OP_COUNT, NULL},
};
