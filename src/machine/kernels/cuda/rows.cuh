// SPDX-License-Identifier: Apache-2.0
// Rows of matrices, each read by a team of TEAM threads: some lanes of a warp, a warp, or a block.
// A block of OT_ROW_THREADS threads holds one team or several. Also the sums over rows that
// gradients of weights need.
#pragma once

#include <string.h>

#include "kernels/cuda/kernel.cuh"

enum { OT_ROW_THREADS = 256 };

// Calls launch(ot_width<TEAM>{}): a warp for rows that `most` vectors a thread of it cover.
template <class Launch>
static inline void ot_for_teams(int64_t vectors, int64_t most, Launch launch) {
  if (vectors <= 32 * most) {
    launch(ot_width<32>{});
  } else {
    launch(ot_width<OT_ROW_THREADS>{});
  }
}

// The elements of a vector in the compute type.
template <class R, class S, int N>
__device__ __forceinline__ void ot_widen(const ot_vector<S, N> &v, R (&to)[N]) {
#pragma unroll
  for (int k = 0; k < N; k++) to[k] = (R)ot_wide(v.at[k]);
}

// Two elements of bf16 in a register: an instruction for each.
template <class R, int N>
__device__ __forceinline__ void ot_widen(const ot_vector<ot_bf16, N> &v, R (&to)[N]) {
#pragma unroll
  for (int k = 0; k + 1 < N; k += 2) {
    uint32_t pair;
    memcpy(&pair, &v.at[k], sizeof pair);
    to[k] = (R)__uint_as_float(pair << 16);
    to[k + 1] = (R)__uint_as_float(pair & 0xffff0000u);
  }
  if (N % 2) to[N - 1] = (R)ot_wide(v.at[N - 1]);
}

// N neighbouring elements at an address that is a multiple of their size, or of 16 bytes, in accesses
// of at most 16 bytes.
template <class R, class S, int N>
__device__ __forceinline__ void ot_load_pieces(const S *from, R (&to)[N]) {
  constexpr int PIECE = N * sizeof(S) > 16 ? 16 / (int)sizeof(S) : N;
#pragma unroll
  for (int first = 0; first < N; first += PIECE) {
    R piece[PIECE];
    ot_load(from + first, piece);
#pragma unroll
    for (int k = 0; k < PIECE; k++) to[first + k] = piece[k];
  }
}

template <class R, class S, int N>
__device__ __forceinline__ void ot_store_pieces(S *to, const R (&from)[N]) {
  constexpr int PIECE = N * sizeof(S) > 16 ? 16 / (int)sizeof(S) : N;
#pragma unroll
  for (int first = 0; first < N; first += PIECE) {
    R piece[PIECE];
#pragma unroll
    for (int k = 0; k < PIECE; k++) piece[k] = from[first + k];
    ot_store(to + first, piece);
  }
}

// Elements [i, i + N) of a tensor of bf16 or R, whose address is a multiple of 16 if N > 1.
template <class R, int N>
__device__ __forceinline__ void ot_load_any(const ot_any<R> &from, int64_t i, R (&to)[N]) {
  if (from.dtype == OT_BF16) {
    ot_load((const ot_bf16 *)from.data + i, to);
    return;
  }
  ot_load_pieces((const R *)from.data + i, to);
}

// Overwrites elements [i, i + N) of R, or adds to them.
template <class R, int N>
__device__ __forceinline__ void ot_put_part(R *to, const R (&from)[N], bool add) {
#pragma unroll
  for (int k = 0; k < N; k++) to[k] = add ? to[k] + from[k] : from[k];
}

// The sum over LANES lanes of a warp, a power of two, which start at a multiple of LANES.
template <int LANES, class R>
__device__ __forceinline__ R ot_lanes_sum(R x) {
  const unsigned lanes = LANES == 32 ? 0xffffffffu : (1u << LANES % 32) - 1;
  const unsigned mask = lanes << (threadIdx.x % 32 / LANES * LANES);
#pragma unroll
  for (int by = LANES / 2; by > 0; by /= 2) x += __shfl_xor_sync(mask, x, by);
  return x;
}

// The sums of COUNT values over a team. `parts` [2][COUNT][TEAM / 32] in shared memory; `turn` is
// the number of earlier calls of the team, so that one barrier a call is enough.
template <int TEAM, int COUNT, class R>
__device__ __forceinline__ void ot_team_sums(R (&x)[COUNT], R *parts, int turn) {
#pragma unroll
  for (int k = 0; k < COUNT; k++) x[k] = ot_lanes_sum<(TEAM < 32 ? TEAM : 32)>(x[k]);
  if (TEAM <= 32) return;
  constexpr int WARPS = TEAM > 32 ? TEAM / 32 : 1;
  R *const at = parts + turn % 2 * COUNT * WARPS;
  if (threadIdx.x % 32 == 0) {
#pragma unroll
    for (int k = 0; k < COUNT; k++) at[k * WARPS + threadIdx.x / 32] = x[k];
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < COUNT; k++) {
    x[k] = at[k * WARPS];
#pragma unroll
    for (int w = 1; w < WARPS; w++) x[k] += at[k * WARPS + w];
  }
}

// ---- copies ----

// Calls run(Word{}), Word a type of 16 bytes if that divides `bytes`, the OR of the sizes of all
// pieces of `tensors`, of one type, and their addresses; else of the bytes of an element.
template <class Run>
static inline void ot_for_words(const ot_tensor *const *tensors, int count, int64_t bytes,
                                Run run) {
  const int element = ot_dtype_bytes(tensors[0]->type.dtype);
  for (int i = 0; i < count; i++) bytes |= (int64_t)(uintptr_t)tensors[i]->data;
  if (bytes % 16 == 0) {
    run(ot_vector<uint32_t, 4>{});
  } else if (element == 8) {
    run(uint64_t{});
  } else if (element == 4) {
    run(uint32_t{});
  } else {
    run(uint16_t{});
  }
}

// ---- rows that are passed over several times ----

// The vectors of one row that a thread of a team keeps in registers.
template <class S, int N, int TEAM, int HELD>
struct ot_held_row {
  const S *row;
  ot_vector<S, N> held[HELD];

  __device__ __forceinline__ void read(const S *from, int columns, int thread) {
    row = from;
#pragma unroll
    for (int h = 0; h < HELD; h++) {
      const int c = (h * TEAM + thread) * N;
      if (c < columns) held[h] = *(const ot_vector<S, N> *)(from + c);
    }
  }
  // The elements at column c, of held vector h or, if h < 0, of memory.
  template <class R>
  __device__ __forceinline__ void get(int c, int h, R (&to)[N]) const {
    const ot_vector<S, N> v = h < 0 ? *(const ot_vector<S, N> *)(row + c) : held[h < 0 ? 0 : h];
#pragma unroll
    for (int k = 0; k < N; k++) to[k] = (R)ot_wide(v.at[k]);
  }
};

// Calls visit(c, h) for the vectors of a row that are the thread's, h as in ot_held_row.
template <int N, int TEAM, int HELD, class Visit>
__device__ __forceinline__ void ot_for_row(int columns, int thread, Visit visit) {
#pragma unroll
  for (int h = 0; h < HELD; h++) {
    const int c = (h * TEAM + thread) * N;
    if (c < columns) visit(c, h);
  }
#pragma unroll 1  // few rows are so long, and the registers are for those that are not
  for (int c = (HELD * TEAM + thread) * N; c < columns; c += TEAM * N) visit(c, -1);
}

// ---- sums over rows ----

enum { OT_SUM_COLUMNS_X = 32, OT_SUM_COLUMNS_Y = 16 };

// out[c] (+)= the sum over `parts` of part[p * stride + c], in a fixed order; columns from
// `columns` on belong to `next`.
template <class R>
static __global__ void __launch_bounds__(OT_SUM_COLUMNS_X *OT_SUM_COLUMNS_Y)
    ot_sum_parts_kernel(const R *part, int parts, int64_t stride, int64_t columns, ot_any<R> out,
                        int64_t next_columns, ot_any<R> next, bool accumulate) {
  __shared__ R sums[OT_SUM_COLUMNS_Y][OT_SUM_COLUMNS_X];
  const int64_t c = (int64_t)blockIdx.x * OT_SUM_COLUMNS_X + threadIdx.x;
  const bool own = c < columns;
  const ot_any<R> to = own ? out : next;
  const bool wanted = c < columns + next_columns && to.data;
  R sum = 0;
  if (wanted) {
#pragma unroll 8
    for (int p = threadIdx.y; p < parts; p += OT_SUM_COLUMNS_Y) sum += part[p * stride + c];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || !wanted) return;
#pragma unroll
  for (int y = 1; y < OT_SUM_COLUMNS_Y; y++) sum += sums[y][threadIdx.x];
  to.add(own ? c : c - columns, sum, accumulate);
}

// Sums of `part` [parts, stride] over its rows: the first `columns` columns to `out` [columns], the
// `next_columns` after them to `next`. Either may be absent.
template <class R>
static void ot_sum_parts(const ot_kernel_call *call, const R *part, int64_t parts, int64_t stride,
                         int64_t columns, const ot_tensor *out, int64_t next_columns,
                         const ot_tensor *next) {
  const ot_any<R> none = {};
  OT_LAUNCH(ot_sum_parts_kernel<R>, ot_blocks(columns + next_columns, OT_SUM_COLUMNS_X),
            dim3(OT_SUM_COLUMNS_X, OT_SUM_COLUMNS_Y), 0, ot_cuda_stream_of(call), part, (int)parts,
            stride, columns, ot_any_of<R>(out), next_columns, next ? ot_any_of<R>(next) : none,
            call->attributes->accumulate);
}

// `part` [parts, stride]; `out` [columns] may be absent.
template <class R>
static void ot_sum_parts(const ot_kernel_call *call, const R *part, int64_t parts, int64_t stride,
                         const ot_tensor *out) {
  if (!out->data) return;
  ot_sum_parts(call, part, parts, stride, ot_type_elements(&out->type), out, 0, NULL);
}
