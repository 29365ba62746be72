// SPDX-License-Identifier: Apache-2.0
// The vocabulary-parallel head: the GEMMs are those of linear.h on the chunk's tokens; between them
// one pass over e for the statistics and one for the gradient. The first computes the exponentials;
// the second multiplies a row by one number.
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "kernels/head_rows.h"
#include "kernels/largest.h"
#include "kernels/tiles.h"
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
} row_statistics;

// Replaces a row of logits by its exponentials.
static row_statistics reduce_row(ot_real *restrict row, int64_t n, int64_t target, bool masked,
                                 ot_real cap) {
  if (masked) {
    memset(row, 0, (size_t)n * sizeof *row);
    return (row_statistics){0, 0, -INFINITY};
  }
  ot_soft_cap(row, n, cap);
  const double logit = target >= 0 && target < n ? (double)row[target] : -INFINITY;
  const ot_real largest = ot_row_largest(row, n);
  const double sum = ot_row_exponentials(row, n, largest, cap);
  return (row_statistics){(double)largest, sum, logit};
}

static const row_statistics *statistics_at(const ot_kernel_call *call, const ot_tensor *all,
                                           int64_t shard, int64_t row) {
  return (const row_statistics *)all->data + shard * call->attributes->chunk_rows + row;
}

// The statistics of the whole row, shards in order.
static row_statistics join_row(const ot_kernel_call *call, const ot_tensor *all, int64_t row) {
  const int64_t shards = ot_head_shards(call->attributes);
  row_statistics joined = *statistics_at(call, all, 0, row);
  for (int64_t i = 1; i < shards; i++) {
    const row_statistics *const s = statistics_at(call, all, i, row);
    if (s->largest > joined.largest) joined.largest = s->largest;
    if (s->target != -INFINITY) joined.target = s->target;
  }
  joined.sum = 0;
  for (int64_t i = 0; i < shards; i++) {
    const row_statistics *const s = statistics_at(call, all, i, row);
    joined.sum += s->sum * ot_exp_f64(s->largest - joined.largest);
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
  row_statistics *const statistics = call->out[1].data;
  multiply(call, OT_OP_LINEAR, in, out);
#pragma omp parallel for num_threads(ot_threads_for(call, rows *V))
  for (int64_t r = 0; r < rows; r++) {
    const int64_t target = target_of(call, &call->in[2], r);
    statistics[r] =
        reduce_row((ot_real *)e->data + r * V, V, target - call->attributes->first_vocab,
                   target < 0, (ot_real)call->attributes->soft_cap);
  }
}

// Writes a row of dlogits and returns its loss in nats.
static double row_gradient(const ot_kernel_call *call, int64_t row) {
  const int64_t V = call->in[0].type.dim[1];
  const ot_real *const e = (const ot_real *)call->in[0].data + row * V;
  ot_real *const dlogits = (ot_real *)call->out[0].data + row * V;
  const int32_t target = target_of(call, &call->in[2], row);
  if (target < 0) {
    memset(dlogits, 0, (size_t)V * sizeof *dlogits);
    return 0;
  }
  const double inverse_tokens = *(const double *)call->in[3].data;
  const row_statistics whole = join_row(call, &call->in[1], row);
  const row_statistics *const own =
      statistics_at(call, &call->in[1], call->attributes->group_index, row);
  const ot_real factor =
      (ot_real)(inverse_tokens * ot_exp_f64(own->largest - whole.largest) / whole.sum);
#pragma omp simd
  for (int64_t i = 0; i < V; i++) dlogits[i] = e[i] * factor;
  const int64_t place = target - call->attributes->first_vocab;
  const ot_real slope =
      ot_soft_cap_slope((ot_real)whole.target, (ot_real)call->attributes->soft_cap);
  if (place >= 0 && place < V) dlogits[place] -= (ot_real)inverse_tokens * slope;
  return nats_of_row(whole);
}

static void head_dlogits(const ot_kernel_call *call) {
  const int64_t rows = call->in[0].type.dim[0];
  const int64_t elements = ot_type_elements(&call->in[0].type);
  double *const nats = call->workspace;
#pragma omp parallel for num_threads(ot_threads_for(call, elements))
  for (int64_t r = 0; r < rows; r++) nats[r] = row_gradient(call, r);
  double total = 0;
  for (int64_t r = 0; r < rows; r++) total += nats[r];
  *(double *)call->out[1].data += total * *(const double *)call->in[3].data;
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
