// SPDX-License-Identifier: Apache-2.0
// RMSNorm and LayerNorm. A team of threads reads a row once and keeps it in registers for all
// passes. Gradients of weights are summed over the rows of a block in registers, then over blocks.
#include "kernels/cuda/rows.cuh"

extern "C" {
#include "kernels/cuda/tables.h"
#include "workspace/cuda_workspace.h"
}

namespace {

// y, in the forward and where a gradient writes it again: the same bits in both kernels.
template <bool CENTRED, class R>
static __device__ __forceinline__ R norm_value(R h, R w, R b) {
  return CENTRED ? fma(h, w, b) : h * w;
}

// ---- teams of warps ----

// A team of threads has a row, in as many warps as the row needs; a block has as many teams as fit,
// whose rows are neighbours and proceed together. A thread has the same columns in all rows of its
// team, and keeps what is theirs in registers: weights, and sums over rows. It has at most 64
// registers, so that a multiprocessor has up to 32 warps, of two blocks, and twice the columns and
// registers in LONG rows, which BLOCK_WARPS warps do not cover else.
enum {
  BLOCK_WARPS = 16,  // of a block, at most
  TEAM_WARPS = 8,    // of a team in a block of several, at most
  TEAM_SLOTS = TEAM_WARPS * TEAM_WARPS,
  TEAM_COLUMNS = TEAM_WARPS * 32 * 8  // of a row in a block of several, at most
};

// Vectors of N columns that a thread holds.
template <class R, int N, bool LONG>
struct held_vectors {
  static constexpr int value = (N > 1 ? 8 / N : 16 / (int)sizeof(R)) * (LONG ? 2 : 1);
};

// Sums of each team's threads, for all of its threads. Slots of warps that no team has hold zeros.
template <int COUNT, class R>
static __device__ __forceinline__ void team_sums(R (&x)[COUNT], R (&slots)[2][COUNT][TEAM_SLOTS],
                                                 int turn) {
#pragma unroll
  for (int k = 0; k < COUNT; k++) x[k] = ot_lanes_sum<32>(x[k]);
  if (blockDim.x == 32) return;
  const int first = (int)threadIdx.y * TEAM_WARPS;
  if (threadIdx.x % 32 == 0) {
#pragma unroll
    for (int k = 0; k < COUNT; k++) slots[turn % 2][k][first + threadIdx.x / 32] = x[k];
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < COUNT; k++) {
    const R *const at = &slots[turn % 2][k][first];
    x[k] = at[0];
#pragma unroll
    for (int i = 1; i < TEAM_WARPS; i++) x[k] += at[i];
    if (blockDim.x <= 32 * TEAM_WARPS) continue;
#pragma unroll
    for (int i = TEAM_WARPS; i < BLOCK_WARPS; i++) x[k] += at[i];
  }
}

template <int COUNT, class R>
static __device__ __forceinline__ void clear_slots(R (&slots)[2][COUNT][TEAM_SLOTS]) {
  const int thread = (int)(threadIdx.y * blockDim.x + threadIdx.x);
  for (int i = thread; i < 2 * COUNT * TEAM_SLOTS; i += (int)(blockDim.x * blockDim.y)) {
    (&slots[0][0][0])[i] = 0;
  }
  __syncthreads();
}

// Calls launch(LONG, threads) with the fewest warps that hold a row of `vectors` of N.
template <class R, int N, class Launch>
static void for_row_teams(int64_t vectors, int64_t rows_of_block, Launch launch) {
  const unsigned warps = ot_blocks(vectors, 32 * held_vectors<R, N, false>::value);
  const unsigned longer = ot_blocks(vectors, 32 * held_vectors<R, N, true>::value);
  if (warps <= BLOCK_WARPS) {
    const unsigned teams = BLOCK_WARPS / warps;
    launch(ot_width<false>{},
           dim3(32 * warps, rows_of_block < teams ? (unsigned)rows_of_block : teams));
  } else {
    launch(ot_width<true>{}, dim3(32 * (longer < BLOCK_WARPS ? longer : (unsigned)BLOCK_WARPS)));
  }
}

// ---- forward ----

template <class R, class S>
struct norm_operands {
  const S *x;      // [rows, columns]
  ot_any<R> w, b;  // [columns]; b may be absent
  S *y;            // [rows, columns]
  R *mean, *rstd;  // [rows]; rmsnorm has no mean
  int64_t rows;
  int columns, rows_of_block;  // of layernorm
  R offset, epsilon;
};

// ---- rmsnorm ----

template <class R, class S, int N, int TEAM, int HELD>
static __global__ void __launch_bounds__(OT_ROW_THREADS, 2) rmsnorm_kernel(norm_operands<R, S> o) {
  __shared__ R parts[2 * OT_ROW_THREADS / 32];
  constexpr int TEAMS = OT_ROW_THREADS / TEAM;
  const int64_t row = (int64_t)blockIdx.x * TEAMS + threadIdx.x / TEAM;
  const int thread = threadIdx.x % TEAM;
  if (row >= o.rows) return;
  ot_held_row<S, N, TEAM, HELD> in;
  in.read(o.x + row * o.columns, o.columns, thread);
  R square[1] = {0};
  ot_for_row<N, TEAM, HELD>(o.columns, thread, [&](int c, int h) {
    R x[N];
    in.get(c, h, x);
#pragma unroll
    for (int k = 0; k < N; k++) square[0] = fma(x[k], x[k], square[0]);
  });
  ot_team_sums<TEAM>(square, parts, 0);
  const R rstd = 1 / sqrt(square[0] / (R)o.columns + o.epsilon);
  if (thread == 0) o.rstd[row] = rstd;
  ot_for_row<N, TEAM, HELD>(o.columns, thread, [&](int c, int h) {
    R x[N], w[N];
    in.get(c, h, x);
    ot_load_any(o.w, c, w);
#pragma unroll
    for (int k = 0; k < N; k++) x[k] = norm_value<false>(x[k] * rstd, w[k] + o.offset, (R)0);
    ot_store(o.y + row * o.columns + c, x);
  });
}

// ---- layernorm ----

// The columns of a row that a thread holds.
template <class S, int N, int HELD>
struct held_columns {
  ot_vector<S, N> at[HELD];

  __device__ __forceinline__ void read(const S *row, int columns) {
#pragma unroll
    for (int h = 0; h < HELD; h++) {
      const int c = (int)(h * blockDim.x + threadIdx.x) * N;
      if (c < columns) at[h] = *(const ot_vector<S, N> *)(row + c);
    }
  }
};

// Calls visit(x, c, h) for the N columns from c on that are the thread's, h < 0 if it does not hold
// them: few rows are so long.
template <bool LONG, class R, class S, int N, int HELD, class Visit>
static __device__ __forceinline__ void for_columns(const held_columns<S, N, HELD> &in, const S *row,
                                                   int columns, Visit visit) {
  R x[N];
#pragma unroll
  for (int h = 0; h < HELD; h++) {
    const int c = (int)(h * blockDim.x + threadIdx.x) * N;
    if (c >= columns) continue;
    ot_widen(in.at[h], x);
    visit(x, c, h);
  }
  const int rest = LONG ? (int)(HELD * blockDim.x + threadIdx.x) * N : columns;
#pragma unroll 1
  for (int c = rest; c < columns; c += (int)blockDim.x * N) {
    ot_load(row + c, x);
    visit(x, c, -1);
  }
}

// As in gradients a team has the warps that its row needs. A block has rows_of_block rows, of which
// its teams read one ahead; weights and bias stay in registers unless rows are long.
template <class R, class S, int N, bool LONG>
static __global__ void __launch_bounds__(BLOCK_WARPS * 32, !LONG && sizeof(R) == 4 ? 2 : 1)
    layernorm_kernel(norm_operands<R, S> o) {
  constexpr int HELD = held_vectors<R, N, LONG>::value, KEPT = LONG ? 1 : HELD;
  __shared__ __align__(16) R slots[2][1][TEAM_SLOTS];
  const int64_t first = (int64_t)blockIdx.x * o.rows_of_block;
  const int64_t end = first + o.rows_of_block < o.rows ? first + o.rows_of_block : o.rows;
  R w[KEPT][N] = {}, b[KEPT][N] = {};
  clear_slots(slots);
#pragma unroll
  for (int h = 0; h < KEPT; h++) {
    const int c = (int)(h * blockDim.x + threadIdx.x) * N;
    if (!LONG && c < o.columns) ot_load_any(o.w, c, w[h]);
    if (!LONG && c < o.columns && o.b.data) ot_load_any(o.b, c, b[h]);
  }
  held_columns<S, N, HELD> next = {}, in;
  if (first + threadIdx.y < end) next.read(o.x + (first + threadIdx.y) * o.columns, o.columns);
  int turn = 0;
  // A team without a row takes part in barriers.
  for (int64_t base = first; base < end; base += blockDim.y, turn += 2) {
    const int64_t row = base + threadIdx.y;
    const S *const from = o.x + (row < end ? row : base) * o.columns;
    in = next;
    if (row + blockDim.y < end) next.read(o.x + (row + blockDim.y) * o.columns, o.columns);
    R mean[1] = {0}, square[1] = {0};
    for_columns<LONG, R>(in, from, o.columns, [&](const R(&x)[N], int, int) {
#pragma unroll
      for (int k = 0; k < N; k++) mean[0] += x[k];
    });
    team_sums(mean, slots, turn);
    mean[0] /= (R)o.columns;
    for_columns<LONG, R>(in, from, o.columns, [&](const R(&x)[N], int, int) {
#pragma unroll
      for (int k = 0; k < N; k++) square[0] = fma(x[k] - mean[0], x[k] - mean[0], square[0]);
    });
    team_sums(square, slots, turn + 1);
    if (row >= end) continue;
    const R rstd = 1 / sqrt(square[0] / (R)o.columns + o.epsilon);
    if (threadIdx.x == 0) o.mean[row] = mean[0];
    if (threadIdx.x == 0) o.rstd[row] = rstd;
    for_columns<LONG, R>(in, from, o.columns, [&](R(&x)[N], int c, int h) {
      R gain[N], bias[N] = {};
#pragma unroll
      for (int k = 0; k < N; k++) {
        gain[k] = w[LONG ? 0 : h][k];
        bias[k] = b[LONG ? 0 : h][k];
      }
      if (LONG) ot_load_any(o.w, c, gain);
      if (LONG && o.b.data) ot_load_any(o.b, c, bias);
#pragma unroll
      for (int k = 0; k < N; k++) {
        x[k] = norm_value<true>((x[k] - mean[0]) * rstd, gain[k] + o.offset, bias[k]);
      }
      ot_store(o.y + row * o.columns + c, x);
    });
  }
}

// ---- launches ----

template <class R, bool CENTRED>
static void norm(const ot_kernel_call *call) {
  const ot_tensor *const in = call->in, *const out = call->out;
  const int64_t rows = in[0].type.dim[0], columns = in[0].type.dim[1];
  const ot_dtype dtype = in[0].type.dtype;
  const void *const all[] = {in[0].data, in[1].data, CENTRED ? in[2].data : NULL, out[0].data};
  ot_for_storage<R>(dtype, ot_fits_vectors(dtype, columns, all, 4), [&](auto s, auto width) {
    using S = decltype(s);
    constexpr int N = decltype(width)::value;
    const norm_operands<R, S> o = {(const S *)in[0].data,
                                   ot_any_of<R>(&in[1]),
                                   CENTRED ? ot_any_of<R>(&in[2]) : ot_any<R>{},
                                   (S *)out[0].data,
                                   CENTRED ? (R *)out[1].data : NULL,
                                   (R *)out[CENTRED ? 2 : 1].data,
                                   rows,
                                   (int)columns,
                                   (int)ot_rows_of_part(rows, OT_CUDA_PARTS),
                                   CENTRED ? 0 : (R)call->attributes->norm_offset,
                                   (R)call->attributes->epsilon};
    void *const stream = ot_cuda_stream_of(call);
    if constexpr (CENTRED) {
      for_row_teams<R, N>(columns / N, o.rows_of_block, [&](auto longer, dim3 threads) {
        constexpr bool LONG = decltype(longer)::value;
        OT_LAUNCH((layernorm_kernel<R, S, N, LONG>),
                  (unsigned)ot_parts_of_rows(rows, OT_CUDA_PARTS), threads, 0, stream, o);
      });
    } else {
      ot_for_teams(columns / N, 8, [&](auto team) {
        constexpr int TEAM = decltype(team)::value, HELD = TEAM == 32 ? 8 : 4;
        OT_LAUNCH((rmsnorm_kernel<R, S, N, TEAM, HELD>), ot_blocks(rows, OT_ROW_THREADS / TEAM),
                  OT_ROW_THREADS, 0, stream, o);
      });
    }
  });
}

// ---- gradients ----

// A block writes the sums of its rows, by team, then over its teams in order; ot_sum_parts adds
// those of all blocks. So the order of sums depends on the shape, the types and the alignment
// alone. All loads of a row are under way at once; of long rows those of the next, too.

template <class R, class S>
struct grad_operands {
  const S *dy, *x, *partial;  // [rows, columns]; partial may be absent
  ot_any<R> w, b;             // [columns]; b of layernorm, may be absent
  const R *mean, *rstd;       // [rows]; rmsnorm has no mean
  S *dx, *y;                  // [rows, columns]; y may be absent, and may be dy
  R *sums;                    // [parts, columns] of dw, or [parts, 2, columns] of dw and db
  int64_t rows;
  int columns, rows_of_block;
  R offset, share;  // 1 / columns
};

// w + offset of columns [c, c + N).
template <class R, class S, int N>
static __device__ __forceinline__ void load_gain(const grad_operands<R, S> &o, int c, R (&w)[N]) {
  ot_load_any(o.w, c, w);
#pragma unroll
  for (int k = 0; k < N; k++) w[k] += o.offset;
}

// The columns of a row that a thread reads; zeros where the row has no such columns.
template <class R, class S, int N, int HELD, bool CENTRED>
struct grad_row {
  ot_vector<S, N> dy[HELD], x[HELD], partial[HELD];
  R mean, rstd;

  __device__ __forceinline__ void read(const grad_operands<R, S> &o, int64_t row) {
    rstd = o.rstd[row];
    mean = CENTRED ? o.mean[row] : 0;
#pragma unroll
    for (int h = 0; h < HELD; h++) {
      const int c = (int)(h * blockDim.x + threadIdx.x) * N;
      dy[h] = x[h] = partial[h] = {};
      if (c >= o.columns) continue;
      const int64_t at = row * o.columns + c;
      dy[h] = *(const ot_vector<S, N> *)(o.dy + at);
      x[h] = *(const ot_vector<S, N> *)(o.x + at);
      if (o.partial) partial[h] = *(const ot_vector<S, N> *)(o.partial + at);
    }
  }
};

// N columns of a row.
template <class R, int N>
struct grad_piece {
  R dy[N], x[N], partial[N], w[N];
};

// Adds to the sums over a row of g * (x - mean) and of g = dy * w.
template <bool CENTRED, class R, int N>
static __device__ __forceinline__ void add_means(const grad_piece<R, N> &p, R mean,
                                                 R (&means)[CENTRED ? 2 : 1]) {
#pragma unroll
  for (int k = 0; k < N; k++) {
    const R g = p.dy[k] * p.w[k];
    means[0] = fma(g, p.x[k] - mean, means[0]);
    if (CENTRED) means[CENTRED] += g;
  }
}

// Writes a piece of dx, and of y, and adds its terms of dw and db. `at`: its place in the matrices.
template <bool CENTRED, class R, class S, int N>
static __device__ __forceinline__ void put_gradient(const grad_operands<R, S> &o, int64_t at, int c,
                                                    grad_piece<R, N> &p, R mean, R rstd,
                                                    const R (&means)[CENTRED ? 2 : 1], R (&dw)[N],
                                                    R (&db)[N]) {
#pragma unroll
  for (int k = 0; k < N; k++) {
    p.x[k] = (p.x[k] - mean) * rstd;
    const R g = CENTRED ? fma(p.dy[k], p.w[k], -means[CENTRED]) : p.dy[k] * p.w[k];
    p.partial[k] = fma(rstd, fma(-p.x[k], means[0], g), p.partial[k]);
    dw[k] = fma(p.dy[k], p.x[k], dw[k]);
    if (CENTRED) db[k] += p.dy[k];
  }
  ot_store(o.dx + at, p.partial);
  if (!o.y) return;
  R b[N] = {};
  if (CENTRED && o.b.data) ot_load_any(o.b, c, b);
#pragma unroll
  for (int k = 0; k < N; k++) p.x[k] = norm_value<CENTRED>(p.x[k], p.w[k], b[k]);
  ot_store(o.y + at, p.x);
}

// part[c] = the sums of the columns that threads hold, over the teams of the block in order.
template <class R, int N, int HELD>
static __device__ __forceinline__ void put_sums(R *part, const R (&sums)[HELD][N], int columns) {
  __shared__ __align__(16) R total[TEAM_COLUMNS];
  const int teams = (int)blockDim.y;
  for (int t = 0; t < teams; t++) {
#pragma unroll
    for (int h = 0; h < HELD; h++) {
      const int c = (int)(h * blockDim.x + threadIdx.x) * N;
      if ((int)threadIdx.y != t || c >= columns) continue;
      R sum[N];
#pragma unroll
      for (int k = 0; k < N; k++) sum[k] = t > 0 ? total[c + k] + sums[h][k] : sums[h][k];
      ot_store_pieces(t < teams - 1 ? total + c : part + c, sum);
    }
    __syncthreads();
  }
}

// Calls visit(piece, c, h) for the pieces of a row that the thread holds, and with h < 0 for those
// of columns beyond the held ones: few rows are so long, and registers are for those that are not.
// `w` has the gains of the held columns if KEPT.
template <bool LONG, bool KEPT, class R, class S, int N, int HELD, bool CENTRED, int W, class Visit>
static __device__ __forceinline__ void for_pieces(const grad_operands<R, S> &o, int64_t row,
                                                  const grad_row<R, S, N, HELD, CENTRED> &in,
                                                  const R (&w)[W][N], Visit visit) {
  grad_piece<R, N> p;
#pragma unroll
  for (int h = 0; h < HELD; h++) {
    const int c = (int)(h * blockDim.x + threadIdx.x) * N;
    if (c >= o.columns) continue;
    ot_widen(in.dy[h], p.dy);
    ot_widen(in.x[h], p.x);
    ot_widen(in.partial[h], p.partial);
#pragma unroll
    for (int k = 0; k < N; k++) p.w[k] = w[KEPT ? h : 0][k];
    if (!KEPT) load_gain(o, c, p.w);
    visit(p, c, h);
  }
  const int rest = LONG ? (int)(HELD * blockDim.x + threadIdx.x) * N : o.columns;
#pragma unroll 1
  for (int c = rest; c < o.columns; c += (int)blockDim.x * N) {
    ot_load(o.dy + row * o.columns + c, p.dy);
    ot_load(o.x + row * o.columns + c, p.x);
#pragma unroll
    for (int k = 0; k < N; k++) p.partial[k] = 0;
    if (o.partial) ot_load(o.partial + row * o.columns + c, p.partial);
    load_gain(o, c, p.w);
    visit(p, c, -1);
  }
}

template <class R, class S, int N, bool LONG, bool CENTRED>
static __global__ void __launch_bounds__(BLOCK_WARPS * 32, !LONG && sizeof(R) == 4 ? 2 : 1)
    norm_grad_kernel(grad_operands<R, S> o) {
  constexpr int HELD = held_vectors<R, N, LONG>::value, COUNT = CENTRED ? 2 : 1;
  constexpr bool KEPT = !LONG && !(CENTRED && N == 4),
                 AHEAD = LONG && N * sizeof(S) == 16 && sizeof(S) == 2;
  __shared__ __align__(16) R slots[2][COUNT][TEAM_SLOTS];
  const int64_t first = (int64_t)blockIdx.x * o.rows_of_block;
  const int64_t end = first + o.rows_of_block < o.rows ? first + o.rows_of_block : o.rows;
  R *const dw_part = o.sums + (int64_t)blockIdx.x * COUNT * o.columns;
  R *const db_part = dw_part + (COUNT - 1) * o.columns;
  R dw[HELD][N] = {}, db[HELD][N] = {}, w[KEPT ? HELD : 1][N] = {};
  clear_slots(slots);
#pragma unroll
  for (int h = 0; h < HELD && KEPT; h++) {
    const int c = (int)(h * blockDim.x + threadIdx.x) * N;
    if (c < o.columns) load_gain(o, c, w[KEPT ? h : 0]);
  }
  grad_row<R, S, N, HELD, CENTRED> next, in;
  if (AHEAD && first < end) next.read(o, first);
  int turn = 0;
  // A team without a row takes part in barriers, with another's row.
  for (int64_t base = first; base < end; base += blockDim.y, turn++) {
    const int64_t row = base + threadIdx.y, any = row < end ? row : base;
    if (AHEAD) in = next;
    if (AHEAD && row + 1 < end) next.read(o, row + 1);
    if (!AHEAD) in.read(o, any);
    R means[COUNT] = {};
    for_pieces<LONG, KEPT>(o, any, in, w, [&](const grad_piece<R, N> &p, int, int) {
      add_means<CENTRED>(p, in.mean, means);
    });
    team_sums(means, slots, turn);
    means[0] *= in.rstd;
#pragma unroll
    for (int k = 0; k < COUNT; k++) means[k] *= o.share;
    if (row >= end) continue;
    for_pieces<LONG, KEPT>(o, row, in, w, [&](grad_piece<R, N> &p, int c, int h) {
      R none[N] = {}, more[N] = {};
      put_gradient<CENTRED>(o, row * o.columns + c, c, p, in.mean, in.rstd, means,
                            h < 0 ? none : dw[h < 0 ? 0 : h], h < 0 ? more : db[h < 0 ? 0 : h]);
      if (h < 0) ot_put_part(dw_part + c, none, row > first);
      if (CENTRED && h < 0) ot_put_part(db_part + c, more, row > first);
    });
  }
  put_sums(dw_part, dw, o.columns);
  if (CENTRED) put_sums(db_part, db, o.columns);
}

template <class R, bool CENTRED>
static void norm_grad(const ot_kernel_call *call) {
  const ot_tensor *const in = call->in, *const out = call->out;
  const int64_t rows = in[0].type.dim[0], columns = in[0].type.dim[1];
  const int64_t rows_of_block = ot_rows_of_part(rows, OT_CUDA_PARTS);
  const int64_t parts = ot_parts_of_rows(rows, OT_CUDA_PARTS);
  const ot_tensor *const partial = &in[CENTRED ? 5 : 4];
  void *const y = out[CENTRED ? 3 : 2].data, *const b = CENTRED ? in[6].data : NULL;
  const ot_dtype dtype = in[0].type.dtype;
  const void *const all[] = {in[0].data, in[1].data, in[2].data, partial->data, out[0].data, b, y};
  R *const sums = (R *)call->workspace;
  ot_for_storage<R>(dtype, ot_fits_vectors(dtype, columns, all, 7), [&](auto s, auto width) {
    using S = decltype(s);
    constexpr int N = decltype(width)::value;
    const grad_operands<R, S> o = {(const S *)in[0].data,
                                   (const S *)in[1].data,
                                   (const S *)partial->data,
                                   ot_any_of<R>(&in[2]),
                                   CENTRED ? ot_any_of<R>(&in[6]) : ot_any<R>{},
                                   CENTRED ? (const R *)in[3].data : NULL,
                                   (const R *)in[CENTRED ? 4 : 3].data,
                                   (S *)out[0].data,
                                   (S *)y,
                                   sums,
                                   rows,
                                   (int)columns,
                                   (int)rows_of_block,
                                   CENTRED ? 0 : (R)call->attributes->norm_offset,
                                   1 / (R)columns};
    for_row_teams<R, N>(columns / N, rows_of_block, [&](auto longer, dim3 threads) {
      constexpr bool LONG = decltype(longer)::value;
      OT_LAUNCH((norm_grad_kernel<R, S, N, LONG, CENTRED>), (unsigned)parts, threads, 0,
                ot_cuda_stream_of(call), o);
    });
  });
  ot_sum_parts(call, sums, parts, CENTRED ? 2 * columns : columns, columns, &out[1],
               CENTRED ? columns : 0, CENTRED ? &out[2] : NULL);
}

}  // namespace

extern "C" const ot_kernel_entry ot_norm_cuda_f32[] = {
    {OT_OP_RMSNORM, norm<float, false>},
    {OT_OP_RMSNORM_GRAD, norm_grad<float, false>},
    {OT_OP_LAYERNORM, norm<float, true>},
    {OT_OP_LAYERNORM_GRAD, norm_grad<float, true>},
    {}};

extern "C" const ot_kernel_entry ot_norm_cuda_f64[] = {
    {OT_OP_RMSNORM, norm<double, false>},
    {OT_OP_RMSNORM_GRAD, norm_grad<double, false>},
    {OT_OP_LAYERNORM, norm<double, true>},
    {OT_OP_LAYERNORM_GRAD, norm_grad<double, true>},
    {}};
