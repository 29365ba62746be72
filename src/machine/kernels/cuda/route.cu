// SPDX-License-Identifier: Apache-2.0
// Routing: a warp chooses the experts of a token; a block keeps the best slots of an expert in a
// sequence. Rows are sorted by expert in a counting sort: warps count the slots of their part, the
// counts are summed over parts and experts, and the warps place their slots in order. Ties go to
// the lower index, so results do not depend on the order of threads.
#include "kernels/cuda/route_scores.cuh"

extern "C" {
#include "kernels/cuda/tables.h"
#include "workspace/cuda_workspace.h"
#include "ops/route.h"
}

namespace {

enum { THREADS = 256, KEEP_THREADS = 1024, DIGITS = 256, SHARED_BYTES = 48 << 10 };

static bool is_softmax(const ot_op_attributes *a) { return a->score == OT_MOE_SOFTMAX; }

// Warps of a block that need `bytes` of shared memory each.
static int warps_for(int64_t bytes) {
  const int64_t most = SHARED_BYTES / bytes;
  return most < THREADS / 32 ? (int)most : THREADS / 32;
}

// ---- tokens choose ----

// The place, in sequence order, of a row of the blocks of all ranks of cp.
struct row_order {
  int64_t t, T, piece;  // tokens of a sequence on a rank and on all, of a rank
  int ranks;
  bool zigzag;

  __device__ int64_t operator()(int64_t row) const {
    const int64_t rank = row / piece, sequence = (row - rank * piece) / t;
    const int64_t i = row - rank * piece - sequence * t, half = t / 2;
    int64_t position = rank * t + i;
    if (zigzag) position = i < half ? rank * half + i : (2 * ranks - 1 - rank) * half + i - half;
    return sequence * T + position;
  }
};

template <class R>
struct routing {
  const R *logits;   // [rows, E]
  ot_any<R> bias;    // [E] or absent
  R *gates;          // [rows, S], in sequence order
  int32_t *experts;  // [rows, S]
  int64_t rows;
  int E, S, groups, groups_per_token;
  bool softmax, renormalise;
  bool all;  // every expert is a candidate
  R scale;
  row_order order;
};

// Index of the largest of `values` [n], the lowest among equals. All lanes call it.
template <class R>
static __device__ __forceinline__ int best_of(const R *values, int n) {
  R best = -(R)INFINITY;
  int at = 0;
  for (int i = threadIdx.x % 32; i < n; i += 32) {
    if (!(values[i] > best)) continue;
    best = values[i];
    at = i;
  }
#pragma unroll
  for (int by = 16; by > 0; by /= 2) {
    const R other = __shfl_xor_sync(0xffffffffu, best, by);
    const int place = __shfl_xor_sync(0xffffffffu, at, by);
    if (other < best || (other == best && place > at)) continue;
    best = other;
    at = place;
  }
  return at;
}

// Takes values[i] out of the choice.
template <class R>
static __device__ __forceinline__ void select_value(R *values, int i) {
  if (threadIdx.x % 32 == 0) values[i] = -(R)INFINITY;
  __syncwarp();
}

// Takes out the experts of all groups but the best. sums [groups], shared
template <class R>
static __device__ __forceinline__ void drop_other_groups(const routing<R> &m, R *choices, R *sums) {
  const int lane = threadIdx.x % 32, size = m.E / m.groups;
  for (int g = lane; g < m.groups; g += 32) {
    R first = -(R)INFINITY, second = first;
    for (int i = 0; i < size; i++) {
      const R value = choices[g * size + i];
      second = value > first ? first : value > second ? value : second;
      first = value > first ? value : first;
    }
    sums[g] = first + second;
  }
  __syncwarp();
  for (int i = 0; i < m.groups_per_token; i++) select_value(sums, best_of(sums, m.groups));
  for (int e = lane; e < m.E; e += 32) {
    if (sums[e / size] > -(R)INFINITY) choices[e] = -(R)INFINITY;
  }
  __syncwarp();
}

template <class R>
static __global__ void __launch_bounds__(THREADS, OT_LEAST_BLOCKS)
    choose_kernel(routing<R> m) {
  OT_DYNAMIC_SHARED(R, shared);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t row = (int64_t)blockIdx.x * (blockDim.x / 32) + warp;
  if (row >= m.rows) return;
  const ot_row_scores<R> scores = ot_row_scores_of(m.logits + row * m.E, m.E, m.softmax);
  R *const gates = m.gates + m.order(row) * m.S;
  int32_t *const experts = m.experts + m.order(row) * m.S;
  if (m.all) {
    for (int e = lane; e < m.E; e += 32) {
      gates[e] = scores[e] * m.scale;
      experts[e] = e;
    }
    return;
  }
  R *const choices = shared + warp * (m.E + m.groups);
  const R lowest = sizeof(R) == 4 ? (R)-3.4e38 : (R)-1.7e308;  // above what is taken, also for NaN
  for (int e = lane; e < m.E; e += 32) {
    const R choice = scores[e] + (m.bias.data ? m.bias[e] : 0);
    choices[e] = choice > lowest ? choice : lowest;
  }
  __syncwarp();
  if (m.groups > 1) drop_other_groups(m, choices, choices + m.E);
  R sum = 0;
  for (int j = 0; j < m.S; j++) {
    const int e = best_of(choices, m.E);
    select_value(choices, e);
    const R score = scores[e];
    sum += score;
    if (lane > 0) continue;
    gates[j] = score;
    experts[j] = e;
  }
  __syncwarp();
  const R factor = m.scale / (m.renormalise ? sum : 1);
  for (int j = lane; j < m.S; j += 32) gates[j] *= factor;
}

// ---- experts choose ----

// Unsigned integers in the order of the numbers.
static __device__ __forceinline__ uint32_t key_of(float x) {
  const uint32_t bits = __float_as_uint(x);
  return bits >> 31 ? ~bits : bits | 1u << 31;
}
static __device__ __forceinline__ uint64_t key_of(double x) {
  const uint64_t bits = (uint64_t)__double_as_longlong(x);
  return bits >> 63 ? ~bits : bits | 1ull << 63;
}

// The slots of a sequence that may name an expert, in order.
template <class R>
struct candidates {
  R *gates;
  int32_t *experts;
  int64_t stride;  // elements between them
  int n, expert;

  __device__ bool named(int i) const { return experts[i * stride] == expert; }
};

// The tokens that an expert keeps: those with larger keys, and the first `left` with an equal one.
template <class Key>
struct threshold {
  Key key;
  int left;
};

// The threshold for `capacity` slots, digit by digit. counts [DIGITS + 2] in shared memory; all
// threads of the block call it.
template <class Key, class R>
static __device__ threshold<Key> threshold_of(const candidates<R> &c, int capacity, int *counts) {
  int *const digit = counts + DIGITS;  // and how many are left for it
  threshold<Key> found = {0, capacity};
  Key mask = 0;
  for (int shift = 8 * (int)sizeof(Key) - 8; shift >= 0; shift -= 8) {
    for (int d = threadIdx.x; d < DIGITS; d += blockDim.x) counts[d] = 0;
    if (threadIdx.x == 0) digit[0] = -1;
    __syncthreads();
    for (int i = threadIdx.x; i < c.n; i += blockDim.x) {
      if (!c.named(i)) continue;
      const Key key = key_of(c.gates[i * c.stride]);
      if ((key & mask) == found.key) atomicAdd(&counts[(int)(key >> shift & 255)], 1);
    }
    __syncthreads();
    for (int d = threadIdx.x; d < DIGITS; d += blockDim.x) {
      int above = 0;
      for (int o = d + 1; o < DIGITS; o++) above += counts[o];
      if (above >= found.left || above + counts[d] < found.left) continue;
      digit[0] = d;
      digit[1] = found.left - above;
    }
    __syncthreads();
    if (digit[0] < 0) return found;  // fewer than the capacity
    found.key |= (Key)digit[0] << shift;
    found.left = digit[1];
    mask |= (Key)255 << shift;
    __syncthreads();
  }
  return found;
}

// The number of threads before this one, of this and of earlier calls, with `given`; adds those of
// the block to *before. counts [32] in shared memory, another one for the next call; all threads of
// the block call it.
static __device__ __forceinline__ int rank_in_block(bool given, int *counts, int *before) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const unsigned votes = __ballot_sync(0xffffffffu, given);
  if (lane == 0) counts[warp] = __popc(votes);
  __syncthreads();
  int rank = *before + __popc(votes & ((1u << lane) - 1));
  for (int w = 0; w < (int)blockDim.x / 32; w++) {
    rank += w < warp ? counts[w] : 0;
    *before += counts[w];
  }
  return rank;
}

// A block for each expert and sequence. BY_SCORE: keeps the largest gates, else the first.
template <class R, bool BY_SCORE>
static __global__ void __launch_bounds__(KEEP_THREADS)
    keep_kernel(candidates<R> c, int64_t slots, bool all, int capacity) {
  using Key = decltype(key_of((R)0));
  __shared__ int counts[DIGITS + 2], votes[2][KEEP_THREADS / 32];
  c.expert = blockIdx.x;
  c.gates += blockIdx.y * slots + (all ? c.expert : 0);
  c.experts += blockIdx.y * slots + (all ? c.expert : 0);
  threshold<Key> least = {0, capacity};
  if (BY_SCORE) least = threshold_of<Key>(c, capacity, counts);
  int before = 0, turn = 0;
  for (int first = 0; first < c.n; first += blockDim.x, turn ^= 1) {
    const int i = first + threadIdx.x;
    const bool named = i < c.n && c.named(i);
    Key key = 0;
    if (BY_SCORE && named) key = key_of(c.gates[i * c.stride]);
    const bool equal = named && key == least.key;
    const int rank = rank_in_block(equal, votes[turn], &before);
    if (!named || key > least.key || (equal && rank < least.left)) continue;
    c.experts[i * c.stride] = -1 - c.expert;
    c.gates[i * c.stride] = 0;
  }
}

template <class R>
static void keep(const ot_kernel_call *call, const routing<R> &m) {
  const ot_op_attributes *const a = call->attributes;
  const int64_t T = ot_route_tokens(a), slots = T * m.S;
  const candidates<R> c = {m.gates, m.experts, m.all ? m.E : 1, (int)(m.all ? T : slots), 0};
  const int64_t threads = (c.n + 31) / 32 * 32;
  const dim3 grid((unsigned)m.E, (unsigned)(m.rows / T));
  const unsigned block = threads < KEEP_THREADS ? (unsigned)threads : (unsigned)KEEP_THREADS;
  void *const stream = ot_cuda_stream_of(call);
  if (a->routing == OT_MOE_DROP_BY_POSITION) {
    OT_LAUNCH((keep_kernel<R, false>), grid, block, 0, stream, c, slots, m.all, (int)a->capacity);
  } else {
    OT_LAUNCH((keep_kernel<R, true>), grid, block, 0, stream, c, slots, m.all, (int)a->capacity);
  }
}

// ---- tokens of all ranks ----

// Slot i of this rank's rows, which are `first` and following ones in the order of the ranks.
template <class R>
static __global__ void __launch_bounds__(THREADS)
    take_own_kernel(routing<R> m, int64_t first, int64_t n, R *gates, int32_t *experts) {
  const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (i >= n) return;
  const int64_t from = m.order(first + i / m.S) * m.S + i % m.S;
  gates[i] = m.gates[from];
  experts[i] = m.experts[from];
}

template <class R>
static routing<R> routing_of(const ot_kernel_call *call) {
  const ot_op_attributes *const a = call->attributes;
  const bool whole = call->in[2].data != NULL;
  const ot_tensor *const logits = &call->in[whole ? 2 : 0];
  const int64_t rows = logits->type.dim[0], t = a->sequence_length, T = ot_route_tokens(a);
  const bool groups = a->num_groups > 1;
  routing<R> m = {(const R *)logits->data,
                  ot_any_of<R>(&call->in[1]),
                  (R *)call->out[0].data,
                  (int32_t *)call->out[1].data,
                  rows,
                  (int)a->num_experts,
                  (int)ot_route_slots(a),
                  groups ? (int)a->num_groups : 0,
                  (int)a->groups_per_token,
                  is_softmax(a),
                  a->renormalise,
                  a->routing == OT_MOE_EXPERT_CHOICE,
                  (R)a->scale,
                  {rows, rows, rows, 1, false}};
  if (!whole) return m;
  const int ranks = (int)(T / t);
  m.gates = (R *)call->workspace;
  m.experts = (int32_t *)(m.gates + rows * m.S);
  m.order = {t, T, rows / ranks, ranks, ranks > 1 && a->context == OT_CONTEXT_RING};
  return m;
}

template <class R>
static void route(const ot_kernel_call *call) {
  const ot_op_attributes *const a = call->attributes;
  const routing<R> m = routing_of<R>(call);
  const int64_t bytes = m.all ? 1 : (m.E + m.groups) * (int64_t)sizeof(R);
  const int64_t own = ot_type_elements(&call->out[1].type);
  const int warps = warps_for(bytes);
  void *const stream = ot_cuda_stream_of(call);
  if (m.rows == 0) return;
  OT_LAUNCH(choose_kernel<R>, ot_blocks(m.rows, warps), 32 * warps, warps * bytes, stream, m);
  if (a->routing != OT_MOE_DROPLESS) keep(call, m);
  if (!call->in[2].data || own == 0) return;
  OT_LAUNCH(take_own_kernel<R>, ot_blocks(own, THREADS), THREADS, 0, stream, m,
            a->context_index * m.order.piece + a->first_row, own, (R *)call->out[0].data,
            (int32_t *)call->out[1].data);
}

// ---- gradient ----

template <class R>
struct route_grad_operands {
  const R *dgates;         // [rows, S]
  const R *logits;         // [rows, E]
  const R *partial;        // [rows, E] or absent
  const int32_t *experts;  // [rows, S]
  R *dlogits;              // [rows, E]
  int64_t rows;
  int E, S;
  bool softmax;
  bool shares;  // gates are shares of `scale`
  R scale;
};

// A warp for each row. First the gradients of all experts as if no slot named them, then those of
// the slots.
template <class R>
static __global__ void __launch_bounds__(THREADS, OT_LEAST_BLOCKS)
    route_grad_kernel(route_grad_operands<R> o) {
  const int lane = threadIdx.x % 32;
  const int64_t row = (int64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
  if (row >= o.rows) return;
  const R *const dgates = o.dgates + row * o.S;
  const int32_t *const experts = o.experts + row * o.S;
  const R *const partial = o.partial ? o.partial + row * o.E : o.partial;
  R *const dlogits = o.dlogits + row * o.E;
  const ot_row_scores<R> scores = ot_row_scores_of(o.logits + row * o.E, o.E, o.softmax);
  R sum = 0, mean = 0, along = 0;
  for (int j = lane; j < o.S && o.shares; j += 32) {
    const R score = scores[ot_slot_expert(experts[j])];
    sum += score;
    mean += experts[j] >= 0 ? dgates[j] * score : 0;
  }
  sum = o.shares ? ot_warp_sum(sum) : 1;
  mean = ot_warp_sum(mean) / sum;
  const R factor = o.scale / sum;
  for (int j = lane; j < o.S && o.softmax; j += 32) {
    const R dgate = experts[j] >= 0 ? dgates[j] : 0;
    along += factor * (dgate - mean) * scores[ot_slot_expert(experts[j])];
  }
  along = ot_warp_sum(along);
  for (int e = lane; e < o.E; e += 32) {
    dlogits[e] = (partial ? partial[e] : 0) - (o.softmax ? scores[e] * along : 0);
  }
  __syncwarp();
  for (int j = lane; j < o.S; j += 32) {
    const int e = ot_slot_expert(experts[j]);
    const R dscore = factor * ((experts[j] >= 0 ? dgates[j] : 0) - mean), score = scores[e];
    const R slope = o.softmax ? score * (dscore - along) : dscore * score * (1 - score);
    dlogits[e] = (partial ? partial[e] : 0) + slope;
  }
}

template <class R>
static void route_grad(const ot_kernel_call *call) {
  const ot_op_attributes *const a = call->attributes;
  const ot_tensor *const in = call->in;
  const route_grad_operands<R> o = {(const R *)in[0].data,
                                    (const R *)in[1].data,
                                    (const R *)in[3].data,
                                    (const int32_t *)in[2].data,
                                    (R *)call->out[0].data,
                                    in[0].type.dim[0],
                                    (int)a->num_experts,
                                    (int)ot_route_slots(a),
                                    is_softmax(a),
                                    a->renormalise && a->routing != OT_MOE_EXPERT_CHOICE,
                                    (R)a->scale};
  if (o.rows == 0) return;
  OT_LAUNCH(route_grad_kernel<R>, ot_blocks(o.rows, THREADS / 32), THREADS, 0,
            ot_cuda_stream_of(call), o);
}

// ---- order ----

struct slot_sort {
  const int32_t *experts;  // [slots]
  int32_t *counts;         // [E, parts]: slots of a part, then those of earlier parts
  int32_t *totals;         // [E]
  int32_t *place;          // [slots, copies]
  int32_t *offsets;        // [E + 1]
  int64_t slots, plane;
  int each, parts;  // slots of a part; parts
  int E, bits, copies;
};

// The lanes whose slots name the same expert, 0 for those without one. E is at most 2^bits.
static __device__ __forceinline__ unsigned peers_of(int32_t expert, int bits) {
  unsigned peers = __ballot_sync(0xffffffffu, expert >= 0);
  for (int b = 0; b < bits; b++) {
    const unsigned votes = __ballot_sync(0xffffffffu, expert >> b & 1);
    peers &= expert >> b & 1 ? votes : ~votes;
  }
  return expert >= 0 ? peers : 0;
}

// A warp for each part: counts its slots, or places them. next [E] of each warp in shared memory:
// the number of slots so far, or the row of the next one.
template <bool PLACE>
static __global__ void __launch_bounds__(THREADS) sort_kernel(slot_sort s) {
  OT_DYNAMIC_SHARED(int32_t, shared);
  const int lane = threadIdx.x % 32;
  const int part = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  if (part >= s.parts) return;
  int32_t *const next = shared + threadIdx.x / 32 * s.E;
  for (int e = lane; e < s.E; e += 32) {
    next[e] = PLACE ? s.offsets[e] + s.counts[(int64_t)e * s.parts + part] : 0;
  }
  __syncwarp();
  const int64_t begin = (int64_t)part * s.each;
  const int64_t end = begin + s.each < s.slots ? begin + s.each : s.slots;
  for (int64_t first = begin; first < end; first += 32) {
    const int64_t i = first + lane;
    const int32_t expert = i < end ? s.experts[i] : -1;
    const unsigned peers = peers_of(expert, s.bits), before = peers & ((1u << lane) - 1);
    const int32_t row = expert >= 0 ? next[expert] + __popc(before) : -1;
    for (int q = 0; PLACE && i < end && q < s.copies; q++) {
      s.place[i * s.copies + q] = row < 0 ? -1 : (int32_t)(row + q * s.plane);
    }
    __syncwarp();
    if (peers && !before) next[expert] += __popc(peers);
    __syncwarp();
  }
  for (int e = lane; !PLACE && e < s.E; e += 32) s.counts[(int64_t)e * s.parts + part] = next[e];
}

// Sums over the lanes before this one, and over all of them in *all.
static __device__ __forceinline__ int32_t sum_before(int32_t x, int32_t *all) {
  const int lane = threadIdx.x % 32;
  int32_t sum = x;
#pragma unroll
  for (int by = 1; by < 32; by *= 2) {
    const int32_t other = __shfl_up_sync(0xffffffffu, sum, by);
    sum += lane >= by ? other : 0;
  }
  *all = __shfl_sync(0xffffffffu, sum, 31);
  return sum - x;
}

// Replaces values [n] by the sums of those before; returns the sum of all. A warp calls it.
static __device__ __forceinline__ int32_t sum_in_place(const int32_t *values, int32_t *sums,
                                                       int n) {
  int32_t total = 0;
  for (int first = 0; first < n; first += 32) {
    const int i = first + threadIdx.x % 32;
    int32_t all;
    const int32_t before = sum_before(i < n ? values[i] : 0, &all);
    if (i < n) sums[i] = total + before;
    total += all;
  }
  return total;
}

// A warp for each expert.
static __global__ void __launch_bounds__(THREADS) sum_parts_kernel(slot_sort s) {
  const int e = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
  if (e >= s.E) return;
  int32_t *const counts = s.counts + (int64_t)e * s.parts;
  const int32_t total = sum_in_place(counts, counts, s.parts);
  if (threadIdx.x % 32 == 0) s.totals[e] = total;
}

// One warp.
static __global__ void __launch_bounds__(32) sum_experts_kernel(slot_sort s) {
  const int32_t total = sum_in_place(s.totals, s.offsets, s.E);
  if (threadIdx.x == 0) s.offsets[s.E] = total;
}

static void sort_by_expert(const ot_kernel_call *call) {
  const ot_op_attributes *const a = call->attributes;
  const int64_t slots = ot_type_elements(&call->in[0].type), E = a->num_experts;
  const int64_t each = ot_route_sort_each(slots, E), parts = ot_route_sort_parts(slots, E);
  const int64_t copies = ot_route_copies(a);
  const int64_t plane = ot_route_rows(a, call->in[0].type.dim[0]) / copies;
  int32_t *const counts = (int32_t *)call->workspace;
  int bits = 0;
  while (E > (int64_t)1 << bits) bits++;
  const slot_sort s = {(const int32_t *)call->in[0].data,
                       counts,
                       counts + E * parts,
                       (int32_t *)call->out[0].data,
                       (int32_t *)call->out[1].data,
                       slots,
                       plane,
                       (int)each,
                       (int)parts,
                       (int)E,
                       bits,
                       (int)copies};
  const int64_t bytes = E * (int64_t)sizeof(int32_t);
  const int warps = warps_for(bytes);
  void *const stream = ot_cuda_stream_of(call);
  const unsigned blocks = ot_blocks(parts, warps);
  OT_LAUNCH(sort_kernel<false>, blocks, 32 * warps, warps * bytes, stream, s);
  OT_LAUNCH(sum_parts_kernel, ot_blocks(E, THREADS / 32), THREADS, 0, stream, s);
  OT_LAUNCH(sum_experts_kernel, 1, 32, 0, stream, s);
  OT_LAUNCH(sort_kernel<true>, blocks, 32 * warps, warps * bytes, stream, s);
}

}  // namespace

extern "C" const ot_kernel_entry ot_route_cuda_f32[] = {{OT_OP_ROUTE, route<float>},
                                                        {OT_OP_ROUTE_GRAD, route_grad<float>},
                                                        {OT_OP_SORT_BY_EXPERT, sort_by_expert},
                                                        {}};

extern "C" const ot_kernel_entry ot_route_cuda_f64[] = {{OT_OP_ROUTE, route<double>},
                                                        {OT_OP_ROUTE_GRAD, route_grad<double>},
                                                        {OT_OP_SORT_BY_EXPERT, sort_by_expert},
                                                        {}};
