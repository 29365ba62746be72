// SPDX-License-Identifier: Apache-2.0
// The rows of a pass of an all-to-all-v, from the counts of all ranks: one block, whose warps sum
// over ranks. Counts are first rows of experts, so rows of consecutive experts are differences.
#include "kernels/cuda/kernel.cuh"

extern "C" {
#include "kernels/cuda/tables.h"
#include "ops/expert_exchange.h"
#include "ops/route.h"
}

namespace {

enum { THREADS = 1024, WARPS = THREADS / 32 };

struct plan {
  const int32_t *counts;  // [n, E + 1]
  const int32_t *round;   // [1], or null: the first
  int32_t *home;          // [n, 2]
  int32_t *here;          // [n, H, 2]
  int32_t *offsets;       // [H + 1]
  int32_t *rounds;        // [1] or null
  int64_t size;           // rows of a pass
  int64_t copy_rows;
  int n, E, H, copies, index;  // index: this rank

  __device__ int64_t first_of(int source, int expert) const {
    return counts[(int64_t)source * (E + 1) + expert];
  }
  // First of the experts of a rank.
  __device__ int experts_of(int rank) const { return rank / copies * H; }
};

struct run {
  int64_t first, rows;
};

// The part of rows [at, at + rows) of a list that is in the pass from `begin` on.
static __device__ run in_round(const plan &p, int64_t begin, int64_t at, int64_t rows) {
  const int64_t first = at > begin ? at : begin;
  const int64_t end = at + rows < begin + p.size ? at + rows : begin + p.size;
  return {first, end > first ? end - first : 0};
}

static __device__ void write_run(int32_t *to, run r) {
  to[0] = r.rows > 0 ? (int32_t)r.first : 0;
  to[1] = (int32_t)r.rows;
}

// Rows of experts [first, expert) of all ranks, and of `expert` of those before `source`: the place
// of the rows of `source` in the list of the rank of these experts. A warp calls it.
static __device__ int64_t place_in_list(const plan &p, int first, int expert, int source) {
  int64_t sum = 0;
  for (int s = threadIdx.x % 32; s < p.n; s += 32) {
    sum += p.first_of(s, s < source ? expert + 1 : expert) - p.first_of(s, first);
  }
  return (int64_t)ot_warp_sum((long long)sum);
}

// This rank's rows in the pass of `rank`: consecutive in both lists.
static __device__ void plan_home(const plan &p, int64_t begin, int rank) {
  const int first = p.experts_of(rank);
  run found = {0, 0};
  for (int e = first; e < first + p.H; e++) {
    const int64_t at = place_in_list(p, first, e, p.index), own = p.first_of(p.index, e);
    const run part = in_round(p, begin, at, p.first_of(p.index, e + 1) - own);
    if (part.rows > 0 && found.rows == 0) found.first = own + part.first - at;
    found.rows += part.rows;
  }
  found.first += rank % p.copies * p.copy_rows;
  if (threadIdx.x % 32 == 0) write_run(p.home + 2 * rank, found);
}

// The rows of one of this rank's experts, by source; h == H: the end of all.
static __device__ void plan_here(const plan &p, int64_t begin, int h) {
  const int first = p.experts_of(p.index), expert = first + h, lane = threadIdx.x % 32;
  int64_t at = place_in_list(p, first, expert, 0);
  const int64_t clamped = at < begin ? begin : at > begin + p.size ? begin + p.size : at;
  if (lane == 0) p.offsets[h] = (int32_t)(clamped - begin);
  for (int s = 0; s < p.n && h < p.H; s++) {
    const int64_t rows = p.first_of(s, expert + 1) - p.first_of(s, expert);
    run part = in_round(p, begin, at, rows);
    part.first -= begin;
    if (lane == 0) write_run(p.here + 2 * ((int64_t)s * p.H + h), part);
    at += rows;
  }
}

// Passes of the longest list of all ranks. A warp calls it.
static __device__ void count_rounds(const plan &p) {
  int64_t most = 1;
  for (int rank = 0; rank < p.n; rank += p.copies) {
    const int first = p.experts_of(rank);
    const int64_t rounds = (place_in_list(p, first, first + p.H, 0) + p.size - 1) / p.size;
    if (rounds > most) most = rounds;
  }
  if (threadIdx.x % 32 == 0) p.rounds[0] = (int32_t)most;
}

static __global__ void __launch_bounds__(THREADS) plan_kernel(plan p) {
  const int warp = threadIdx.x / 32;
  const int64_t begin = p.round ? p.round[0] * p.size : 0;
  for (int rank = warp; rank < p.n; rank += WARPS) plan_home(p, begin, rank);
  for (int h = warp; h <= p.H; h += WARPS) plan_here(p, begin, h);
  if (warp == 0 && p.rounds) count_rounds(p);
}

static void all_to_all_v_plan(const ot_kernel_call *call) {
  const ot_op_attributes *const a = call->attributes;
  const plan p = {(const int32_t *)call->in[0].data,
                  (const int32_t *)call->in[1].data,
                  (int32_t *)call->out[0].data,
                  (int32_t *)call->out[1].data,
                  (int32_t *)call->out[2].data,
                  (int32_t *)call->out[3].data,
                  a->exchange_rows,
                  a->copy_rows,
                  (int)a->group_size,
                  (int)a->num_experts,
                  (int)a->held_experts,
                  (int)ot_route_copies(a),
                  (int)a->group_index};
  OT_LAUNCH(plan_kernel, 1, THREADS, 0, ot_cuda_stream_of(call), p);
}

}  // namespace

extern "C" const ot_kernel_entry ot_exchange_cuda_f32[] = {
    {OT_OP_ALL_TO_ALL_V_PLAN, all_to_all_v_plan},
    {OT_OP_COUNT, nullptr},
};

extern "C" const ot_kernel_entry ot_exchange_cuda_f64[] = {
    {OT_OP_ALL_TO_ALL_V_PLAN, all_to_all_v_plan},
    {OT_OP_COUNT, nullptr},
};
