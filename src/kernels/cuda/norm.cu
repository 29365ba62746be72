// SPDX-License-Identifier: Apache-2.0
// RMSNorm and LayerNorm. A team of threads reads a row once and keeps it in registers for all
// passes. Gradients of weights are summed over the rows of a block in registers, then over blocks.
#include "kernels/cuda/rows.cuh"

extern "C" {
#include "kernels/cuda/tables.h"
#include "ops/blocks.h"
}

namespace {

// y, in the forward and where a gradient writes it again: the same bits in both kernels.
template <bool CENTRED, class R>
static __device__ __forceinline__ R norm_value(R h, R w, R b) {
  return CENTRED ? fma(h, w, b) : h * w;
}

// ---- forward ----

template <class R, class S>
struct norm_operands {
  const S *x;      // [rows, columns]
  ot_any<R> w, b;  // [columns]; b may be absent
  S *y;            // [rows, columns]
  R *mean, *rstd;  // [rows]; rmsnorm has no mean
  int64_t rows;
  int columns;
  R offset, epsilon;
};

template <class R, class S, int N, int TEAM, int HELD, bool CENTRED>
static __global__ void __launch_bounds__(OT_ROW_THREADS, 2) norm_kernel(norm_operands<R, S> o) {
  __shared__ R parts[4 * OT_ROW_THREADS / 32];
  constexpr int TEAMS = OT_ROW_THREADS / TEAM;
  const int64_t row = (int64_t)blockIdx.x * TEAMS + threadIdx.x / TEAM;
  const int thread = threadIdx.x % TEAM;
  if (row >= o.rows) return;
  ot_held_row<S, N, TEAM, HELD> in;
  in.read(o.x + row * o.columns, o.columns, thread);
  R mean[1] = {0}, square[1] = {0};
  if (CENTRED) {
    ot_for_row<N, TEAM, HELD>(o.columns, thread, [&](int c, int h) {
      R x[N];
      in.get(c, h, x);
#pragma unroll
      for (int k = 0; k < N; k++) mean[0] += x[k];
    });
    ot_team_sums<TEAM>(mean, parts, 0);
    mean[0] /= (R)o.columns;
  }
  ot_for_row<N, TEAM, HELD>(o.columns, thread, [&](int c, int h) {
    R x[N];
    in.get(c, h, x);
#pragma unroll
    for (int k = 0; k < N; k++) {
      const R from_mean = x[k] - mean[0];
      square[0] = fma(from_mean, from_mean, square[0]);
    }
  });
  ot_team_sums<TEAM>(square, parts, 1);
  const R rstd = 1 / sqrt(square[0] / (R)o.columns + o.epsilon);
  if (thread == 0) {
    o.rstd[row] = rstd;
    if (CENTRED) o.mean[row] = mean[0];
  }
  ot_for_row<N, TEAM, HELD>(o.columns, thread, [&](int c, int h) {
    R x[N], w[N], b[N] = {};
    in.get(c, h, x);
    ot_load_any(o.w, c, w);
    if (CENTRED && o.b.data) ot_load_any(o.b, c, b);
#pragma unroll
    for (int k = 0; k < N; k++) {
      x[k] = norm_value<CENTRED>((x[k] - mean[0]) * rstd, w[k] + o.offset, b[k]);
    }
    ot_store(o.y + row * o.columns + c, x);
  });
}

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
                                   CENTRED ? 0 : (R)call->attributes->norm_offset,
                                   (R)call->attributes->epsilon};
    ot_for_teams(columns / N, 8, [&](auto team) {
      constexpr int TEAM = decltype(team)::value, HELD = TEAM == 32 ? 8 : 4;
      OT_LAUNCH((norm_kernel<R, S, N, TEAM, HELD, CENTRED>), ot_blocks(rows, OT_ROW_THREADS / TEAM),
                OT_ROW_THREADS, 0, ot_cuda_stream_of(call), o);
    });
  });
}

// ---- gradients ----

template <class R, class S>
struct grad_operands {
  const S *dy, *x, *partial;  // [rows, columns]; partial may be absent
  ot_any<R> w, b;             // [columns]; b of layernorm, may be absent
  const R *mean, *rstd;       // [rows]; rmsnorm has no mean
  S *dx, *y;                  // [rows, columns]; y may be absent, and may be dy
  R *dw, *db;                 // [parts, columns]: sums over the rows of each block
  int64_t rows;
  int columns, rows_of_block;
  R offset;
};

template <class S, int N, int TEAM, int HELD>
struct grad_row {
  ot_held_row<S, N, TEAM, HELD> dy, x;
};

// The means of g = dy * (w + offset) and of g * h over a row.
template <class R, class S, int N, int TEAM, int HELD, bool CENTRED>
static __device__ __forceinline__ void grad_means(const grad_operands<R, S> &o,
                                                  const grad_row<S, N, TEAM, HELD> &in, R mean,
                                                  R rstd, R (&means)[CENTRED ? 2 : 1], R *parts,
                                                  int turn) {
  constexpr int COUNT = CENTRED ? 2 : 1;
#pragma unroll
  for (int k = 0; k < COUNT; k++) means[k] = 0;
  ot_for_row<N, TEAM, HELD>(o.columns, threadIdx.x % TEAM, [&](int c, int h) {
    R dy[N], x[N], w[N];
    in.dy.get(c, h, dy);
    in.x.get(c, h, x);
    ot_load_any(o.w, c, w);
#pragma unroll
    for (int k = 0; k < N; k++) {
      const R g = dy[k] * (w[k] + o.offset);
      means[0] = fma(g, x[k] - mean, means[0]);
      if (CENTRED) means[COUNT - 1] += g;
    }
  });
  ot_team_sums<TEAM>(means, parts, turn);
  means[0] *= rstd;
#pragma unroll
  for (int k = 0; k < COUNT; k++) means[k] /= (R)o.columns;
}

// part[c] = the sums of the held columns, over the teams of the block in order.
template <class R, int N, int TEAM, int HELD>
static __device__ __forceinline__ void put_sums(R *part, const R (&sums)[HELD][N], int columns) {
  constexpr int TEAMS = TEAM > OT_ROW_THREADS ? 1 : OT_ROW_THREADS / TEAM;
  __shared__ R total[TEAMS > 1 ? TEAM * HELD * N : 1];
  const int thread = threadIdx.x % TEAM, team = threadIdx.x / TEAM;
  for (int t = 0; t < TEAMS; t++) {
#pragma unroll
    for (int h = 0; h < HELD; h++) {
      const int c = (h * TEAM + thread) * N;
      if (team != t || c >= columns) continue;
#pragma unroll
      for (int k = 0; k < N; k++) {
        const R sum = t > 0 ? total[c + k] + sums[h][k] : sums[h][k];
        if (t < TEAMS - 1) total[c + k] = sum;
        if (t == TEAMS - 1) part[c + k] = sum;
      }
    }
    __syncthreads();
  }
}

template <class R, class S, int N, int TEAM, int HELD, bool CENTRED>
static __global__ void __launch_bounds__(TEAM > OT_ROW_THREADS ? TEAM : OT_ROW_THREADS, 1)
    norm_grad_kernel(grad_operands<R, S> o) {
  constexpr int THREADS = TEAM > OT_ROW_THREADS ? TEAM : OT_ROW_THREADS, TEAMS = THREADS / TEAM;
  constexpr bool AHEAD = TEAM <= OT_ROW_THREADS || !CENTRED;  // where registers suffice
  __shared__ R parts[4 * THREADS / 32];
  const int thread = threadIdx.x % TEAM, team = threadIdx.x / TEAM;
  const int64_t first = (int64_t)blockIdx.x * o.rows_of_block;
  const int64_t end = first + o.rows_of_block < o.rows ? first + o.rows_of_block : o.rows;
  R *const dw_part = o.dw + (int64_t)blockIdx.x * o.columns;
  R *const db_part = o.db + (int64_t)blockIdx.x * o.columns;
  R dw[HELD][N] = {}, db[CENTRED ? HELD : 1][N] = {};
  grad_row<S, N, TEAM, HELD> next, in;
  const auto read = [&](int64_t row) {
    next.dy.read(o.dy + row * o.columns, o.columns, thread);
    next.x.read(o.x + row * o.columns, o.columns, thread);
  };
  if (AHEAD && first + team < end) read(first + team);
  int turn = 0;
  for (int64_t row = first + team; row < end; row += TEAMS, turn++) {
    if (!AHEAD) read(row);
    in = next;
    if (AHEAD && row + TEAMS < end) read(row + TEAMS);
    const R mean = CENTRED ? o.mean[row] : 0, rstd = o.rstd[row];
    R means[CENTRED ? 2 : 1];
    grad_means<R, S, N, TEAM, HELD, CENTRED>(o, in, mean, rstd, means, parts, turn);
    ot_for_row<N, TEAM, HELD>(o.columns, thread, [&](int c, int h) {
      R dy[N], x[N], w[N], partial[N] = {}, normal[N];
      in.dy.get(c, h, dy);
      in.x.get(c, h, x);
      ot_load_any(o.w, c, w);
      if (o.partial) ot_load(o.partial + row * o.columns + c, partial);
#pragma unroll
      for (int k = 0; k < N; k++) {
        normal[k] = (x[k] - mean) * rstd;
        const R g = fma(dy[k], w[k] + o.offset, CENTRED ? -means[CENTRED] : (R)0);
        partial[k] = fma(rstd, fma(-normal[k], means[0], g), partial[k]);
        normal[k] *= dy[k];
        if (h >= 0) dw[h < 0 ? 0 : h][k] += normal[k];
        if (CENTRED && h >= 0) db[h < 0 ? 0 : h * CENTRED][k] += dy[k];
      }
      if (h < 0) ot_put_part(dw_part + c, normal, row > first);
      if (CENTRED && h < 0) ot_put_part(db_part + c, dy, row > first);
      ot_store(o.dx + row * o.columns + c, partial);
      if (!o.y) return;
      R b[N] = {};
      if (CENTRED && o.b.data) ot_load_any(o.b, c, b);
#pragma unroll
      for (int k = 0; k < N; k++) {
        x[k] = norm_value<CENTRED>((x[k] - mean) * rstd, w[k] + o.offset, b[k]);
      }
      ot_store(o.y + row * o.columns + c, x);
    });
  }
  put_sums<R, N, TEAM, HELD>(dw_part, dw, o.columns);
  if (CENTRED) put_sums<R, N, TEAM, CENTRED ? HELD : 1>(db_part, db, o.columns);
}

// Calls launch(ot_width<TEAM>{}) with the smallest team that keeps a row in registers.
template <class Launch>
static void for_grad_teams(int64_t vectors, Launch launch) {
  if (vectors <= 32 * 4) {
    launch(ot_width<32>{});
  } else if (vectors <= 256 * 2) {
    launch(ot_width<256>{});
  } else {
    launch(ot_width<512>{});
  }
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
  R *const dw = (R *)call->workspace, *const db = CENTRED ? dw + parts * columns : dw;
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
                                   dw,
                                   db,
                                   rows,
                                   (int)columns,
                                   (int)rows_of_block,
                                   CENTRED ? 0 : (R)call->attributes->norm_offset};
    for_grad_teams(columns / N, [&](auto team) {
      constexpr int TEAM = decltype(team)::value, HELD = TEAM == 32 ? 4 : 2;
      OT_LAUNCH((norm_grad_kernel<R, S, N, TEAM, HELD, CENTRED>), (unsigned)parts,
                TEAM > OT_ROW_THREADS ? TEAM : OT_ROW_THREADS, 0, ot_cuda_stream_of(call), o);
    });
  });
  ot_sum_parts(call, dw, parts, columns, &out[1]);
  if (CENTRED) ot_sum_parts(call, db, parts, columns, &out[2]);
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
