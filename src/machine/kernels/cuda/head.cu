// SPDX-License-Identifier: Apache-2.0
// The head, chunk by chunk: a product gives the logits, a block of threads a row computes their
// maximum, the sum of exponentials and, for the loss, their gradient; two products give dx and dw.
#include "kernels/cuda/head_bf16.cuh"
#include "kernels/cuda/head_draws.cuh"
#include "kernels/cuda/head_products.cuh"

extern "C" {
#include "base/rng.h"
#include "kernels/cuda/tables.h"
#include "workspace/cuda_workspace.h"
#include "ops/head.h"
#include "ops/head_draw.h"
}

namespace {

// nats [row]; dlogits replace the logits.
template <class R>
__global__ void __launch_bounds__(THREADS)
    loss_kernel(chunk_logits<R> c, const double *inverse_tokens, double *nats) {
  __shared__ double parts[THREADS / 32];
  __shared__ R most[THREADS / 32];
  const int64_t r = blockIdx.x;
  R *const row = c.logits + r * c.stride;
  const int32_t target = c.targets[r];
  const R cap = (R)c.cap;
  const row_statistics<R> s = read_row(c, row, parts, most);
  const double value = target < 0 ? 0 : nats_of(c, row, target, s);
  __syncthreads();
  if (threadIdx.x == 0) nats[r] = value;
  const R factor = (R)(*inverse_tokens / s.sum), one = (R)*inverse_tokens;
  for (int64_t i = threadIdx.x; i < c.V; i += THREADS) {
    const R x = ot_capped_logit(row[i], cap);
    const R p = exp(x - s.largest) * factor - (i == target ? one : (R)0);
    row[i] = target < 0 ? (R)0 : p * ot_cap_slope(x, cap);
  }
}

// The same for weighted targets: first W p everywhere, then less their weights at the ids, whose
// logits are kept.
template <class R>
__global__ void __launch_bounds__(THREADS, 2)
    weighted_kernel(chunk_logits<R> c, ot_weighted_targets weighted, const double *inverse_tokens,
                    row_losses losses) {
  __shared__ double parts[THREADS / 32];
  __shared__ R most[THREADS / 32], kept[OT_HEAD_IDS_MAX];
  const int64_t r = blockIdx.x;
  R *const row = c.logits + r * c.stride;
  const int32_t target = c.targets[r];
  const ot_row_targets pulls(weighted, r, c.targets);
  const int K = target < 0 ? 0 : pulls.K;
  const R cap = (R)c.cap;
  const row_statistics<R> s = read_row(c, row, parts, most);
  const double data = target < 0 ? 0 : nats_of(c, row, target, s);
  for (int k = threadIdx.x; k < K; k += THREADS) kept[k] = ot_capped_logit(row[pulls.ids[k]], cap);
  __syncthreads();
  double weight = 0, pulled = 0;
  for (int k = 0; k < K; k++) {
    weight += pulls.weight(k);
    pulled += pulls.weight(k) * (double)kept[k];
  }
  if (threadIdx.x == 0) {
    losses.data[r] = data;
    losses.nats[r] = K == 0 ? 0 : weight * log(s.sum) + (weight * (double)s.largest - pulled);
  }
  const R factor = (R)(*inverse_tokens * weight / s.sum);
  for (int64_t i = threadIdx.x; i < c.V; i += THREADS) {
    const R x = ot_capped_logit(row[i], cap);
    row[i] = K == 0 ? (R)0 : exp(x - s.largest) * factor * ot_cap_slope(x, cap);
  }
  __syncthreads();
  for (int k = threadIdx.x; k < K; k += THREADS) {
    if (!pulls.is_first(k)) continue;
    R pull = 0;
    for (int j = k; j < K; j++) {
      if (pulls.ids[j] == pulls.ids[k]) pull += (R)(*inverse_tokens * pulls.weight(j));
    }
    const R p = exp(kept[k] - s.largest) * factor - pull;
    row[pulls.ids[k]] = p * ot_cap_slope(kept[k], cap);
  }
}

template <class R>
__global__ void __launch_bounds__(THREADS) nats_kernel(chunk_logits<R> c, double *nats) {
  __shared__ double parts[THREADS / 32];
  __shared__ R most[THREADS / 32];
  const int64_t r = blockIdx.x;
  const R *const row = c.logits + r * c.stride;
  const int32_t target = c.targets[r];
  const row_statistics<R> s = read_row(c, row, parts, most);
  if (threadIdx.x == 0) nats[r] = target < 0 ? 0 : nats_of(c, row, target, s);
}

// The outputs of head_score; best may be null. With `sum`, they are those of a shard of the
// vocabulary (ops/head.h).
struct row_scores {
  double *logprob;
  int32_t *greedy;
  double *best, *sum;
  int64_t first_vocab;
};

// The lowest id with the largest logit, -1 when there is none.
template <class R>
__global__ void __launch_bounds__(THREADS) score_kernel(chunk_logits<R> c, row_scores to) {
  __shared__ double parts[THREADS / 32];
  __shared__ R most[THREADS / 32];
  const int64_t r = blockIdx.x, target = c.targets[r] - to.first_vocab;
  const R *const row = c.logits + r * c.stride;
  const bool mine = target >= 0 && target < c.V;
  const row_statistics<R> s = read_row(c, row, parts, most);
  const int32_t lowest = lowest_of(row, c.V, (R)c.cap, s.largest, -1);
  if (threadIdx.x > 0) return;
  to.greedy[r] = lowest == INT32_MAX ? -1 : lowest + (int32_t)to.first_vocab;
  if (!to.sum) {
    to.logprob[r] = mine ? -nats_of(c, row, (int32_t)target, s) : 0;
    if (to.best) to.best[r] = -log(s.sum);
    return;
  }
  to.logprob[r] = mine ? (double)ot_capped_logit(row[target], (R)c.cap) : -INFINITY;
  to.best[r] = (double)s.largest;
  to.sum[r] = s.sum;
}

template <class R>
__global__ void cap_kernel(R *logits, int64_t n, R cap) {
  const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) logits[i] = ot_capped_logit(logits[i], cap);
}

// ---- the operators ----

template <class R>
struct head {
  const ot_kernel_call *call;
  ot_cuda_head_layout layout;
  int64_t rows, C, V;
  const int32_t *targets;
  char *workspace;
  bool weighted;

  head(const ot_kernel_call *c, ot_op_kind kind)
      : call(c),
        rows(c->in[0].type.dim[0]),
        C(c->in[0].type.dim[1]),
        V(c->in[1].type.dim[0]),
        targets((const int32_t *)c->in[2].data),
        workspace((char *)c->workspace) {
    ot_op_types types = {};
    for (int i = 0; i < 2; i++) types.in[i] = c->in[i].type;
    weighted = kind == OT_OP_HEAD_LOSS && c->in[5].data;
    if (weighted) types.in[5] = c->in[5].type;
    layout = ot_cuda_head_layout_of(kind, c->attributes, &types);
    if (layout.w < 0) return;
    ot_copy_padded(ot_cuda_stream_of(c), c->in[1], layout.stride, workspace + layout.w);
  }

  double *nats() const { return (double *)(workspace + layout.nats); }

  // Losses of the plain targets, next to weighted ones.
  double *data_nats() const { return nats() + rows; }

  ot_cuda_matrix x(int64_t first) const {
    const ot_tensor &t = call->in[0];
    return {(char *)t.data + first * C * ot_dtype_bytes(t.type.dtype), t.type.dtype, C, false};
  }

  // Where layout.w is, columns of logits [n, stride] and rows of w are as many as the stride.
  int64_t columns() const { return layout.w >= 0 ? layout.stride : V; }

  ot_cuda_matrix w() const {
    const ot_tensor &t = call->in[1];
    return {layout.w >= 0 ? workspace + layout.w : t.data, t.type.dtype, C, false};
  }

  ot_cuda_matrix dlogits() const {
    return {workspace + layout.logits, layout.logits_dtype, layout.stride, false};
  }

  // Queues the product of n rows from `first` on into `to` [n, stride].
  void project(int64_t first, int64_t n, void *to, ot_dtype dtype, int64_t stride) const {
    ot_cuda_product p = {};
    p.rows = n;
    p.columns = columns();
    p.depth = C;
    p.a = x(first);
    p.b = w();
    p.b.transposed = true;
    p.y = {to, dtype, stride, false};
    p.compute = call->attributes->compute;
    ot_cuda_multiply(ot_cuda_context_of(call), &p);
  }

  chunk_logits<R> chunk(int64_t first, int64_t n) const {
    R *const logits = (R *)(workspace + layout.logits);
    project(first, n, logits, call->attributes->compute, layout.stride);
    return {logits, V, layout.stride, targets + first, call->attributes->soft_cap};
  }

  bf16_logits bf16_chunk(int64_t first, int64_t n) const {
    void *const logits = workspace + layout.logits;
    const int vectors = (int)(layout.stride / EIGHT), most = OT_LEAST_SHARED / EIGHT / 2;
    project(first, n, logits, OT_BF16, layout.stride);
    return {(eight_logits *)logits,          (int)V,          (int)layout.stride,
            vectors < most ? vectors : most, targets + first, (float)call->attributes->soft_cap};
  }

  void input_gradient(int64_t first, int64_t n) const {
    const ot_tensor &dx = call->out[0];
    ot_cuda_product p = {};
    p.rows = n;
    p.columns = C;
    p.depth = columns();
    p.a = dlogits();
    p.b = w();
    p.y = {(char *)dx.data + first * C * ot_dtype_bytes(dx.type.dtype), dx.type.dtype, C, false};
    p.compute = call->attributes->compute;
    ot_cuda_multiply(ot_cuda_context_of(call), &p);
  }

  void weight_gradient(int64_t first, int64_t n) const {
    const ot_tensor &dw = call->out[1];
    ot_cuda_product p = {};
    p.rows = V;
    p.columns = C;
    p.depth = n;
    p.a = dlogits();
    p.a.transposed = true;
    p.b = x(first);
    p.y = {dw.data, dw.type.dtype, C, false};
    if (first > 0 || call->attributes->accumulate) p.addend = p.y;
    p.compute = call->attributes->compute;
    ot_multiply_by_rows(ot_cuda_context_of(call), &p, layout.w >= 0);
  }

  // Adds all nats, and with `factor` their product with it, to `loss`.
  void finish(const double *factor, double *loss, double *count) const {
    OT_LAUNCH(ot_add_nats, 1, THREADS, 0, ot_cuda_stream_of(call), (const double *)nats(), targets,
              rows, factor, loss, count);
  }

  int64_t chunk_rows(int64_t first) const {
    return rows - first < layout.chunk ? rows - first : layout.chunk;
  }
};

// Replaces the logits of n rows from `first` on by their gradients.
template <class R>
void loss_rows(const head<R> &h, int64_t first, int64_t n) {
  const chunk_logits<R> c = h.chunk(first, n);
  const double *const inverse = (const double *)h.call->in[3].data;
  OT_LAUNCH(loss_kernel<R>, (unsigned)n, THREADS, 0, ot_cuda_stream_of(h.call), c, inverse,
            h.nats() + first);
}

// The same with weighted targets.
template <class R>
void weighted_rows(const head<R> &h, int64_t first, int64_t n) {
  const chunk_logits<R> c = h.chunk(first, n);
  const ot_tensor *const in = h.call->in;
  const double *const inverse = (const double *)in[3].data;
  const ot_weighted_targets pulls = ot_weighted_targets_of(in[4], in[5], first);
  const row_losses to = {h.nats() + first, h.data_nats() + first};
  OT_LAUNCH(weighted_kernel<R>, (unsigned)n, THREADS, 0, ot_cuda_stream_of(h.call), c, pulls,
            inverse, to);
}

// The same in bf16, with or without weighted targets.
template <bool CAPPED, class R>
void bf16_rows(const head<R> &h, int64_t first, int64_t n) {
  const bf16_logits c = h.bf16_chunk(first, n);
  const ot_tensor *const in = h.call->in;
  const double *const inverse = (const double *)in[3].data;
  const ot_weighted_targets pulls = ot_weighted_targets_of(in[4], in[5], first);
  const row_losses to = {h.nats() + first, h.weighted ? h.data_nats() + first : nullptr};
  const size_t bytes = (size_t)c.kept * sizeof(eight_logits);
  ot_allow_shared(bf16_loss_kernel<CAPPED>, bytes);
  OT_LAUNCH(bf16_loss_kernel<CAPPED>, (unsigned)n, THREADS, bytes, ot_cuda_stream_of(h.call), c,
            pulls, inverse, to);
}

template <class R>
void gradient_rows(const head<R> &h, int64_t first, int64_t n) {
  if (h.layout.logits_dtype == OT_BF16) {
    h.call->attributes->soft_cap > 0 ? bf16_rows<true>(h, first, n) : bf16_rows<false>(h, first, n);
  } else if (h.weighted) {
    weighted_rows(h, first, n);
  } else {
    loss_rows(h, first, n);
  }
}

template <class R>
void head_loss(const ot_kernel_call *call) {
  const head<R> h(call, OT_OP_HEAD_LOSS);
  for (int64_t first = 0; first < h.rows; first += h.layout.chunk) {
    const int64_t n = h.chunk_rows(first);
    gradient_rows(h, first, n);
    h.input_gradient(first, n);
    if (call->out[1].data) h.weight_gradient(first, n);
  }
  h.finish((const double *)call->in[3].data, (double *)call->out[2].data, nullptr);
  if (!h.weighted) return;
  OT_LAUNCH(ot_add_nats, 1, THREADS, 0, ot_cuda_stream_of(call), (const double *)h.data_nats(),
            h.targets, h.rows, (const double *)nullptr, (double *)call->out[3].data,
            (double *)nullptr);
}

template <class R>
void head_evaluate(const ot_kernel_call *call) {
  const head<R> h(call, OT_OP_HEAD_EVALUATE);
  for (int64_t first = 0; first < h.rows; first += h.layout.chunk) {
    const int64_t n = h.chunk_rows(first);
    const chunk_logits<R> c = h.chunk(first, n);
    double *const to = h.nats() + first;
    OT_LAUNCH(nats_kernel<R>, (unsigned)n, THREADS, 0, ot_cuda_stream_of(call), c, to);
  }
  h.finish(nullptr, (double *)call->out[0].data, (double *)call->out[1].data);
}

template <class R>
void head_score(const ot_kernel_call *call) {
  const head<R> h(call, OT_OP_HEAD_SCORE);
  for (int64_t first = 0; first < h.rows; first += h.layout.chunk) {
    const unsigned n = (unsigned)h.chunk_rows(first);
    double *const best = (double *)call->out[2].data, *const sum = (double *)call->out[3].data;
    const row_scores to = {(double *)call->out[0].data + first,
                           (int32_t *)call->out[1].data + first, best ? best + first : nullptr,
                           sum ? sum + first : nullptr, call->attributes->first_vocab};
    OT_LAUNCH(score_kernel<R>, n, THREADS, 0, ot_cuda_stream_of(call), h.chunk(first, n), to);
  }
}

template <class R>
void head_draw(const ot_kernel_call *call) {
  const head<R> h(call, OT_OP_HEAD_DRAW);
  const int K = (int)call->attributes->draw_ids;
  for (int64_t first = 0; first < h.rows; first += h.layout.chunk) {
    const int64_t n = h.chunk_rows(first);
    const chunk_logits<R> c = h.chunk(first, n);
    const drawn_rows to = {(const int64_t *)call->in[3].data + first,
                           ot_rng_key(0, OT_DRAW_PLACES),
                           ot_rng_key(0, OT_DRAW_LIMITS),
                           (int)call->attributes->draws,
                           K,
                           (int32_t *)call->out[0].data + first * K,
                           (float *)call->out[1].data + first * K,
                           (double *)call->out[2].data + first,
                           (double *)call->out[3].data + first};
    OT_LAUNCH(draw_kernel<R>, (unsigned)n, THREADS, 0, ot_cuda_stream_of(call), c, to);
  }
}

template <class R>
void head_logits(const ot_kernel_call *call) {
  const head<R> h(call, OT_OP_HEAD_LOGITS);
  R *const logits = (R *)call->out[0].data;
  const R cap = (R)call->attributes->soft_cap;
  h.project(0, h.rows, logits, call->attributes->compute, h.V);
  if (cap == 0) return;
  OT_LAUNCH(cap_kernel<R>, ot_blocks(h.rows * h.V, 256), 256, 0, ot_cuda_stream_of(call), logits,
            h.rows * h.V, cap);
}

}  // namespace

extern "C" const ot_kernel_entry ot_head_cuda_f32[] = {
    {OT_OP_HEAD_LOSS, head_loss<float>},   {OT_OP_HEAD_EVALUATE, head_evaluate<float>},
    {OT_OP_HEAD_SCORE, head_score<float>}, {OT_OP_HEAD_LOGITS, head_logits<float>},
    {OT_OP_HEAD_DRAW, head_draw<float>},   {}};

extern "C" const ot_kernel_entry ot_head_cuda_f64[] = {
    {OT_OP_HEAD_LOSS, head_loss<double>},   {OT_OP_HEAD_EVALUATE, head_evaluate<double>},
    {OT_OP_HEAD_SCORE, head_score<double>}, {OT_OP_HEAD_LOGITS, head_logits<double>},
    {OT_OP_HEAD_DRAW, head_draw<double>},   {}};
