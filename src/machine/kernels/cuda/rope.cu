// SPDX-License-Identifier: Apache-2.0
// Rotation of query and key heads by position: a vector of pairs a thread.
#include "kernels/cuda/rotation.cuh"

extern "C" {
#include "kernels/cuda/tables.h"
#include "ops/rope.h"
}

namespace {

enum { THREADS = 256, PAIRS = 64 };

// ---- table ----

// Radians per position of some consecutive pairs.
struct frequencies {
  double of[PAIRS];
};

// The sine and cosine of an angle below 2^31, reduced to [-pi, pi] with a 2 pi of 106 bits. cos()
// reduces any angle, for which it needs a stack.
static __device__ __forceinline__ void sine_and_cosine(double angle, double *sine, double *cosine) {
  constexpr double high = 6.283185307179586, low = 2.4492935982947064e-16;
  const double turns = rint(angle * (1 / high));
  const double rest = fma(-turns, low, fma(-turns, high, angle));
  sincospi(rest * (2 / high), sine, cosine);
}

// Pairs [first, first + n) of `pairs`, of all positions.
template <class R>
static __global__ void __launch_bounds__(THREADS)
    table_kernel(frequencies f, double magnitude, R *table, int64_t positions, int pairs, int first,
                 int n) {
  const int64_t position = (int64_t)blockIdx.x * (THREADS / PAIRS) + threadIdx.x / PAIRS;
  const int i = threadIdx.x % PAIRS;
  if (position >= positions || i >= n) return;
  double sine, cosine;
  sine_and_cosine((double)position * f.of[i], &sine, &cosine);
  R *const at = table + (position * pairs + first + i) * 2;
  at[0] = (R)(magnitude * cosine);
  at[1] = (R)(magnitude * sine);
}

template <class R>
static void rope_table(const ot_kernel_call *call) {
  const int64_t positions = call->out[0].type.dim[0];
  const int pairs = (int)call->out[0].type.dim[1];
  for (int first = 0; first < pairs; first += PAIRS) {
    const int n = pairs - first < PAIRS ? pairs - first : PAIRS;
    frequencies f = {};
    for (int i = 0; i < n; i++) f.of[i] = ot_rope_frequency(call->attributes, first + i);
    OT_LAUNCH(table_kernel<R>, ot_blocks(positions, THREADS / PAIRS), THREADS, 0,
              ot_cuda_stream_of(call), f, ot_rope_magnitude(call->attributes),
              (R *)call->out[0].data, positions, pairs, first, n);
  }
}

// ---- rotation ----

// A row is `heads` heads of which the first 2 * half elements of head_dim rotate, then `values`
// elements that do not.
template <class R, class S>
struct rope_operands {
  const S *x;  // y may be x: then only pairs are visited
  const int32_t *positions;
  const R *table;
  S *y;
  int64_t items;     // vectors of pairs or of other elements, of all rows
  int items_of_row;  // pairs first, then ends of heads, then values
  int columns, heads, head_dim, half;
  R sign;
};

template <int N, class R, class S>
static __device__ __forceinline__ void rotate_pairs(const rope_operands<R, S> &o, int64_t row,
                                                    int64_t first, int pair) {
  const int64_t low = first + pair, high = low + o.half;
  R a[N], b[N], cosine[N], sine[N];
  ot_load(o.x + low, a);
  ot_load(o.x + high, b);
  ot_load_angles(o.table, o.positions[row], o.half, pair, cosine, sine);
#pragma unroll
  for (int k = 0; k < N; k++) {
    const R sine_k = o.sign * sine[k], a_k = a[k];
    a[k] = a_k * cosine[k] - b[k] * sine_k;
    b[k] = b[k] * cosine[k] + a_k * sine_k;
  }
  ot_store(o.y + low, a);
  ot_store(o.y + high, b);
}

template <class R, class S, int N>
static __global__ void __launch_bounds__(THREADS) rope_kernel(rope_operands<R, S> o) {
  const int64_t all = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (all >= o.items) return;
  const int64_t row = all / o.items_of_row, begin = row * o.columns;
  int item = (int)(all - row * o.items_of_row);
  const int of_head = o.half / N, pairs = o.heads * of_head;
  if (item < pairs) {
    const int head = item / of_head;
    rotate_pairs<N>(o, row, begin + (int64_t)head * o.head_dim, (item - head * of_head) * N);
    return;
  }
  item -= pairs;
  const int end_of_head = o.head_dim / N - 2 * of_head, ends = o.heads * end_of_head;
  int64_t at = begin + (int64_t)o.heads * o.head_dim + (int64_t)(item - ends) * N;
  if (item < ends) {
    const int head = item / end_of_head;
    at = begin + (int64_t)head * o.head_dim + 2 * o.half + (item - head * end_of_head) * N;
  }
  *(ot_vector<S, N> *)(o.y + at) = *(const ot_vector<S, N> *)(o.x + at);
}

template <class R>
static void rotate(const ot_kernel_call *call, R sign) {
  const ot_op_attributes *const a = call->attributes;
  const ot_tensor *const x = &call->in[0], *const y = &call->out[0];
  const int64_t rows = x->type.dim[0], columns = x->type.dim[1], half = a->rotary_dim / 2;
  const int64_t heads = a->num_heads + a->num_kv_heads;
  const void *const all[] = {x->data, y->data, call->in[2].data};
  const bool vectors = ot_fits_vectors(x->type.dtype, half | a->head_dim, all, 3);
  ot_for_storage<R>(x->type.dtype, vectors, [&](auto s, auto width) {
    using S = decltype(s);
    constexpr int N = decltype(width)::value;
    const int64_t of_row = x->data == y->data ? heads * half / N : columns / N - heads * half / N;
    const rope_operands<R, S> o = {(const S *)x->data,
                                   (const int32_t *)call->in[1].data,
                                   (const R *)call->in[2].data,
                                   (S *)y->data,
                                   rows * of_row,
                                   (int)of_row,
                                   (int)columns,
                                   (int)heads,
                                   (int)a->head_dim,
                                   (int)half,
                                   sign};
    OT_LAUNCH((rope_kernel<R, S, N>), ot_blocks(o.items, THREADS), THREADS, 0,
              ot_cuda_stream_of(call), o);
  });
}

template <class R>
static void rope(const ot_kernel_call *call) {
  rotate<R>(call, 1);
}

template <class R>
static void rope_grad(const ot_kernel_call *call) {
  rotate<R>(call, -1);
}

}  // namespace

extern "C" const ot_kernel_entry ot_rope_cuda_f32[] = {{OT_OP_ROPE_TABLE, rope_table<float>},
                                                       {OT_OP_ROPE, rope<float>},
                                                       {OT_OP_ROPE_GRAD, rope_grad<float>},
                                                       {}};

extern "C" const ot_kernel_entry ot_rope_cuda_f64[] = {{OT_OP_ROPE_TABLE, rope_table<double>},
                                                       {OT_OP_ROPE, rope<double>},
                                                       {OT_OP_ROPE_GRAD, rope_grad<double>},
                                                       {}};
