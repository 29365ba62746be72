// SPDX-License-Identifier: Apache-2.0
// Latent attention against a latent cache: the projection of keys is absorbed into the query, a row
// of the cache is the one key of all heads and its first K elements are the value, and the
// projection of values is applied to their mean.
#include "kernels/cuda/decode_parts.cuh"

extern "C" {
#include "kernels/cuda/tables.h"
#include "ops/latent.h"
}

namespace {

enum { THREADS = 256, WARPS = THREADS / 32 };

// The rotation of heads of 2 * half elements.
template <class R>
struct rotation {
  const int32_t *positions;  // [rows]
  const R *table;
  int half;
  bool interleaved;

  // Element i of the rotated head that starts at element `first`, of row `row`.
  __device__ R at(const ot_any<R> &from, int64_t first, int64_t row, int i) const {
    const int pair = i < half ? i : i - half;
    const R *const angle = table + ((int64_t)positions[row] * half + pair) * 2;
    const R x = from[first + (interleaved ? 2 * pair : pair)];
    const R y = from[first + (interleaved ? 2 * pair + 1 : pair + half)];
    return i < half ? x * angle[0] - y * angle[1] : y * angle[0] + x * angle[1];
  }
};

template <class R>
static rotation<R> rotation_of(const ot_kernel_call *call, int positions) {
  return {(const int32_t *)call->in[positions].data, (const R *)call->in[positions + 1].data,
          (int)call->attributes->rotary_dim / 2, call->attributes->interleaved};
}

// A thread has one element. Idle rows are dropped.
template <class R>
static __global__ void __launch_bounds__(THREADS)
    append_kernel(ot_any<R> latent, ot_any<R> rotary, rotation<R> turn, ot_any<R> cache,
                  ot_page_places at, int64_t elements, int width) {
  const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (i >= elements) return;
  const int64_t r = i / width;
  const int c = (int)(i - r * width), P = 2 * turn.half, K = width - P;
  if (at.sequences[r] < 0) return;
  const R x = c < K ? latent[r * K + c] : turn.at(rotary, r * P, r, c - K);
  cache.set(at.row(r, at.positions[r]) * width + c, x);
}

template <class R>
static void append_latent(const ot_kernel_call *call) {
  const ot_tensor *const in = call->in, *const cache = &call->out[0];
  const int64_t rows = in[0].type.dim[0], width = cache->type.dim[2], elements = rows * width;
  if (elements == 0) return;
  OT_LAUNCH(append_kernel<R>, ot_blocks(elements, THREADS), THREADS, 0, ot_cuda_stream_of(call),
            ot_any_of<R>(&in[0]), ot_any_of<R>(&in[1]), rotation_of<R>(call, 2),
            ot_any_of<R>(cache), ot_page_places_of(call, 4, 2, 5), elements, (int)width);
}

// The projection to N elements of a key and V of a value of each of H heads.
template <class R>
struct projection {
  ot_any<R> w;  // [H (N + V), K]
  int H, N, V, K;
};

// Blocks (token and head, elements): query [B, H, K + P] in the coordinates of the cache.
template <class R>
static __global__ void __launch_bounds__(THREADS)
    absorb_kernel(projection<R> p, ot_any<R> q, rotation<R> turn, R *query) {
  const int64_t head = blockIdx.x, P = 2 * turn.half, first = head * (p.N + P);
  const int64_t c = (int64_t)blockIdx.y * THREADS + threadIdx.x;
  if (c >= p.K + P) return;
  R sum = 0;
  if (c >= p.K) {
    sum = turn.at(q, first + p.N, head / p.H, (int)(c - p.K));
  } else {
    const int64_t row = head % p.H * (p.N + p.V);
    for (int n = 0; n < p.N; n++) sum = fma(q[first + n], p.w[(row + n) * p.K + c], sum);
  }
  query[head * (p.K + P) + c] = sum;
}

// o [B, H, V] = w_v mean [B, H, K]; a warp has one element.
template <class R>
static __global__ void __launch_bounds__(THREADS)
    project_kernel(projection<R> p, const R *mean, ot_any<R> o, int64_t elements) {
  const int64_t i = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
  if (i >= elements) return;
  const int64_t head = i / p.V, row = head % p.H * (p.N + p.V) + p.N + i % p.V;
  R sum = 0;
  for (int k = threadIdx.x % 32; k < p.K; k += 32) {
    sum = fma(p.w[row * p.K + k], mean[head * p.K + k], sum);
  }
  sum = ot_warp_sum(sum);
  if (threadIdx.x % 32 == 0) o.set(i, sum);
}

// Workspace: query [B, H, K + P], mean [B, H, K], parts.
template <class R>
static void latent_decode(const ot_kernel_call *call) {
  const ot_op_attributes *const a = call->attributes;
  const ot_tensor *const in = call->in;
  const int64_t B = in[0].type.dim[0], width = in[2].type.dim[2];
  if (B == 0) return;
  void *const stream = ot_cuda_stream_of(call);
  const projection<R> p = {ot_any_of<R>(&in[1]), (int)a->num_heads,
                           (int)(a->head_dim - a->rotary_dim), (int)a->value_dim,
                           (int)in[1].type.dim[1]};
  R *const query = (R *)call->workspace, *const mean = query + B * p.H * width;
  ot_decode<R> d = {};
  d.queries = {query, a->compute};
  d.query_row = p.H * width;
  d.tokens = B;
  d.cache = in[2];
  d.at = ot_page_places_of(call, 5, 3, 6);
  d.H = p.H;
  d.G = 1;
  d.key_width = (int)width;
  d.value_width = p.K;
  d.scale = (R)a->scale;
  d.o = {mean, a->compute};
  d.parts = mean + B * p.H * p.K;
  OT_LAUNCH(absorb_kernel<R>, dim3((unsigned)(B * p.H), ot_blocks(width, THREADS)), THREADS, 0,
            stream, p, ot_any_of<R>(&in[0]), rotation_of<R>(call, 3), query);
  ot_decode_run(call, d);
  OT_LAUNCH(project_kernel<R>, ot_blocks(B * p.H * p.V, WARPS), THREADS, 0, stream, p, mean,
            ot_any_of<R>(&call->out[0]), B * p.H * p.V);
}

}  // namespace

extern "C" const ot_kernel_entry ot_latent_decode_cuda_f32[] = {
    {OT_OP_APPEND_LATENT, append_latent<float>}, {OT_OP_LATENT_DECODE, latent_decode<float>}, {}};

extern "C" const ot_kernel_entry ot_latent_decode_cuda_f64[] = {
    {OT_OP_APPEND_LATENT, append_latent<double>}, {OT_OP_LATENT_DECODE, latent_decode<double>}, {}};
