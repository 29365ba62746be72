// SPDX-License-Identifier: Apache-2.0
// Load balancing of experts: counts, losses and their gradients. Slots are counted in registers, a
// block for some experts; losses are summed over the rows of a block, then over blocks.
#include "kernels/cuda/route_scores.cuh"

extern "C" {
#include "kernels/cuda/tables.h"
#include "workspace/cuda_workspace.h"
#include "ops/route.h"
#include "ops/route_balance.h"
}

namespace {

enum { THREADS = 256, COUNT_THREADS = 1024, EXPERTS_OF_BLOCK = 8 };

// ---- counts ----

// Slots [first, end) of each sequence: those of rows in it.
struct slot_range {
  int64_t first_row, of_sequence, rows;  // of_sequence: rows of a sequence
  int S;

  __device__ int64_t begin(int64_t sequence) const {
    const int64_t row = sequence * of_sequence - first_row;
    return (row < 0 ? 0 : row < rows ? row : rows) * S;
  }
};

// counts [sequences, E] += slots of each expert, or = them. A block for EXPERTS_OF_BLOCK experts
// and a sequence.
template <class R>
static __global__ void __launch_bounds__(COUNT_THREADS)
    count_kernel(const int32_t *experts, slot_range range, int E, ot_any<R> counts,
                 bool accumulate) {
  __shared__ int parts[COUNT_THREADS / 32];
  const int first = blockIdx.x * EXPERTS_OF_BLOCK;
  const int64_t end = range.begin(blockIdx.y + 1);
  int found[EXPERTS_OF_BLOCK] = {};
#pragma unroll 4
  for (int64_t i = range.begin(blockIdx.y) + threadIdx.x; i < end; i += COUNT_THREADS) {
    const int expert = ot_slot_expert(experts[i]) - first;
#pragma unroll
    for (int k = 0; k < EXPERTS_OF_BLOCK; k++) found[k] += expert == k;
  }
#pragma unroll
  for (int k = 0; k < EXPERTS_OF_BLOCK; k++) {
    const int all = ot_block_sum<COUNT_THREADS>(found[k], parts);
    if (threadIdx.x == 0 && first + k < E)
      counts.add((int64_t)blockIdx.y * E + first + k, (R)all, accumulate);
  }
}

template <class R>
static void count(const ot_kernel_call *call, const slot_range &range, int64_t sequences,
                  bool accumulate) {
  const int64_t E = call->attributes->num_experts;
  const dim3 grid(ot_blocks(E, EXPERTS_OF_BLOCK), (unsigned)sequences);
  OT_LAUNCH(count_kernel<R>, grid, COUNT_THREADS, 0, ot_cuda_stream_of(call),
            (const int32_t *)call->in[0].data, range, (int)E, ot_any_of<R>(&call->out[0]),
            accumulate);
}

template <class R>
static void route_count(const ot_kernel_call *call) {
  const ot_op_attributes *const a = call->attributes;
  const ot_tensor_type *const type = &call->in[0].type;
  count<R>(call, {a->first_row, a->sequence_length, type->dim[0], (int)type->dim[1]},
           call->out[0].type.dim[0], false);
}

template <class R>
static void route_load(const ot_kernel_call *call) {
  const ot_tensor_type *const type = &call->in[0].type;
  count<R>(call, {0, type->dim[0], type->dim[0], (int)type->dim[1]}, 1,
           call->attributes->accumulate);
}

// ---- losses ----

// Router logits of a rank's rows, and the counts of their sequences.
template <class R>
struct balance {
  const R *logits;  // [rows, E]
  const R *counts;  // [sequences, E]
  int64_t rows, first_row, of_sequence;
  int E;
  bool softmax;

  __device__ const R *counts_of(int64_t row) const {
    return counts + (first_row + row) / of_sequence * E;
  }
};

template <class R>
static balance<R> balance_of(const ot_kernel_call *call, const ot_tensor *counts) {
  const ot_op_attributes *const a = call->attributes;
  return {
      (const R *)call->in[0].data, (const R *)counts->data, call->in[0].type.dim[0],   a->first_row,
      a->sequence_length,          (int)a->num_experts,     a->score == OT_MOE_SOFTMAX};
}

// E / (k T^2): the factor from sums of counts times probabilities to the loss of a sequence.
static double aux_factor(const ot_op_attributes *a) {
  const double T = (double)ot_route_tokens(a);
  if (a->routing == OT_MOE_EXPERT_CHOICE) return 0;
  return (double)a->num_experts / ((double)a->experts_per_token * T * T);
}

// Sums over the experts of a row.
template <class R>
struct row_sums {
  R scores;
  double counted;  // counts times scores
};

template <class R>
static __device__ __forceinline__ row_sums<R> row_sums_of(const ot_row_scores<R> &scores,
                                                          const R *counts, int E) {
  row_sums<R> sums = {0, 0};
  for (int e = threadIdx.x % 32; e < E; e += 32) {
    const R score = scores[e];
    sums.scores += score;
    sums.counted += (double)(counts[e] * score);
  }
  return {ot_warp_sum(sums.scores), ot_warp_sum(sums.counted)};
}

// sums [parts, 3]: counts times probabilities, squared log-sum-exps, dropped slots of the `each`
// rows of a block. chosen: experts chose, and a token is dropped if none did.
template <class R>
static __global__ void __launch_bounds__(THREADS, OT_LEAST_BLOCKS)
    loss_kernel(balance<R> b, const int32_t *experts, int S, bool chosen, int64_t each,
                double *sums) {
  __shared__ double parts[THREADS / 32];
  const int lane = threadIdx.x % 32;
  const int64_t first = blockIdx.x * each, end = first + each < b.rows ? first + each : b.rows;
  double mine[3] = {};
  for (int64_t row = first + threadIdx.x / 32; row < end; row += THREADS / 32) {
    const ot_row_scores<R> scores = ot_row_scores_of(b.logits + row * b.E, b.E, b.softmax);
    const row_sums<R> of_row = row_sums_of(scores, b.counts_of(row), b.E);
    const double log_sum = (double)scores.log_sum;
    int kept = 0;
    for (int j = lane; j < S; j += 32) kept += experts[row * S + j] >= 0;
    kept = ot_warp_sum(kept);
    mine[0] += of_row.counted / (double)of_row.scores;
    mine[1] += log_sum * log_sum;
    mine[2] += chosen ? kept == 0 : S - kept;
  }
#pragma unroll
  for (int k = 0; k < 3; k++) {
    const double sum = ot_block_sum<THREADS>(lane == 0 ? mine[k] : 0, parts);
    if (threadIdx.x == 0) sums[3 * blockIdx.x + k] = sum;
  }
}

struct loss_totals {
  const double *sums;     // [parts, 3]
  const double *inverse;  // of the sequences of the step
  const int32_t *rounds;  // or null
  double *statistics;
  int parts;
  int64_t sequences;
  double aux, tokens;      // aux_factor; tokens of a sequence
  double rows, droppable;  // slots that could have been dropped
};

// The sum of counts over sequences.
template <class R>
static __device__ __forceinline__ double load_of(const balance<R> &b, int64_t sequences, int e) {
  double load = 0;
  for (int64_t s = 0; s < sequences; s++) load += (double)b.counts[s * b.E + e];
  return load;
}

// One block.
template <class R>
static __global__ void __launch_bounds__(THREADS) total_kernel(balance<R> b, loss_totals t) {
  __shared__ double parts[THREADS / 32];
  double sums[3], all = 0, largest = 0, entropy = 0;
#pragma unroll
  for (int k = 0; k < 3; k++) {
    double sum = 0;
    for (int p = threadIdx.x; p < t.parts; p += THREADS) sum += t.sums[3 * p + k];
    sums[k] = ot_block_sum<THREADS>(sum, parts);
  }
  for (int e = threadIdx.x; e < b.E; e += THREADS) {
    const double load = load_of(b, t.sequences, e);
    all += load;
    largest = load > largest ? load : largest;
  }
  all = ot_block_sum<THREADS>(all, parts);
  largest = ot_block_max<THREADS>(largest, parts);
  for (int e = threadIdx.x; e < b.E; e += THREADS) {
    const double share = load_of(b, t.sequences, e) / all;
    if (share > 0) entropy -= share * log(share);
  }
  entropy = ot_block_sum<THREADS>(entropy, parts);
  if (threadIdx.x > 0) return;
  const double inverse = *t.inverse, weight = inverse * t.rows / t.tokens;
  t.statistics[OT_EXPERT_AUX_LOSS] += inverse * t.aux * sums[0];
  t.statistics[OT_EXPERT_Z_LOSS] += inverse / t.tokens * sums[1];
  t.statistics[OT_EXPERT_LOAD_MAX] += weight * (largest * (double)b.E / all);
  t.statistics[OT_EXPERT_LOAD_ENTROPY] += weight * (b.E > 1 ? entropy / log((double)b.E) : 1);
  t.statistics[OT_EXPERT_DROP_SHARE] += weight * (sums[2] / t.droppable);
  t.statistics[OT_EXPERT_PASSES] += weight * (t.rounds ? *t.rounds : 1);
}

template <class R>
static void route_loss(const ot_kernel_call *call) {
  const ot_op_attributes *const a = call->attributes;
  const ot_tensor *const in = call->in;
  const balance<R> b = balance_of<R>(call, &in[2]);
  const bool chosen = a->routing == OT_MOE_EXPERT_CHOICE;
  const int64_t S = in[1].type.dim[1], parts = ot_parts_of_rows(b.rows, OT_CUDA_PARTS);
  double *const sums = (double *)call->workspace;
  const loss_totals totals = {sums,
                              (const double *)in[3].data,
                              (const int32_t *)in[4].data,
                              (double *)call->out[0].data,
                              (int)parts,
                              in[2].type.dim[0],
                              aux_factor(a),
                              (double)ot_route_tokens(a),
                              (double)b.rows,
                              (double)(chosen ? b.rows : b.rows * S)};
  void *const stream = ot_cuda_stream_of(call);
  OT_LAUNCH(loss_kernel<R>, (unsigned)parts, THREADS, 0, stream, b, (const int32_t *)in[1].data,
            (int)S, chosen, ot_rows_of_part(b.rows, OT_CUDA_PARTS), sums);
  OT_LAUNCH(total_kernel<R>, 1, THREADS, 0, stream, b, totals);
}

// ---- gradient ----

// dlogits [rows, E] = partial + the gradients of the losses; partial may be absent. A warp for each
// row. aux, z: of the losses, without the share of a sequence. For p = s / sum s the gradient is
// (c_i - sum_j c_j p_j) / sum s; those of a softmax sum to zero.
template <class R>
static __global__ void __launch_bounds__(THREADS)
    loss_grad_kernel(balance<R> b, const double *inverse, double aux, double z, const R *partial,
                     R *dlogits) {
  const int64_t row = (int64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
  if (row >= b.rows) return;
  const R *const counts = b.counts_of(row);
  const ot_row_scores<R> scores = ot_row_scores_of(b.logits + row * b.E, b.E, b.softmax);
  const row_sums<R> sums = row_sums_of(scores, counts, b.E);
  const R mean = (R)sums.counted / sums.scores;
  const R of_scores = (R)(*inverse * aux) / sums.scores;
  const R of_softmax = (R)(*inverse * z) * scores.log_sum;
  for (int e = threadIdx.x % 32; e < b.E; e += 32) {
    const R score = scores[e], slope = b.softmax ? score : score * (1 - score);
    const R before = partial ? partial[row * b.E + e] : 0;
    dlogits[row * b.E + e] =
        before + of_softmax * scores.softmax(e) + of_scores * (counts[e] - mean) * slope;
  }
}

template <class R>
static void route_loss_grad(const ot_kernel_call *call) {
  const ot_op_attributes *const a = call->attributes;
  const ot_tensor *const in = call->in;
  const balance<R> b = balance_of<R>(call, &in[1]);
  if (b.rows == 0) return;
  OT_LAUNCH(loss_grad_kernel<R>, ot_blocks(b.rows, THREADS / 32), THREADS, 0,
            ot_cuda_stream_of(call), b, (const double *)in[2].data,
            a->aux_coefficient * aux_factor(a), 2 * a->z_coefficient / (double)ot_route_tokens(a),
            (const R *)in[3].data, (R *)call->out[0].data);
}

// ---- update ----

template <class R>
struct bias_operands {
  ot_any<R> load, bias, master;  // [n]; master may be absent
  const double *scalars;
  double *stats;  // [2] or null
  int64_t n;
  double tokens, k, E;  // tokens of a sequence, their slots, experts
  R rate;
};

// One block.
template <class R>
static __global__ void __launch_bounds__(THREADS) bias_kernel(bias_operands<R> o) {
  __shared__ double parts[THREADS / 32];
  const double factor = o.scalars[OT_SCALAR_CLIP_FACTOR];
  const double tokens = o.tokens / o.scalars[OT_SCALAR_INVERSE_SEQUENCES];
  const R mean = (R)(tokens * o.k / o.E);
  const ot_any<R> kept = o.master.data ? o.master : o.bias;
  const int64_t n = factor - factor == 0 ? o.n : 0;
  double update = 0, weight = 0;
  for (int64_t i = threadIdx.x; i < n; i += THREADS) {
    const R load = o.load[i], step = o.rate * (R)((mean > load) - (mean < load));
    const R bias = kept[i] + step;
    update += (double)step * (double)step;
    weight += (double)bias * (double)bias;
    kept.set(i, bias);
    o.bias.set(i, bias);
  }
  update = ot_block_sum<THREADS>(update, parts);
  weight = ot_block_sum<THREADS>(weight, parts);
  if (threadIdx.x > 0 || !o.stats) return;
  o.stats[0] = update;
  o.stats[1] = weight;
}

template <class R>
static void route_bias(const ot_kernel_call *call) {
  const ot_op_attributes *const a = call->attributes;
  const bias_operands<R> o = {ot_any_of<R>(&call->in[0]),  ot_any_of<R>(&call->out[0]),
                              ot_any_of<R>(&call->out[1]), (const double *)call->in[1].data,
                              (double *)call->out[2].data, call->in[0].type.dim[0],
                              (double)ot_route_tokens(a),  (double)a->experts_per_token,
                              (double)a->num_experts,      (R)a->bias_rate};
  OT_LAUNCH(bias_kernel<R>, 1, THREADS, 0, ot_cuda_stream_of(call), o);
}

}  // namespace

extern "C" const ot_kernel_entry ot_route_balance_cuda_f32[] = {
    {OT_OP_ROUTE_COUNT, route_count<float>},         {OT_OP_ROUTE_LOSS, route_loss<float>},
    {OT_OP_ROUTE_LOSS_GRAD, route_loss_grad<float>}, {OT_OP_ROUTE_LOAD, route_load<float>},
    {OT_OP_ROUTE_BIAS, route_bias<float>},           {}};

extern "C" const ot_kernel_entry ot_route_balance_cuda_f64[] = {
    {OT_OP_ROUTE_COUNT, route_count<double>},         {OT_OP_ROUTE_LOSS, route_loss<double>},
    {OT_OP_ROUTE_LOSS_GRAD, route_loss_grad<double>}, {OT_OP_ROUTE_LOAD, route_load<double>},
    {OT_OP_ROUTE_BIAS, route_bias<double>},           {}};
