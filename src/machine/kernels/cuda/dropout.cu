// SPDX-License-Identifier: Apache-2.0
// Dropout: each direction regenerates the mask, with the words of ot_rng_philox (base/rng.h).
#include "kernels/cuda/philox.cuh"
#include "kernels/cuda/rows.cuh"

extern "C" {
#include "base/rng.h"
#include "kernels/cuda/tables.h"
#include "ops/zigzag.h"
}

namespace {

template <class R, class S>
struct dropout_operands {
  const S *x;
  const int64_t *samples;
  S *y;  // may be x
  int64_t rows;
  int columns;
  int64_t first_row, sequence_length;
  int64_t half, start[2];  // positions: ot_positions
  uint64_t key;
  uint32_t threshold;  // an element is kept when its word is at least this
  R factor;
};

// word[i] without an index into registers.
static __device__ __forceinline__ uint32_t word_at(const uint32_t (&word)[4], int i) {
  const uint32_t low = i == 0 ? word[0] : word[1], high = i == 2 ? word[2] : word[3];
  return i < 2 ? low : high;
}

template <class R, class S, int N, int TEAM>
static __global__ void __launch_bounds__(OT_ROW_THREADS) dropout_kernel(dropout_operands<R, S> o) {
  const int64_t row = (int64_t)blockIdx.x * (OT_ROW_THREADS / TEAM) + threadIdx.x / TEAM;
  if (row >= o.rows) return;
  const int64_t sequence = (o.first_row + row) / o.sequence_length;
  const int64_t place = o.first_row + row - sequence * o.sequence_length;
  const uint64_t sample = (uint64_t)o.samples[sequence];
  const uint32_t position =
      (uint32_t)(place < o.half ? o.start[0] + place : o.start[1] + place - o.half);
  for (int c = threadIdx.x % TEAM * N; c < o.columns; c += TEAM * N) {
    R x[N];
    uint32_t word[4];
    ot_load(o.x + row * o.columns + c, x);
#pragma unroll
    for (int k = 0; k < N; k++) {
      if (k % 4 == 0) ot_philox(o.key, sample, position, (uint32_t)((c + k) / 4), word);
      uint32_t mine = word[k % 4];
      if (N < 4) mine = word_at(word, (c + k) % 4);
      x[k] = mine >= o.threshold ? x[k] * o.factor : 0;
    }
    ot_store(o.y + row * o.columns + c, x);
  }
}

template <class R>
static void dropout(const ot_kernel_call *call) {
  const ot_op_attributes *const a = call->attributes;
  const ot_tensor *const x = &call->in[0], *const y = &call->out[0];
  const int64_t rows = x->type.dim[0], columns = x->type.dim[1], t = a->sequence_length;
  const int64_t block = a->context_index * t;
  const ot_positions places = a->context == OT_CONTEXT_ULYSSES
                                  ? ot_positions{t, t, {block, 0}}
                                  : ot_positions_of(t, a->context_size, a->context_index);
  const void *const all[] = {x->data, y->data};
  const ot_dtype dtype = x->type.dtype;
  ot_for_storage<R>(dtype, ot_fits_vectors(dtype, columns, all, 2), [&](auto s, auto width) {
    using S = decltype(s);
    constexpr int N = decltype(width)::value;
    const dropout_operands<R, S> o = {(const S *)x->data,
                                      (const int64_t *)call->in[1].data,
                                      (S *)y->data,
                                      rows,
                                      (int)columns,
                                      a->first_row,
                                      t,
                                      places.half,
                                      {places.start[0], places.start[1]},
                                      ot_rng_key(a->seed, a->rng_stream),
                                      (uint32_t)(a->dropout * 4294967296.0),
                                      (R)(1 / (1 - a->dropout))};
    ot_for_teams(columns / N, 4, [&](auto team) {
      constexpr int TEAM = decltype(team)::value;
      OT_LAUNCH((dropout_kernel<R, S, N, TEAM>), ot_blocks(rows, OT_ROW_THREADS / TEAM),
                OT_ROW_THREADS, 0, ot_cuda_stream_of(call), o);
    });
  });
}

}  // namespace

extern "C" const ot_kernel_entry ot_dropout_cuda_f32[] = {
    {OT_OP_DROPOUT, dropout<float>}, {OT_OP_DROPOUT_GRAD, dropout<float>}, {}};

extern "C" const ot_kernel_entry ot_dropout_cuda_f64[] = {
    {OT_OP_DROPOUT, dropout<double>}, {OT_OP_DROPOUT_GRAD, dropout<double>}, {}};
