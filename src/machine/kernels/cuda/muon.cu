// SPDX-License-Identifier: Apache-2.0
// Muon: the products of Newton-Schulz steps by matmul.h in the compute type, the rest in one pass
// over memory each. Whether the step is skipped is known on the device only: then the products have
// no meaning and no result is used.
#include "kernels/cuda/rows.cuh"

extern "C" {
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/tables.h"
#include "workspace/cuda_workspace.h"
#include "workspace/muon_layout.h"
#include "ops/optimizer.h"
}

namespace {

enum { THREADS = 256 };

__device__ __forceinline__ bool is_skipped(const double *scalars) {
  const double factor = scalars[OT_SCALAR_CLIP_FACTOR];
  return factor - factor != 0;
}

template <class R>
struct muon_tensors {
  ot_any<R> g, p, m, master;
  const double *scalars;
  int64_t n;
};

// The momentum and, in x, the Nesterov direction u; sums [block] of u^2.
template <class R>
__global__ void __launch_bounds__(THREADS)
    momentum_kernel(muon_tensors<R> t, double beta1, R *x, double *sums) {
  __shared__ double shared[THREADS / 32];
  const R factor = (R)t.scalars[OT_SCALAR_CLIP_FACTOR];
  const R beta = (R)beta1, rest = (R)(1 - beta1);
  const int64_t stride = (int64_t)gridDim.x * THREADS, n = is_skipped(t.scalars) ? 0 : t.n;
  double sum = 0;
  for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += stride) {
    const R fresh = rest * factor * t.g[i], m = beta * t.m[i] + fresh, u = beta * m + fresh;
    t.m.set(i, m);
    x[i] = u;
    sum += (double)u * (double)u;
  }
  sum = ot_block_sum<THREADS>(sum, shared);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// x = x / (|x| + 1e-7), `squares` being |x|^2.
template <class R>
__global__ void __launch_bounds__(THREADS) scale_kernel(R *x, int64_t n, const double *squares) {
  const R factor = (R)(1 / (sqrt(*squares) + 1e-7));
  const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (i < n) x[i] *= factor;
}

// b = 3.4445 I - 4.7750 a + 2.0315 b for matrices [side, side] (Jordan et al. 2024).
template <class R>
__global__ void __launch_bounds__(THREADS) polynomial_kernel(const R *a, R *b, int64_t side) {
  const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (i >= side * side) return;
  const R constant = i % (side + 1) == 0 ? (R)3.4445 : (R)0;
  b[i] = (R)2.0315 * b[i] + ((R)-4.7750 * a[i] + constant);
}

struct step_settings {
  double rate_factor, weight_decay;
  int64_t longer;  // side of the matrix
};

// p = p - d, d = step * x + decay * p; sums [block][2]: of d^2 and of the new p^2.
template <class R>
__global__ void __launch_bounds__(THREADS)
    update_kernel(muon_tensors<R> t, step_settings s, const R *x, double *sums) {
  __shared__ double shared[THREADS / 32];
  const double rate = t.scalars[OT_SCALAR_LEARNING_RATE] * s.rate_factor;
  // Liu et al. 2025 (Moonlight), sec. 2.2: matches the RMS of AdamW's updates, about 0.2.
  const R step = (R)(rate * 0.2 * sqrt((double)s.longer)), decay = (R)(rate * s.weight_decay);
  const int64_t stride = (int64_t)gridDim.x * THREADS, n = is_skipped(t.scalars) ? 0 : t.n;
  double squares[2] = {0, 0};
  for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += stride) {
    const R before = t.master.data ? t.master[i] : t.p[i];
    const R d = step * x[i] + decay * before, w = before - d;
    t.p.set(i, w);
    if (t.master.data) t.master.set(i, w);
    squares[0] += (double)d * (double)d;
    squares[1] += (double)w * (double)w;
  }
#pragma unroll
  for (int k = 0; k < 2; k++) {
    const double sum = ot_block_sum<THREADS>(squares[k], shared);
    if (threadIdx.x == 0) sums[2 * blockIdx.x + k] = sum;
  }
}

// to [count] = the sums over `parts` of sums [parts, count].
void add_parts(void *stream, const double *sums, int parts, int64_t count, double *to) {
  const ot_any<double> totals = {to, OT_F64};
  OT_LAUNCH(ot_sum_parts_kernel<double>, 1, dim3(OT_SUM_COLUMNS_X, OT_SUM_COLUMNS_Y), 0, stream,
            sums, parts, count, count, totals, (int64_t)0, totals, false);
}

template <class R>
struct muon {
  const ot_kernel_call *call;
  int64_t rows, columns, side;  // side: of the Gram matrix, the shorter of rows and columns
  int parts;                    // blocks of a sum
  R *x, *y, *a, *b;
  double *sums;  // [parts, 2], then a total

  explicit muon(const ot_kernel_call *c)
      : call(c), rows(c->in[0].type.dim[0]), columns(c->in[0].type.dim[1]) {
    const ot_muon_layout l = ot_muon_layout_of(rows, columns, c->attributes->compute);
    char *const base = (char *)c->workspace;
    side = rows < columns ? rows : columns;
    parts = (int)ot_cuda_flat_blocks(rows * columns);
    x = (R *)(base + l.x);
    y = (R *)(base + l.y);
    a = (R *)(base + l.a);
    b = (R *)(base + l.b);
    sums = (double *)(base + l.sums);
  }

  ot_cuda_matrix matrix(const R *data, int64_t stride, bool transposed) const {
    return {data, call->attributes->compute, stride, transposed};
  }

  void multiply(ot_cuda_matrix first, ot_cuda_matrix second, ot_cuda_matrix to, int64_t to_rows,
                int64_t depth) const {
    ot_cuda_product p = {};
    p.rows = to_rows;
    p.columns = to.stride;
    p.depth = depth;
    p.a = first;
    p.b = second;
    p.y = to;
    p.compute = call->attributes->compute;
    ot_cuda_multiply(ot_cuda_context_of(call), &p);
  }

  // y = polynomial(Gram matrix) x, or the same from the right for a tall matrix; swaps x and y.
  void iterate() {
    const bool wide = rows <= columns;
    const ot_cuda_matrix upright = matrix(x, columns, false), turned = matrix(x, columns, true);
    const ot_cuda_matrix gram = matrix(a, side, false), power = matrix(b, side, false);
    multiply(wide ? upright : turned, wide ? turned : upright, gram, side, rows + columns - side);
    multiply(gram, gram, power, side, side);
    OT_LAUNCH(polynomial_kernel<R>, ot_blocks(side * side, THREADS), THREADS, 0,
              ot_cuda_stream_of(call), (const R *)a, b, side);
    multiply(wide ? power : upright, wide ? upright : power, matrix(y, columns, false), rows, side);
    R *const previous = x;
    x = y;
    y = previous;
  }
};

template <class R>
void muon_update(const ot_kernel_call *call) {
  const ot_op_attributes *const attributes = call->attributes;
  const ot_tensor *const out = call->out;
  void *const stream = ot_cuda_stream_of(call);
  muon<R> m(call);
  const int64_t n = m.rows * m.columns;
  double *const total = m.sums + 2 * m.parts;
  const muon_tensors<R> tensors = {ot_any_of<R>(&call->in[0]),
                                   ot_any_of<R>(&out[0]),
                                   ot_any_of<R>(&out[1]),
                                   ot_any_of<R>(&out[2]),
                                   (const double *)call->in[1].data,
                                   n};
  const step_settings settings = {attributes->learning_rate_factor, attributes->weight_decay,
                                  m.rows + m.columns - m.side};
  OT_LAUNCH(momentum_kernel<R>, m.parts, THREADS, 0, stream, tensors, attributes->beta1, m.x,
            m.sums);
  add_parts(stream, m.sums, m.parts, 1, total);
  OT_LAUNCH(scale_kernel<R>, ot_blocks(n, THREADS), THREADS, 0, stream, m.x, n,
            (const double *)total);
  for (int i = 0; i < OT_MUON_ITERATIONS; i++) m.iterate();
  OT_LAUNCH(update_kernel<R>, m.parts, THREADS, 0, stream, tensors, settings, (const R *)m.x,
            m.sums);
  if (out[3].data) add_parts(stream, m.sums, m.parts, 2, (double *)out[3].data);
}

}  // namespace

extern "C" const ot_kernel_entry ot_muon_cuda_f32[] = {{OT_OP_MUON, muon_update<float>}, {}};

extern "C" const ot_kernel_entry ot_muon_cuda_f64[] = {{OT_OP_MUON, muon_update<double>}, {}};
