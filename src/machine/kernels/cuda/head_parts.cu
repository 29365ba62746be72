// SPDX-License-Identifier: Apache-2.0
// The head of a sharded vocabulary: a block of threads for each row of logits, products by
// matmul.h. For those, dlogits are narrowed to the type of x, as the head as one op does.
#include "kernels/cuda/head_products.cuh"
#include "kernels/cuda/logits.cuh"

extern "C" {
#include "kernels/cuda/tables.h"
#include "workspace/cuda_workspace.h"
#include "ops/head.h"
#include "ops/head_parts.h"
}

namespace {

enum { THREADS = OT_LOGIT_THREADS, PASS_THREADS = 256 };

// ---- rows ----

// The statistics of one token in one shard.
struct row_statistics {
  double largest, sum, target;
  double pulled;  // with weights only
};

// Statistics [shards, rows, width] of the tokens of a chunk.
struct all_statistics {
  const double *of;
  int64_t rows;
  int shards, width;

  __device__ row_statistics at(int shard, int64_t row) const {
    const double *const s = of + (shard * rows + row) * width;
    return {s[0], s[1], s[2], width == OT_HEAD_WEIGHTED ? s[3] : 0};
  }

  // The statistics of a whole row, shards in order.
  __device__ row_statistics join(int64_t row) const {
    row_statistics joined = at(0, row);
    for (int i = 1; i < shards; i++) {
      const row_statistics s = at(i, row);
      if (s.largest > joined.largest) joined.largest = s.largest;
      if (s.target != -INFINITY) joined.target = s.target;
      joined.pulled += s.pulled;
    }
    joined.sum = 0;
    for (int i = 0; i < shards; i++) {
      const row_statistics s = at(i, row);
      joined.sum += s.sum * exp(s.largest - joined.largest);
    }
    return joined;
  }
};

__device__ __forceinline__ double nats_of(const row_statistics &whole) {
  return log(whole.sum) + (whole.largest - whole.target);
}

template <class R>
struct statistics_task {
  const R *logits;  // [rows, stride], which may be e
  int64_t stride;
  R *e;  // [rows, V]
  int64_t V, first_vocab;
  const int32_t *targets;
  double cap;
  ot_weighted_targets weighted;
  R *pulls;            // [rows, K]
  double *statistics;  // [rows, width]
  int width;
};

// Writes the pulls of a row; returns this thread's part of the sum of weighted logits.
template <class R>
__device__ double read_pulls(const statistics_task<R> &t, const R *row, int64_t r, bool masked) {
  const ot_row_targets to(t.weighted, r, t.targets);
  double pulled = 0;
  for (int k = threadIdx.x; k < to.K; k += THREADS) {
    const int64_t place = to.ids[k] - t.first_vocab;
    const bool own = !masked && place >= 0 && place < t.V;
    const R x = own ? ot_capped_logit(row[place], (R)t.cap) : (R)0;
    t.pulls[r * to.K + k] = own ? (R)to.weights[k] * ot_cap_slope(x, (R)t.cap) : (R)0;
    if (own) pulled += (double)to.weights[k] * (double)x;
  }
  return pulled;
}

// Exponentials of each row of logits. Target ids are relative to first_vocab.
template <class R>
__global__ void __launch_bounds__(THREADS) statistics_kernel(statistics_task<R> t) {
  __shared__ double parts[THREADS / 32], more_parts[THREADS / 32];
  __shared__ R most[THREADS / 32];
  const int64_t V = t.V, r = blockIdx.x;
  const double cap = t.cap;
  const R *const row = t.logits + r * t.stride;
  R *const e = t.e + r * V;
  const bool masked = t.targets[r] < 0;
  const int64_t target = t.targets[r] - t.first_vocab;
  row_statistics s = {0, 0, -INFINITY, 0};
  if (t.pulls) s.pulled = ot_block_sum<THREADS>(read_pulls(t, row, r, masked), more_parts);
  if (masked) {
    for (int64_t i = threadIdx.x; i < V; i += THREADS) e[i] = 0;
  } else {
    const bool own = target >= 0 && target < V;
    const R largest = ot_largest_logit(row, V, (R)cap, most);
    if (own) s.target = (double)ot_capped_logit(row[target], (R)cap);
    __syncthreads();
#pragma unroll 2
    for (int64_t i = threadIdx.x; i < V; i += THREADS) {
      const R x = ot_capped_logit(row[i], (R)cap), above = exp(x - largest);
      s.sum += (double)above;
      e[i] = above * ot_cap_slope(x, (R)cap);
    }
    s.largest = (double)largest;
    s.sum = ot_block_sum<THREADS>(s.sum, parts);
  }
  if (threadIdx.x > 0) return;
  double *const to = t.statistics + r * t.width;
  to[0] = s.largest;
  to[1] = s.sum;
  to[2] = s.target;
  if (t.width == OT_HEAD_WEIGHTED) to[3] = s.pulled;
}

template <class R>
struct dlogits_task {
  const R *e;
  R *dlogits;  // may be e
  all_statistics all;
  const int32_t *targets;
  const double *inverse_tokens;
  double *nats, *data_nats;  // of the weighted targets, and of the data's; or of these and null
  int64_t V, first_vocab;
  int shard;
  double cap;
  ot_weighted_targets weighted;
  const R *pulls;  // [rows, K]

  // Subtracts the pulls of row `r`.
  __device__ void subtract(int64_t r) const {
    const ot_row_targets to(weighted, r, targets);
    for (int k = threadIdx.x; k < to.K; k += PASS_THREADS) {
      const int64_t place = to.ids[k] - first_vocab;
      if (place < 0 || place >= V || !to.is_first(k)) continue;
      R *const d = dlogits + r * V + place;
      for (int j = k; j < to.K; j++) {
        if (to.ids[j] == to.ids[k]) *d -= (R)*inverse_tokens * pulls[r * to.K + j];
      }
    }
  }
};

// A block a row, N elements at once.
template <class R, int N>
__global__ void __launch_bounds__(PASS_THREADS) dlogits_kernel(dlogits_task<R> t) {
  __shared__ row_statistics joined;
  const int64_t r = blockIdx.x;
  const bool masked = t.targets[r] < 0;
  const int64_t target = t.targets[r] - t.first_vocab;
  const double weight = ot_row_targets(t.weighted, r, t.targets).sum();
  if (threadIdx.x == 0) {
    joined = t.all.join(r);
    const double data = masked ? 0 : nats_of(joined);
    const double all = weight * log(joined.sum) + (weight * joined.largest - joined.pulled);
    t.nats[r] = t.pulls && !masked ? all : data;
    if (t.data_nats) t.data_nats[r] = data;
  }
  __syncthreads();
  const double inverse = *t.inverse_tokens;
  const double own = exp(t.all.at(t.shard, r).largest - joined.largest);
  const R factor = (R)(inverse * weight * own / joined.sum);
  const R one = t.pulls ? (R)0 : (R)inverse * ot_cap_slope((R)joined.target, (R)t.cap);
#pragma unroll 4
  for (int64_t i = threadIdx.x * N; i < t.V; i += PASS_THREADS * N) {
    R x[N];
    ot_load(t.e + r * t.V + i, x);
#pragma unroll
    for (int k = 0; k < N; k++) {
      const R d = x[k] * factor - (i + k == target ? one : (R)0);
      x[k] = masked ? (R)0 : d;
    }
    ot_store(t.dlogits + r * t.V + i, x);
  }
  if (!t.pulls || masked) return;
  __syncthreads();
  t.subtract(r);
}

__global__ void __launch_bounds__(PASS_THREADS)
    nats_kernel(all_statistics all, const int32_t *targets, double *nats) {
  const int64_t r = (int64_t)blockIdx.x * PASS_THREADS + threadIdx.x;
  if (r < all.rows) nats[r] = targets[r] < 0 ? 0 : nats_of(all.join(r));
}

// Narrows rows of `columns` to rows that are `stride` elements apart, up to that with zeros.
template <class R>
__global__ void __launch_bounds__(PASS_THREADS)
    narrow_kernel(const R *from, int64_t columns, ot_bf16 *to, int64_t stride) {
  const int64_t i = ((int64_t)blockIdx.y * PASS_THREADS + threadIdx.x) * 2, row = blockIdx.x;
  if (i >= stride) return;
  R x[2] = {0, 0};
#pragma unroll
  for (int k = 0; k < 2; k++) {
    if (i + k < columns) x[k] = from[row * columns + i + k];
  }
  ot_store(to + row * stride + i, x);
}

// ---- the operators ----

const int32_t *targets_of(const ot_kernel_call *call, const ot_tensor *targets) {
  return (const int32_t *)targets->data + call->attributes->first_row;
}

all_statistics statistics_of(const ot_kernel_call *call, const ot_tensor *all) {
  return {(const double *)all->data, call->attributes->chunk_rows,
          (int)ot_head_shards(call->attributes), (int)all->type.dim[1]};
}

ot_cuda_matrix matrix_of(const ot_tensor *tensor, bool transposed) {
  return {tensor->data, tensor->type.dtype, tensor->type.dim[1], transposed};
}

// The tokens of the chunk in a tensor of all tokens.
ot_cuda_matrix chunk_of(const ot_kernel_call *call, const ot_tensor *x) {
  ot_cuda_matrix rows = matrix_of(x, false);
  const int64_t first = call->attributes->first_row * x->type.dim[1];
  rows.data = (const char *)x->data + first * ot_dtype_bytes(x->type.dtype);
  return rows;
}

// Queues x w^T into the memory of e, or with w copied for it into the workspace.
ot_cuda_matrix multiply_by_w(const ot_kernel_call *call) {
  const ot_op_attributes *const a = call->attributes;
  const ot_tensor *const in = call->in;
  const ot_op_types types = {.in = {in[0].type, in[1].type}, .out = {}};
  const ot_cuda_head_statistics_layout layout = ot_cuda_head_statistics_layout_of(a, &types);
  const bool pads = layout.total_bytes > 0;
  char *const copy = (char *)call->workspace + layout.w;
  ot_cuda_product logits = {.rows = a->chunk_rows,
                            .columns = pads ? layout.stride : in[1].type.dim[0],
                            .depth = in[1].type.dim[1],
                            .a = chunk_of(call, &in[0]),
                            .b = matrix_of(&in[1], true),
                            .y = matrix_of(&call->out[0], false),
                            .addend = {},
                            .bias = {},
                            .compute = a->compute};
  if (pads) {
    ot_copy_padded(ot_cuda_stream_of(call), in[1], layout.stride, copy);
    logits.b.data = copy;
    logits.y.data = (char *)call->workspace + layout.logits;
    logits.y.stride = layout.stride;
  }
  ot_cuda_multiply(ot_cuda_context_of(call), &logits);
  return logits.y;
}

// e = exp(x w^T - largest)
template <class R>
void head_statistics(const ot_kernel_call *call) {
  const ot_op_attributes *const a = call->attributes;
  const ot_tensor *const in = call->in, *const e = &call->out[0];
  const ot_cuda_matrix logits = multiply_by_w(call);
  const statistics_task<R> task = {(const R *)logits.data,
                                   logits.stride,
                                   (R *)e->data,
                                   e->type.dim[1],
                                   a->first_vocab,
                                   targets_of(call, &in[2]),
                                   a->soft_cap,
                                   ot_weighted_targets_of(in[3], in[4], a->first_row),
                                   in[4].data ? (R *)call->out[2].data : nullptr,
                                   (double *)call->out[1].data,
                                   (int)call->out[1].type.dim[1]};
  OT_LAUNCH(statistics_kernel<R>, (unsigned)a->chunk_rows, THREADS, 0, ot_cuda_stream_of(call),
            task);
}

template <class R>
void head_dlogits(const ot_kernel_call *call) {
  const ot_op_attributes *const a = call->attributes;
  const ot_tensor *const in = call->in, *const out = call->out;
  const int64_t V = in[0].type.dim[1];
  const dlogits_task<R> task = {(const R *)in[0].data,
                                (R *)out[0].data,
                                statistics_of(call, &in[1]),
                                targets_of(call, &in[2]),
                                (const double *)in[3].data,
                                (double *)call->workspace,
                                in[5].data ? (double *)call->workspace + a->chunk_rows : nullptr,
                                V,
                                a->first_vocab,
                                a->group_index,
                                a->soft_cap,
                                ot_weighted_targets_of(in[4], in[5], a->first_row),
                                (const R *)in[6].data};
  const void *const all[] = {in[0].data, out[0].data};
  constexpr int N = 16 / (int)sizeof(R);
  const unsigned rows = (unsigned)a->chunk_rows;
  void *const stream = ot_cuda_stream_of(call);
  if (ot_fits_vectors(a->compute, V, all, 2)) {
    OT_LAUNCH((dlogits_kernel<R, N>), rows, PASS_THREADS, 0, stream, task);
  } else {
    OT_LAUNCH((dlogits_kernel<R, 1>), rows, PASS_THREADS, 0, stream, task);
  }
  OT_LAUNCH(ot_add_nats, 1, THREADS, 0, stream, (const double *)task.nats, task.targets,
            a->chunk_rows, task.inverse_tokens, (double *)out[1].data, (double *)nullptr);
  if (!task.data_nats) return;
  OT_LAUNCH(ot_add_nats, 1, THREADS, 0, stream, (const double *)task.data_nats, task.targets,
            a->chunk_rows, (const double *)nullptr, (double *)out[2].data, (double *)nullptr);
}

ot_cuda_head_gradient_layout gradient_layout_of(const ot_kernel_call *call) {
  ot_op_types types = {};
  for (int i = 2; i < 4; i++) types.in[i] = call->in[i].type;
  return ot_cuda_head_gradient_layout_of(call->attributes, &types);
}

// dlogits for products: themselves, or narrowed to bf16 if x is stored so.
template <class R>
ot_cuda_matrix factor_of(const ot_kernel_call *call, const ot_cuda_head_gradient_layout &layout) {
  const ot_tensor *const dlogits = &call->in[1];
  if (call->in[2].type.dtype != OT_BF16) return matrix_of(dlogits, false);
  ot_bf16 *const to = (ot_bf16 *)((char *)call->workspace + layout.dlogits);
  const dim3 grid((unsigned)dlogits->type.dim[0], ot_blocks(layout.stride, 2 * PASS_THREADS));
  OT_LAUNCH(narrow_kernel<R>, grid, PASS_THREADS, 0, ot_cuda_stream_of(call),
            (const R *)dlogits->data, dlogits->type.dim[1], to, layout.stride);
  return {to, OT_BF16, layout.stride, false};
}

// dx = dlogits w
void input_gradient(const ot_kernel_call *call, const ot_cuda_head_gradient_layout &layout,
                    const ot_cuda_matrix &dlogits) {
  const ot_tensor *const in = call->in, *const dx = &call->out[0];
  const bool pads = layout.w >= 0;
  ot_cuda_matrix w = matrix_of(&in[3], false);
  if (pads) {
    w.data = (char *)call->workspace + layout.w;
    ot_copy_padded(ot_cuda_stream_of(call), in[3], layout.stride, (void *)w.data);
  }
  const ot_cuda_product product = {.rows = in[1].type.dim[0],
                                   .columns = dx->type.dim[1],
                                   .depth = pads ? layout.stride : in[1].type.dim[1],
                                   .a = dlogits,
                                   .b = w,
                                   .y = chunk_of(call, dx),
                                   .addend = {},
                                   .bias = {},
                                   .compute = call->attributes->compute};
  ot_cuda_multiply(ot_cuda_context_of(call), &product);
}

// dw (+)= dlogits^T x
void weight_gradient(const ot_kernel_call *call, ot_cuda_matrix dlogits, bool splits) {
  const ot_tensor *const in = call->in, *const dw = &call->out[1];
  dlogits.transposed = true;
  const bool adds = call->attributes->accumulate;
  const ot_cuda_product product = {.rows = in[1].type.dim[1],
                                   .columns = dw->type.dim[1],
                                   .depth = in[1].type.dim[0],
                                   .a = dlogits,
                                   .b = chunk_of(call, &in[2]),
                                   .y = matrix_of(dw, false),
                                   .addend = adds ? matrix_of(dw, false) : ot_cuda_matrix{},
                                   .bias = {},
                                   .compute = call->attributes->compute};
  ot_multiply_by_rows(ot_cuda_context_of(call), &product, splits);
}

template <class R>
void head_gradient(const ot_kernel_call *call) {
  const ot_tensor *const dx = &call->out[0];
  const void *const before = call->in[0].data;
  const int64_t row_bytes = dx->type.dim[1] * ot_dtype_bytes(dx->type.dtype);
  const size_t done = (size_t)(call->attributes->first_row * row_bytes);
  if (before && before != dx->data) {
    (void)cudaMemcpyAsync(dx->data, before, done, cudaMemcpyDeviceToDevice,
                          (cudaStream_t)ot_cuda_stream_of(call));
  }
  const ot_cuda_head_gradient_layout layout = gradient_layout_of(call);
  const ot_cuda_matrix dlogits = factor_of<R>(call, layout);
  input_gradient(call, layout, dlogits);
  if (call->out[1].data) weight_gradient(call, dlogits, layout.w >= 0);
}

void head_count(const ot_kernel_call *call) {
  const all_statistics all = statistics_of(call, &call->in[0]);
  const int32_t *const targets = targets_of(call, &call->in[1]);
  double *const nats = (double *)call->workspace;
  void *const stream = ot_cuda_stream_of(call);
  OT_LAUNCH(nats_kernel, ot_blocks(all.rows, PASS_THREADS), PASS_THREADS, 0, stream, all, targets,
            nats);
  OT_LAUNCH(ot_add_nats, 1, THREADS, 0, stream, (const double *)nats, targets, all.rows,
            (const double *)nullptr, (double *)call->out[0].data, (double *)call->out[1].data);
}

}  // namespace

extern "C" const ot_kernel_entry ot_head_parts_cuda_f32[] = {
    {OT_OP_HEAD_STATISTICS, head_statistics<float>},
    {OT_OP_HEAD_DLOGITS, head_dlogits<float>},
    {OT_OP_HEAD_GRADIENT, head_gradient<float>},
    {OT_OP_HEAD_GRADIENT_LAST, head_gradient<float>},
    {OT_OP_HEAD_COUNT, head_count},
    {}};

extern "C" const ot_kernel_entry ot_head_parts_cuda_f64[] = {
    {OT_OP_HEAD_STATISTICS, head_statistics<double>},
    {OT_OP_HEAD_DLOGITS, head_dlogits<double>},
    {OT_OP_HEAD_GRADIENT, head_gradient<double>},
    {OT_OP_HEAD_GRADIENT_LAST, head_gradient<double>},
    {OT_OP_HEAD_COUNT, head_count},
    {}};
