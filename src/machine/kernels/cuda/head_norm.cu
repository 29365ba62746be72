// SPDX-License-Identifier: Apache-2.0
// RMSNorm of the queries and keys of packed rows, and their rotation: a team of threads a group,
// which it keeps in registers. The other element of a rotated pair is another thread's; it is read
// from memory again, where the cache still has it. Gradients of weights are summed over the rows of
// a block, then over blocks.
#include "kernels/cuda/rotation.cuh"
#include "kernels/cuda/rows.cuh"

extern "C" {
#include "kernels/cuda/tables.h"
#include "workspace/cuda_workspace.h"
#include "ops/head_norm.h"
}

namespace {

enum { HELD = 4 };  // vectors of a group in the registers of a thread

template <class R, class S>
struct head_operands {
  const S *x, *dy;  // [rows, columns]; dy of gradients and means
  ot_any<R> wq, wk;
  const R *means;  // [rows, 2], may be absent
  S *out;          // [rows, columns]
  R *rstd;         // [rows, groups], read by gradients and means
  R *sums;         // dw [parts, q_width + k_width], or means [rows, 2]
  int64_t rows;
  int columns, rows_of_block;
  int q_groups, k_groups, v_groups;  // of values: pieces to copy
  int q_width, k_width, v_width;     // elements of each group
  R offset, epsilon, ranks;
  const int32_t *positions;  // [rows], null: no rotation
  const R *table;
  int half;  // pairs of a head
};

// Where the N elements at column `column` of a head get their other halves from.
template <class R, int N>
struct rotated {
  int other;             // column of the other halves
  R cosine[N], sine[N];  // value = own * cosine + other * sine
};

// False where nothing rotates. `sign` is 1, or -1 for the inverse.
template <class R, class S, int N>
static __device__ __forceinline__ bool rotation_at(const head_operands<R, S> &o, int64_t row,
                                                   int column, R sign, rotated<R, N> *r) {
  if (!o.positions || column >= 2 * o.half) return false;
  const bool low = column < o.half;
  r->other = low ? column + o.half : column - o.half;
  ot_load_angles(o.table, o.positions[row], o.half, low ? column : r->other, r->cosine, r->sine);
#pragma unroll
  for (int k = 0; k < N; k++) r->sine[k] *= low ? -sign : sign;
  return true;
}

// A group of a row.
template <class R>
struct head_group {
  int part;           // 0: q, 1: k, 2: values
  int column, width;  // in the row
  ot_any<R> w;
};

template <class R, class S>
static __device__ __forceinline__ head_group<R> group_of(const head_operands<R, S> &o, int group) {
  if (group < o.q_groups) return {0, group * o.q_width, o.q_width, o.wq};
  const int q = o.q_groups * o.q_width, key = group - o.q_groups;
  if (key < o.k_groups) return {1, q + key * o.k_width, o.k_width, o.wk};
  return {2, q + o.k_groups * o.k_width + (key - o.k_groups) * o.v_width, o.v_width, {}};
}

template <int N, int TEAM, class S>
static __device__ __forceinline__ void copy_group(const S *from, S *to, int width, int thread) {
  for (int c = thread * N; c < width; c += TEAM * N) {
    *(ot_vector<S, N> *)(to + c) = *(const ot_vector<S, N> *)(from + c);
  }
}

// ---- forward ----

template <class R, class S, int N, int TEAM>
static __global__ void __launch_bounds__(OT_ROW_THREADS, 2)
    head_norm_kernel(head_operands<R, S> o) {
  __shared__ R parts[2 * OT_ROW_THREADS / 32];
  const int groups = o.q_groups + o.k_groups, pieces = groups + o.v_groups;
  const int64_t unit = (int64_t)blockIdx.x * (OT_ROW_THREADS / TEAM) + threadIdx.x / TEAM;
  const int64_t row = unit / pieces;
  const int thread = threadIdx.x % TEAM, index = (int)(unit - row * pieces);
  if (row >= o.rows) return;
  const head_group<R> group = group_of(o, index);
  const int64_t first = row * o.columns + group.column;
  if (group.part == 2) {
    copy_group<N, TEAM>(o.x + first, o.out + first, group.width, thread);
    return;
  }
  ot_held_row<S, N, TEAM, HELD> in;
  in.read(o.x + first, group.width, thread);
  R mean[1] = {0};
  ot_for_row<N, TEAM, HELD>(group.width, thread, [&](int c, int h) {
    R x[N];
    in.get(c, h, x);
#pragma unroll
    for (int k = 0; k < N; k++) mean[0] = fma(x[k], x[k], mean[0]);
  });
  ot_team_sums<TEAM>(mean, parts, 0);
  mean[0] = o.means ? o.means[2 * row + group.part] : mean[0] / (R)group.width;
  const R rstd = 1 / sqrt(mean[0] + o.epsilon);
  if (thread == 0) o.rstd[row * groups + index] = rstd;
  ot_for_row<N, TEAM, HELD>(group.width, thread, [&](int c, int h) {
    R x[N], w[N];
    in.get(c, h, x);
    ot_load_any(group.w, c, w);
#pragma unroll
    for (int k = 0; k < N; k++) x[k] = x[k] * rstd * (w[k] + o.offset);
    rotated<R, N> r;
    if (rotation_at(o, row, c, (R)1, &r)) {
      R other[N];
      ot_load(o.x + first + r.other, other);
      ot_load_any(group.w, r.other, w);
#pragma unroll
      for (int k = 0; k < N; k++) {
        x[k] = x[k] * r.cosine[k] + other[k] * rstd * (w[k] + o.offset) * r.sine[k];
      }
    }
    ot_store(o.out + first + c, x);
  });
}

// ---- gradient ----

// The elements of dy at column c of a group, rotated back.
template <class R, class S, int N, int TEAM>
static __device__ __forceinline__ void get_gradient(const head_operands<R, S> &o,
                                                    const ot_held_row<S, N, TEAM, HELD> &dy,
                                                    int64_t row, int c, int h, R (&d)[N]) {
  rotated<R, N> r;
  dy.get(c, h, d);
  if (!rotation_at(o, row, c, (R)-1, &r)) return;
  R other[N];
  ot_load(dy.row + r.other, other);
#pragma unroll
  for (int k = 0; k < N; k++) d[k] = d[k] * r.cosine[k] + other[k] * r.sine[k];
}

// The sum of dy * (w + offset) * x over a group.
template <class R, class S, int N, int TEAM>
static __device__ __forceinline__ R group_sum(const head_operands<R, S> &o,
                                              const ot_held_row<S, N, TEAM, HELD> &dy,
                                              const ot_held_row<S, N, TEAM, HELD> &x,
                                              const head_group<R> &group, int64_t row, R *parts,
                                              int turn) {
  R sum[1] = {0};
  ot_for_row<N, TEAM, HELD>(group.width, threadIdx.x % TEAM, [&](int c, int h) {
    R d[N], value[N], w[N];
    get_gradient<R, S, N, TEAM>(o, dy, row, c, h, d);
    x.get(c, h, value);
    ot_load_any(group.w, c, w);
#pragma unroll
    for (int k = 0; k < N; k++) sum[0] = fma(d[k] * (w[k] + o.offset), value[k], sum[0]);
  });
  ot_team_sums<TEAM>(sum, parts, turn);
  return sum[0];
}

// part[c] = the sums of the held columns over the teams of the block: those of a warp in a tree,
// then the warps in order.
template <class R, int N, int TEAM>
static __device__ __forceinline__ void put_sums(R *part, R (&sums)[HELD][N], int width) {
  constexpr int LANES = TEAM < 32 ? TEAM : 32, WARPS = TEAM < 32 ? OT_ROW_THREADS / 32 : 1;
  __shared__ R total[WARPS > 1 ? TEAM * HELD * N : 1];
  const int thread = threadIdx.x % TEAM;
#pragma unroll
  for (int h = 0; h < HELD; h++) {
#pragma unroll
    for (int k = 0; k < N; k++) {
#pragma unroll
      for (int by = LANES; by < 32; by *= 2) {
        sums[h][k] += __shfl_xor_sync(0xffffffffu, sums[h][k], by);
      }
    }
  }
  for (int t = 0; t < WARPS; t++) {
#pragma unroll
    for (int h = 0; h < HELD; h++) {
      const int c = (h * TEAM + thread) * N;
      if (WARPS > 1 && ((int)threadIdx.x / 32 != t || threadIdx.x % 32 >= LANES)) continue;
      if (c >= width) continue;
#pragma unroll
      for (int k = 0; k < N; k++) {
        const R sum = t > 0 ? total[c + k] + sums[h][k] : sums[h][k];
        if (t < WARPS - 1) total[c + k] = sum;
        if (t == WARPS - 1) part[c + k] = sum;
      }
    }
    __syncthreads();
  }
}

// The groups of part `part` (q or k) of the rows [first, first + rows).
template <class R, class S, int N, int TEAM>
static __device__ __forceinline__ void grad_part(const head_operands<R, S> &o, int part,
                                                 int64_t first, int rows, R *dw_part, R *parts) {
  constexpr int TEAMS = OT_ROW_THREADS / TEAM;
  const int groups = part == 0 ? o.q_groups : o.k_groups, before = part == 0 ? 0 : o.q_groups;
  const int thread = threadIdx.x % TEAM;
  R dw[HELD][N] = {};
  int turn = 0;
  for (int u = threadIdx.x / TEAM; u < rows * groups; u += TEAMS, turn++) {
    const int64_t row = first + u / groups;
    const int index = before + u % groups;
    const head_group<R> group = group_of(o, index);
    const int64_t at = row * o.columns + group.column;
    ot_held_row<S, N, TEAM, HELD> dy, x;
    dy.read(o.dy + at, group.width, thread);
    x.read(o.x + at, group.width, thread);
    const R rstd = o.rstd[row * (o.q_groups + o.k_groups) + index];
    R mean = group_sum<R, S, N, TEAM>(o, dy, x, group, row, parts, turn) * rstd / (R)group.width;
    if (o.means) mean = o.means[2 * row + part];
    ot_for_row<N, TEAM, HELD>(group.width, thread, [&](int c, int h) {
      R d[N], value[N], w[N];
      get_gradient<R, S, N, TEAM>(o, dy, row, c, h, d);
      x.get(c, h, value);
      ot_load_any(group.w, c, w);
#pragma unroll
      for (int k = 0; k < N; k++) {
        const R normal = value[k] * rstd;
        value[k] = d[k] * normal;
        d[k] = rstd * fma(d[k], w[k] + o.offset, -(normal * mean));
        if (h >= 0) dw[h < 0 ? 0 : h][k] += value[k];
      }
      if (h < 0) ot_put_part(dw_part + c, value, u > 0);
      ot_store(o.out + at + c, d);
    });
  }
  put_sums<R, N, TEAM>(dw_part, dw, part == 0 ? o.q_width : o.k_width);
}

template <class R, class S, int N, int TEAM>
static __global__ void __launch_bounds__(OT_ROW_THREADS, 2)
    head_norm_grad_kernel(head_operands<R, S> o) {
  __shared__ R parts[2 * OT_ROW_THREADS / 32];
  const int64_t first = (int64_t)blockIdx.x * o.rows_of_block;
  const int rows = (int)(o.rows - first < o.rows_of_block ? o.rows - first : o.rows_of_block);
  R *const dw = o.sums + (int64_t)blockIdx.x * (o.q_width + o.k_width);
  for (int part = 0; part < 2; part++) {
    grad_part<R, S, N, TEAM>(o, part, first, rows, part == 0 ? dw : dw + o.q_width, parts);
  }
  for (int u = threadIdx.x / TEAM; u < rows * o.v_groups; u += OT_ROW_THREADS / TEAM) {
    const head_group<R> group = group_of(o, o.q_groups + o.k_groups + u % o.v_groups);
    const int64_t at = (first + u / o.v_groups) * o.columns + group.column;
    copy_group<N, TEAM>(o.dy + at, o.out + at, group.width, threadIdx.x % TEAM);
  }
}

// ---- this rank's contribution to the means of whole rows ----

template <class R, class S, int N, int TEAM>
static __global__ void __launch_bounds__(OT_ROW_THREADS) head_means_kernel(head_operands<R, S> o) {
  __shared__ R parts[2 * OT_ROW_THREADS / 32];
  const int64_t unit = (int64_t)blockIdx.x * (OT_ROW_THREADS / TEAM) + threadIdx.x / TEAM;
  if (unit >= 2 * o.rows) return;
  const head_group<R> group = group_of(o, (int)(unit % 2));
  const int64_t at = unit / 2 * o.columns + group.column;
  R sum[1] = {0};
  for (int c = threadIdx.x % TEAM * N; c < group.width; c += TEAM * N) {
    R x[N], d[N], w[N];
    ot_load(o.x + at + c, x);
    if (o.dy) ot_load(o.dy + at + c, d);
    if (o.dy) ot_load_any(group.w, c, w);
#pragma unroll
    for (int k = 0; k < N; k++) {
      sum[0] = fma(o.dy ? d[k] * (w[k] + o.offset) : x[k], x[k], sum[0]);
    }
  }
  ot_team_sums<TEAM>(sum, parts, 0);
  if (threadIdx.x % TEAM > 0) return;
  o.sums[unit] = (o.dy ? sum[0] * o.rstd[unit] : sum[0]) / (R)group.width / o.ranks;
}

// ---- host ----

// Operands of packed rows x; the caller adds what its op has.
template <class R, class S>
static head_operands<R, S> operands_of(const ot_kernel_call *call, const ot_tensor *x,
                                       const ot_tensor *wq) {
  const ot_op_attributes *const a = call->attributes;
  const ot_head_groups groups = ot_head_groups_of(a);
  head_operands<R, S> o = {};
  o.x = (const S *)x->data;
  o.wq = ot_any_of<R>(&wq[0]);
  o.wk = ot_any_of<R>(&wq[1]);
  o.out = (S *)call->out[0].data;
  o.rows = x->type.dim[0];
  o.columns = (int)x->type.dim[1];
  o.q_groups = (int)groups.q_groups;
  o.k_groups = (int)groups.k_groups;
  o.v_groups = o.k_groups;
  o.q_width = (int)groups.q_width;
  o.k_width = (int)groups.k_width;
  o.v_width = (int)(groups.v_width / o.v_groups);
  o.offset = (R)a->norm_offset;
  o.epsilon = (R)a->epsilon;
  o.ranks = (R)a->group_size;
  return o;
}

// `positions` is followed by the table; both may be absent.
template <class R, class S>
static void set_rotation(const ot_tensor *positions, head_operands<R, S> *o) {
  o->positions = (const int32_t *)positions[0].data;
  o->table = (const R *)positions[1].data;
  o->half = positions[1].data ? (int)positions[1].type.dim[1] : 0;
}

// Calls launch(S{}, ot_width<N>{}, ot_width<TEAM>{}) for groups of packed rows.
template <class R, class Launch>
static void for_groups(const ot_kernel_call *call, const ot_tensor *x, const ot_tensor *wq,
                       Launch launch) {
  const ot_head_groups groups = ot_head_groups_of(call->attributes);
  const ot_dtype dtype = x->type.dtype;
  const void *const all[] = {call->in[0].data, x->data, wq[0].data, wq[1].data, call->out[0].data};
  const int64_t half = call->attributes->rotary_dim / 2;
  const bool vectors = ot_fits_vectors(dtype, call->attributes->head_dim | half, all, 5);
  ot_for_storage<R>(dtype, vectors, [&](auto s, auto width) {
    const int64_t widest = groups.q_width > groups.k_width ? groups.q_width : groups.k_width;
    if (widest <= 8 * HELD * decltype(width)::value) {
      launch(s, width, ot_width<8>{});
    } else {
      launch(s, width, ot_width<OT_ROW_THREADS>{});
    }
  });
}

template <class R>
static void head_norm(const ot_kernel_call *call) {
  for_groups<R>(call, &call->in[0], &call->in[1], [&](auto s, auto width, auto team) {
    using S = decltype(s);
    constexpr int N = decltype(width)::value, TEAM = decltype(team)::value;
    head_operands<R, S> o = operands_of<R, S>(call, &call->in[0], &call->in[1]);
    o.means = (const R *)call->in[3].data;
    o.rstd = (R *)call->out[1].data;
    set_rotation(&call->in[4], &o);
    const int64_t units = o.rows * (o.q_groups + o.k_groups + o.v_groups);
    OT_LAUNCH((head_norm_kernel<R, S, N, TEAM>), ot_blocks(units, OT_ROW_THREADS / TEAM),
              OT_ROW_THREADS, 0, ot_cuda_stream_of(call), o);
  });
}

template <class R>
static void head_norm_grad(const ot_kernel_call *call) {
  const ot_head_groups groups = ot_head_groups_of(call->attributes);
  const int64_t rows = call->in[0].type.dim[0], most = OT_HEAD_NORM_PARTS;
  const int64_t parts = ot_parts_of_rows(rows, most), stride = groups.q_width + groups.k_width;
  R *const sums = (R *)call->workspace;
  for_groups<R>(call, &call->in[1], &call->in[2], [&](auto s, auto width, auto team) {
    using S = decltype(s);
    constexpr int N = decltype(width)::value, TEAM = decltype(team)::value;
    head_operands<R, S> o = operands_of<R, S>(call, &call->in[1], &call->in[2]);
    o.dy = (const S *)call->in[0].data;
    o.means = (const R *)call->in[5].data;
    o.rstd = (R *)call->in[4].data;
    o.sums = sums;
    set_rotation(&call->in[6], &o);
    o.rows_of_block = (int)ot_rows_of_part(rows, most);
    OT_LAUNCH((head_norm_grad_kernel<R, S, N, TEAM>), (unsigned)parts, OT_ROW_THREADS, 0,
              ot_cuda_stream_of(call), o);
  });
  ot_sum_parts(call, sums, parts, stride, groups.q_width, &call->out[1], groups.k_width,
               &call->out[2]);
}

template <class R>
static void head_means(const ot_kernel_call *call) {
  for_groups<R>(call, &call->in[0], &call->in[2], [&](auto s, auto width, auto team) {
    using S = decltype(s);
    constexpr int N = decltype(width)::value, TEAM = decltype(team)::value;
    head_operands<R, S> o = operands_of<R, S>(call, &call->in[0], &call->in[2]);
    o.dy = (const S *)call->in[1].data;
    o.rstd = (R *)call->in[4].data;
    o.sums = (R *)call->out[0].data;
    OT_LAUNCH((head_means_kernel<R, S, N, TEAM>), ot_blocks(2 * o.rows, OT_ROW_THREADS / TEAM),
              OT_ROW_THREADS, 0, ot_cuda_stream_of(call), o);
  });
}

}  // namespace

extern "C" const ot_kernel_entry ot_head_norm_cuda_f32[] = {
    {OT_OP_HEAD_NORM, head_norm<float>},
    {OT_OP_HEAD_NORM_GRAD, head_norm_grad<float>},
    {OT_OP_HEAD_MEANS, head_means<float>},
    {}};

extern "C" const ot_kernel_entry ot_head_norm_cuda_f64[] = {
    {OT_OP_HEAD_NORM, head_norm<double>},
    {OT_OP_HEAD_NORM_GRAD, head_norm_grad<double>},
    {OT_OP_HEAD_MEANS, head_means<double>},
    {}};
