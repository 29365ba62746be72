// SPDX-License-Identifier: Apache-2.0
// Expert biases and their gradients: some threads of a block for each token, a warp for each gate,
// a block for some columns of each expert and part of the slots.
#include "kernels/cuda/rows.cuh"

extern "C" {
#include "kernels/cuda/tables.h"
#include "workspace/cuda_workspace.h"
#include "ops/expert_bias.h"
}

namespace {

enum {
  THREADS = 128,
  WARPS = THREADS / 32,
  SLOTS_OF_THREAD = 4,  // of those that a block looks through at a time
  ROWS_AT_ONCE = 4      // loads in flight of a thread that adds rows
};

// ---- forward ----

template <class R, class S>
struct bias_operands {
  const R *gates;          // [tokens, slots]
  const int32_t *experts;  // [tokens, slots]
  ot_any<R> bias;          // [E, columns]
  ot_any<R> addend;        // [tokens, columns] or absent
  S *y;                    // [tokens, columns]
  int64_t tokens;
  int columns, slots;
};

template <class R, class S, int N>
static __global__ void __launch_bounds__(THREADS) bias_kernel(bias_operands<R, S> o) {
  const int64_t token = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
  if (token >= o.tokens) return;
  const R *const gates = o.gates + token * o.slots;
  const int32_t *const experts = o.experts + token * o.slots;
  for (int c = threadIdx.x * N; c < o.columns; c += blockDim.x * N) {
    R sum[N] = {};
    if (o.addend.data) ot_load_any(o.addend, token * o.columns + c, sum);
    for (int j = 0; j < o.slots; j++) {
      if (experts[j] < 0) continue;
      R bias[N];
      ot_load_any(o.bias, (int64_t)experts[j] * o.columns + c, bias);
#pragma unroll
      for (int k = 0; k < N; k++) sum[k] = fma(gates[j], bias[k], sum[k]);
    }
    ot_store(o.y + token * o.columns + c, sum);
  }
}

template <class R>
static void expert_bias(const ot_kernel_call *call) {
  const ot_tensor *const in = call->in, *const y = &call->out[0];
  const int64_t columns = y->type.dim[1];
  const void *const all[] = {in[2].data, in[3].data, y->data};
  if (y->type.dim[0] == 0) return;
  ot_for_storage<R>(
      y->type.dtype, ot_fits_vectors(y->type.dtype, columns, all, 3), [&](auto s, auto width) {
        using S = decltype(s);
        constexpr int N = decltype(width)::value;
        const bias_operands<R, S> o = {(const R *)in[0].data, (const int32_t *)in[1].data,
                                       ot_any_of<R>(&in[2]),  ot_any_of<R>(&in[3]),
                                       (S *)y->data,          y->type.dim[0],
                                       (int)columns,          (int)in[1].type.dim[1]};
        const dim3 threads = ot_row_threads(columns / N, THREADS);
        OT_LAUNCH((bias_kernel<R, S, N>), ot_blocks(o.tokens, threads.y), threads, 0,
                  ot_cuda_stream_of(call), o);
      });
}

// ---- gradients ----

template <class R, class S>
struct grad_operands {
  const S *dy;             // [tokens, columns]
  const R *gates;          // [tokens, slots]: of biases
  const int32_t *experts;  // [tokens, slots]
  ot_any<R> bias;          // [E, columns]: of gates
  const R *partial;        // [tokens, slots] or absent
  R *out;                  // dgates [tokens, slots], or sums [parts, E, columns]
  int64_t all;             // slots of all tokens
  int64_t each;            // of a part
  int columns, slots;
};

// A warp for each slot.
template <class R, class S, int N>
static __global__ void __launch_bounds__(THREADS) gates_kernel(grad_operands<R, S> o) {
  const int lane = threadIdx.x % 32;
  const int64_t i = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
  if (i >= o.all) return;
  const int32_t expert = o.experts[i];
  const S *const dy = o.dy + i / o.slots * o.columns;
  R sum = 0;
  for (int c = lane * N; c < o.columns && expert >= 0; c += 32 * N) {
    R x[N], bias[N];
    ot_load(dy + c, x);
    ot_load_any(o.bias, (int64_t)expert * o.columns + c, bias);
#pragma unroll
    for (int k = 0; k < N; k++) sum = fma(x[k], bias[k], sum);
  }
  sum = ot_warp_sum(sum);
  if (lane == 0) o.out[i] = (o.partial ? o.partial[i] : 0) + sum;
}

// Puts the slots of `expert` among [first, end), at most SLOTS_OF_THREAD * THREADS of them, in
// order into `list`; returns their number. All threads of the block call it.
static __device__ __forceinline__ int list_slots(const int32_t *experts, int64_t first, int64_t end,
                                                 int expert, int32_t *list) {
  __shared__ int counts[SLOTS_OF_THREAD][WARPS];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  unsigned votes[SLOTS_OF_THREAD];
#pragma unroll
  for (int k = 0; k < SLOTS_OF_THREAD; k++) {
    const int64_t i = first + k * THREADS + threadIdx.x;
    votes[k] = __ballot_sync(0xffffffffu, i < end && experts[i] == expert);
    if (lane == 0) counts[k][warp] = __popc(votes[k]);
  }
  __syncthreads();
  int count = 0;
#pragma unroll
  for (int k = 0; k < SLOTS_OF_THREAD; k++) {
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
      if (w == warp && (votes[k] >> lane & 1)) {
        const int place = count + __popc(votes[k] & ((1u << lane) - 1));
        list[place] = k * THREADS + (int)threadIdx.x;
      }
      count += counts[k][w];
    }
  }
  __syncthreads();
  return count;
}

// Adds gates * dy of the listed slots, counted from `first` on, in order.
template <int N, class R, class S>
static __device__ __forceinline__ void add_slots(const grad_operands<R, S> &o, int64_t first,
                                                 const int32_t *list, int count, int c,
                                                 R (&sum)[N]) {
  for (int l = 0; l < count; l += ROWS_AT_ONCE) {
    R x[ROWS_AT_ONCE][N] = {}, gates[ROWS_AT_ONCE] = {};
#pragma unroll
    for (int k = 0; k < ROWS_AT_ONCE; k++) {
      if (l + k >= count) continue;
      const int64_t slot = first + list[l + k];
      gates[k] = o.gates[slot];
      ot_load(o.dy + slot / o.slots * o.columns + c, x[k]);
    }
#pragma unroll
    for (int k = 0; k < ROWS_AT_ONCE; k++) {
#pragma unroll
      for (int n = 0; n < N; n++) sum[n] = fma(gates[k], x[k][n], sum[n]);
    }
  }
}

// A block for THREADS vectors of columns (x), an expert (y) and a part of the slots (z).
template <class R, class S, int N>
static __global__ void __launch_bounds__(THREADS) biases_kernel(grad_operands<R, S> o) {
  __shared__ int32_t list[SLOTS_OF_THREAD * THREADS];
  const int c = (int)(blockIdx.x * THREADS + threadIdx.x) * N, expert = blockIdx.y;
  const int64_t begin = blockIdx.z * o.each;
  const int64_t end = begin + o.each < o.all ? begin + o.each : o.all;
  R sum[N] = {};
  for (int64_t first = begin; first < end; first += SLOTS_OF_THREAD * THREADS) {
    const int count = list_slots(o.experts, first, end, expert, list);
    if (c < o.columns) add_slots<N>(o, first, list, count, c, sum);
  }
  if (c >= o.columns) return;
  const int64_t row = (int64_t)blockIdx.z * gridDim.y + expert;
  ot_put_part(o.out + row * o.columns + c, sum, false);
}

template <class R>
static void expert_bias_dx(const ot_kernel_call *call) {
  const ot_tensor *const in = call->in, *const dgates = &call->out[0];
  const ot_tensor_type *const type = &in[0].type;
  const void *const all[] = {in[0].data, in[2].data};
  if (type->dim[0] == 0) return;
  ot_for_storage<R>(type->dtype, ot_fits_vectors(type->dtype, type->dim[1], all, 2),
                    [&](auto s, auto width) {
                      using S = decltype(s);
                      const grad_operands<R, S> o = {(const S *)in[0].data,
                                                     NULL,
                                                     (const int32_t *)in[1].data,
                                                     ot_any_of<R>(&in[2]),
                                                     (const R *)in[3].data,
                                                     (R *)dgates->data,
                                                     ot_type_elements(&dgates->type),
                                                     0,
                                                     (int)type->dim[1],
                                                     (int)dgates->type.dim[1]};
                      OT_LAUNCH((gates_kernel<R, S, decltype(width)::value>),
                                ot_blocks(o.all, WARPS), THREADS, 0, ot_cuda_stream_of(call), o);
                    });
}

template <class R>
static void expert_bias_dw(const ot_kernel_call *call) {
  const ot_tensor *const in = call->in;
  const ot_tensor_type *const type = &in[0].type;
  const int64_t E = call->attributes->num_experts, columns = type->dim[1];
  const int64_t slots = ot_type_elements(&in[2].type), parts = ot_expert_bias_parts(slots, E);
  const void *const all[] = {in[0].data};
  R *const sums = (R *)call->workspace;
  ot_for_storage<R>(
      type->dtype, ot_fits_vectors(type->dtype, columns, all, 1), [&](auto s, auto width) {
        using S = decltype(s);
        constexpr int N = decltype(width)::value;
        const grad_operands<R, S> o = {(const S *)in[0].data,
                                       (const R *)in[1].data,
                                       (const int32_t *)in[2].data,
                                       {},
                                       NULL,
                                       sums,
                                       slots,
                                       ot_expert_bias_slots(slots, E),
                                       (int)columns,
                                       (int)in[2].type.dim[1]};
        const dim3 grid(ot_blocks(columns, THREADS * N), (unsigned)E, (unsigned)parts);
        OT_LAUNCH((biases_kernel<R, S, N>), grid, THREADS, 0, ot_cuda_stream_of(call), o);
      });
  ot_sum_parts(call, sums, parts, E * columns, &call->out[0]);
}

}  // namespace

extern "C" const ot_kernel_entry ot_expert_bias_cuda_f32[] = {
    {OT_OP_EXPERT_BIAS, expert_bias<float>},
    {OT_OP_EXPERT_BIAS_DX, expert_bias_dx<float>},
    {OT_OP_EXPERT_BIAS_DW, expert_bias_dw<float>},
    {}};

extern "C" const ot_kernel_entry ot_expert_bias_cuda_f64[] = {
    {OT_OP_EXPERT_BIAS, expert_bias<double>},
    {OT_OP_EXPERT_BIAS_DX, expert_bias_dx<double>},
    {OT_OP_EXPERT_BIAS_DW, expert_bias_dw<double>},
    {}};
