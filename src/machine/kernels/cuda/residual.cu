// SPDX-License-Identifier: Apache-2.0
// Residual attention, a block a row. The sources of a token are read for their scores and again,
// from cache, for their mix or their gradients. Gradients of the query are summed over the rows of
// a block, then over blocks.
#include "kernels/cuda/rows.cuh"

extern "C" {
#include "kernels/cuda/tables.h"
#include "workspace/cuda_workspace.h"
}

namespace {

enum { TEAM = OT_ROW_THREADS, HELD = 2 };

static __device__ __forceinline__ float exp_of(float x) { return expf(x); }
static __device__ __forceinline__ double exp_of(double x) { return exp(x); }

// The sources of a call, or their gradients: `on_stack` of them [on_stack, rows, columns], then
// perhaps `last` [rows, columns].
template <class S>
struct sources {
  S *stack, *last;
  int on_stack, count;
  int64_t rows;
  int columns;
  // Element (row, 0) of source i; null if it is absent.
  __device__ S *at(int i, int64_t row) const {
    S *const from = i < on_stack ? stack : last;
    if (!from) return from;
    return from + ((i < on_stack ? i * rows : 0) + row) * columns;
  }
};

template <class R, class S>
struct mix_operands {
  sources<S> v;
  ot_any<R> query;  // [columns], may be absent
  S *y;
  R *weights, *rstd;  // [rows, count]
  R epsilon;
};

// ---- forward ----

// Replaces the scores of a row by their softmax. All threads of the block call it.
template <class R>
static __device__ __forceinline__ void softmax(R *score, int count) {
  __syncthreads();
  R largest = score[0], sum = 0;
  for (int i = 1; i < count; i++) largest = score[i] > largest ? score[i] : largest;
  for (int i = 0; i < count; i++) sum += exp_of(score[i] - largest);
  __syncthreads();
  for (int i = threadIdx.x; i < count; i += TEAM) score[i] = exp_of(score[i] - largest) / sum;
  __syncthreads();
}

template <class R, class S, int N>
static __global__ void __launch_bounds__(TEAM) mix_kernel(mix_operands<R, S> o) {
  __shared__ R parts[4 * TEAM / 32];
  const int64_t row = blockIdx.x;
  R *const weights = o.weights + row * o.v.count, *const rstd = o.rstd + row * o.v.count;
  for (int i = 0; i < o.v.count; i++) {
    const S *const v = o.v.at(i, row);
    R sums[2] = {0, 0};  // of squares, and of products with the query
    for (int c = threadIdx.x * N; c < o.v.columns; c += TEAM * N) {
      R x[N], query[N] = {};
      ot_load(v + c, x);
      if (o.query.data) ot_load_any(o.query, c, query);
#pragma unroll
      for (int k = 0; k < N; k++) {
        sums[0] = fma(x[k], x[k], sums[0]);
        sums[1] = fma(x[k], query[k], sums[1]);
      }
    }
    ot_team_sums<TEAM>(sums, parts, i);
    const R inverse = 1 / sqrt(sums[0] / (R)o.v.columns + o.epsilon);
    if (threadIdx.x == 0) {
      rstd[i] = inverse;
      weights[i] = sums[1] * inverse;
    }
  }
  softmax(weights, o.v.count);
  for (int c = threadIdx.x * N; c < o.v.columns; c += TEAM * N) {
    R sum[N] = {};
    for (int i = 0; i < o.v.count; i++) {
      R x[N];
      ot_load(o.v.at(i, row) + c, x);
      const R weight = weights[i];
#pragma unroll
      for (int k = 0; k < N; k++) sum[k] = fma(weight, x[k], sum[k]);
    }
    ot_store(o.y + row * o.v.columns + c, sum);
  }
}

template <class S>
static sources<S> sources_of(const ot_tensor *stack, const ot_tensor *last,
                             const ot_tensor_type *type, bool has_last) {
  const int on_stack = (int)type->dim[0];
  return {(S *)stack->data, (S *)last->data,  on_stack, on_stack + (has_last ? 1 : 0),
          type->dim[1],     (int)type->dim[2]};
}

template <class R>
static void residual_attention(const ot_kernel_call *call) {
  const ot_tensor *const in = call->in, *const out = call->out;
  const ot_tensor_type *const type = &in[0].type;
  const void *const all[] = {in[0].data, in[1].data, in[2].data, out[0].data};
  ot_for_storage<R>(
      type->dtype, ot_fits_vectors(type->dtype, type->dim[2], all, 4), [&](auto s, auto width) {
        using S = decltype(s);
        constexpr int N = decltype(width)::value;
        const mix_operands<R, S> o = {sources_of<S>(&in[0], &in[1], type, in[1].data != NULL),
                                      ot_any_of<R>(&in[2]),
                                      (S *)out[0].data,
                                      (R *)out[1].data,
                                      (R *)out[2].data,
                                      (R)call->attributes->epsilon};
        OT_LAUNCH((mix_kernel<R, S, N>), (unsigned)type->dim[1], TEAM, 0, ot_cuda_stream_of(call),
                  o);
      });
}

// ---- gradient ----

template <class R, class S>
struct mix_grad_operands {
  sources<S> v, partial, dv;  // dv may be partial; either may be absent
  ot_any<R> query;
  const S *dy;
  const R *weights, *rstd;  // [rows, count]
  R *dquery;                // [parts, columns]
  R *products;              // [parts, 2, count]: of dy and of the query with each source
  int rows_of_block;
};

// Sets products[i] to dy . v_i and products[count + i] to query . v_i. All threads of the block
// call it.
template <int N, class R, class S>
static __device__ __forceinline__ void products_of(const mix_grad_operands<R, S> &o, int64_t row,
                                                   R *products, R *parts) {
  __syncthreads();
  for (int i = 0; i < o.v.count; i++) {
    const S *const v = o.v.at(i, row);
    R sums[2] = {0, 0};
    for (int c = threadIdx.x * N; c < o.v.columns; c += TEAM * N) {
      R x[N], dy[N], query[N] = {};
      ot_load(v + c, x);
      ot_load(o.dy + row * o.v.columns + c, dy);
      if (o.query.data) ot_load_any(o.query, c, query);
#pragma unroll
      for (int k = 0; k < N; k++) {
        sums[0] = fma(dy[k], x[k], sums[0]);
        sums[1] = fma(query[k], x[k], sums[1]);
      }
    }
    ot_team_sums<TEAM>(sums, parts, i);
    if (threadIdx.x < 2)
      products[threadIdx.x * o.v.count + i] = threadIdx.x == 0 ? sums[0] : sums[1];
  }
  __syncthreads();
}

// The gradients of columns [c, c + N) of all sources of a row; adds to dquery.
template <int N, class R, class S>
static __device__ __forceinline__ void grad_columns(const mix_grad_operands<R, S> &o, int64_t row,
                                                    int c, R mean, const R *products,
                                                    R (&dquery)[N]) {
  const int count = o.v.count;
  const R *const weights = o.weights + row * count, *const rstd = o.rstd + row * count;
  R dy[N], query[N] = {};
  ot_load(o.dy + row * o.v.columns + c, dy);
  if (o.query.data) ot_load_any(o.query, c, query);
  for (int i = 0; i < count; i++) {
    const R along = weights[i] * (products[i] - mean) * rstd[i];
    const R back = along * products[count + i] * rstd[i] * rstd[i] / (R)o.v.columns;
    const S *const before = o.partial.at(i, row);
    S *const to = o.dv.at(i, row);
    R x[N], made[N] = {};
    ot_load(o.v.at(i, row) + c, x);
    if (before) ot_load(before + c, made);
#pragma unroll
    for (int k = 0; k < N; k++) {
      made[k] += fma(weights[i], dy[k], fma(along, query[k], -(back * x[k])));
      dquery[k] = fma(along, x[k], dquery[k]);
    }
    if (to) ot_store(to + c, made);
  }
}

template <class R, class S, int N>
static __global__ void __launch_bounds__(TEAM, 2) mix_grad_kernel(mix_grad_operands<R, S> o) {
  __shared__ R parts[4 * TEAM / 32];
  const int64_t first = (int64_t)blockIdx.x * o.rows_of_block;
  const int64_t end = first + o.rows_of_block < o.v.rows ? first + o.rows_of_block : o.v.rows;
  R *const products = o.products + (int64_t)blockIdx.x * 2 * o.v.count;
  R *const part = o.dquery + (int64_t)blockIdx.x * o.v.columns;
  R dquery[HELD][N] = {};
  for (int64_t row = first; row < end; row++) {
    products_of<N>(o, row, products, parts);
    R mean = 0;
    for (int i = 0; i < o.v.count; i++) mean += o.weights[row * o.v.count + i] * products[i];
    ot_for_row<N, TEAM, HELD>(o.v.columns, threadIdx.x, [&](int c, int h) {
      R rest[N] = {};
      if (h < 0) {
        grad_columns<N>(o, row, c, mean, products, rest);
        ot_put_part(part + c, rest, row > first);
      } else {
        grad_columns<N>(o, row, c, mean, products, dquery[h < 0 ? 0 : h]);
      }
    });
  }
#pragma unroll
  for (int h = 0; h < HELD; h++) {
    const int c = (h * TEAM + (int)threadIdx.x) * N;
    if (c < o.v.columns) ot_put_part(part + c, dquery[h], false);
  }
}

template <class R>
static void residual_attention_grad(const ot_kernel_call *call) {
  const ot_tensor *const in = call->in, *const out = call->out;
  const ot_tensor_type *const type = &in[2].type;
  const int64_t rows = type->dim[1], columns = type->dim[2];
  const int64_t parts = ot_parts_of_rows(rows, OT_CUDA_PARTS);
  const void *const all[] = {in[0].data, in[1].data, in[2].data,  in[3].data,
                             in[4].data, in[7].data, out[0].data, out[1].data};
  R *const dquery = (R *)call->workspace;
  const bool has_last = in[3].data != NULL;
  ot_for_storage<R>(
      type->dtype, ot_fits_vectors(type->dtype, columns, all, 8), [&](auto s, auto width) {
        using S = decltype(s);
        constexpr int N = decltype(width)::value;
        const mix_grad_operands<R, S> o = {sources_of<S>(&in[2], &in[3], type, has_last),
                                           sources_of<S>(&in[0], &in[7], type, has_last),
                                           sources_of<S>(&out[0], &out[1], type, has_last),
                                           ot_any_of<R>(&in[4]),
                                           (const S *)in[1].data,
                                           (const R *)in[5].data,
                                           (const R *)in[6].data,
                                           dquery,
                                           dquery + parts * columns,
                                           (int)ot_rows_of_part(rows, OT_CUDA_PARTS)};
        OT_LAUNCH((mix_grad_kernel<R, S, N>), (unsigned)parts, TEAM, 0, ot_cuda_stream_of(call), o);
      });
  ot_sum_parts(call, dquery, parts, columns, &out[2]);
}

}  // namespace

extern "C" const ot_kernel_entry ot_residual_cuda_f32[] = {
    {OT_OP_RESIDUAL_ATTENTION, residual_attention<float>},
    {OT_OP_RESIDUAL_ATTENTION_GRAD, residual_attention_grad<float>},
    {}};

extern "C" const ot_kernel_entry ot_residual_cuda_f64[] = {
    {OT_OP_RESIDUAL_ATTENTION, residual_attention<double>},
    {OT_OP_RESIDUAL_ATTENTION_GRAD, residual_attention_grad<double>},
    {}};
