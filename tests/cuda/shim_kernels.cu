// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include "shim_kernels.h"

namespace {

template <bool BARRIERS>
__global__ void block_sums(const float *x, float *y) {
  __shared__ float parts[256];
  const int first = static_cast<int>(blockIdx.x) * PER_BLOCK, t = static_cast<int>(threadIdx.x);
  float sum = 0;
  for (int i = t; i < PER_BLOCK; i += 256) sum += x[first + i];
  parts[t] = sum;
  if (BARRIERS) __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (t < half) parts[t] += parts[t + half];
    if (BARRIERS) __syncthreads();
  }
  if (t == 0) y[blockIdx.x] = parts[0];
}

__global__ void shuffles(double *out) {
  const int lane = static_cast<int>(threadIdx.x), value = 100 + lane;
  int width = 32;
  for (int w = 0; w < NUM_WIDTHS; w++, width /= 2) {
    double *const o = out + w * 32 + lane;
    o[0] = __shfl_sync(~0u, value, 5, width);
    o[NUM_WIDTHS * 32] = __shfl_up_sync(~0u, value, 5, width);
    o[NUM_WIDTHS * 64] = __shfl_down_sync(~0u, static_cast<float>(value), 5, width);
    o[NUM_WIDTHS * 96] =
        static_cast<double>(__shfl_xor_sync(~0u, static_cast<long long>(value), 5, width));
    o[NUM_WIDTHS * 128] = __shfl_xor_sync(~0u, value + 0.5, 16, width);
  }
}

__global__ void votes(int *out) {
  const unsigned row = threadIdx.y + blockDim.y * threadIdx.z;
  const int t = static_cast<int>(threadIdx.x + blockDim.x * row);
  const unsigned half = 0xFFFFu << (t % 32 / 16 * 16);
  const unsigned mask = t < 96 ? half : 0xFu;
  int *const o = out + t;
  o[0] = __syncthreads_count(t % 3 == 0);
  o[VOTE_THREADS] = __syncthreads_or(t % 3 == 0);
  o[VOTE_THREADS * 2] = __syncthreads_and(t % 3 == 0);
  o[VOTE_THREADS * 3] = __syncthreads_and(t < VOTE_THREADS);
  __syncwarp(mask);
  o[VOTE_THREADS * 4] = static_cast<int>(__ballot_sync(mask, t % 5 == 0));
  o[VOTE_THREADS * 5] = __any_sync(mask, t % 50 == 0);
  o[VOTE_THREADS * 6] = __all_sync(mask, t < 90);
}

__global__ void early_exit(int *out) {
  if (threadIdx.x >= 56) return;
  const int count = __syncthreads_count(1);
  const int all = __syncthreads_and(1);
  if (threadIdx.x == 0) out[0] = all ? count : -count;
}

__global__ void tickets(int *out) {
  int *const counts = out + 2 * blockIdx.x;
  int *const mine = out + 4 + 2 * TICKET_THREADS * blockIdx.x + threadIdx.x;
  mine[0] = atomicAdd(&counts[0], 1);
  __syncthreads();
  mine[TICKET_THREADS] = atomicAdd(&counts[1], 1);
}

template <class T>
__device__ T exchange_static(T mine) {
  __shared__ __align__(16) T values[64];
  const T before = values[threadIdx.x];
  __syncthreads();
  values[threadIdx.x] = mine;
  return before;
}

__global__ void shared_memory(int *out) {
  const int t = static_cast<int>(threadIdx.x), b = static_cast<int>(blockIdx.x);
  double *const dynamic = reinterpret_cast<double *>(shim::dynamic_shared());
  int nan = 1;
  for (int i = t; i < 512; i += 64) nan &= isnan(dynamic[i]);
  const int all_nan = __syncthreads_and(nan);
  dynamic[t] = b * 64 + t;
  const int before = exchange_static(b * 64 + t);
  __syncthreads();
  const int other = (t + 17) % 64;
  const int right = __syncthreads_and(dynamic[other] == b * 64 + other);
  if (t != 0) return;
  out[3 * b] = all_nan;
  out[3 * b + 1] = right;
  out[3 * b + 2] = before;
}

__device__ bool integers_are_right() {
  return __popc(0xF0F0u) == 8 && __popcll(~0ull) == 64 && __clz(0) == 32 && __clz(1) == 31 &&
         __clz(-1) == 0 && __clzll(1) == 63 && __ffs(0) == 0 && __ffs(8) == 4 &&
         __ffsll(1ll << 40) == 41 && __brev(1u) == 0x80000000u &&
         __brev(0x12345678u) == 0x1E6A2C48u && __umulhi(0xFFFFFFFFu, 0xFFFFFFFFu) == 0xFFFFFFFEu &&
         __umul64hi(~0ull, 2) == 1 && max(-1, 1) == 1 && min(1u, ~0u) == 1 &&
         max(1ll << 40, 2ll) == 1ll << 40;
}

__device__ bool floats_are_right() {
  return rsqrtf(4.0f) == 0.5f && rsqrt(16.0) == 0.25 && __expf(0.0f) == 1.0f &&
         __logf(1.0f) == 0.0f && __fdividef(1.0f, 4.0f) == 0.25f && exp2f(3.0f) == 8.0f &&
         max(NAN, 1.0f) == 1.0f && min(2.0, static_cast<double>(NAN)) == 2.0 &&
         max(1.0f, 2.0) == 2.0 && fma(2.0, 3.0, 1.0) == 7.0 && fmaf(2.0f, 3.0f, 1.0f) == 7.0f &&
         __float_as_uint(1.0f) == 0x3F800000u && __uint_as_float(0x40000000u) == 2.0f &&
         __float_as_int(-0.0f) == static_cast<int>(0x80000000u) && __int_as_float(0) == 0.0f &&
         __double_as_longlong(1.0) == 0x3FF0000000000000ll &&
         __longlong_as_double(0x4000000000000000ll) == 2.0;
}

template <class T, class = void>
struct has_atomic_add : std::false_type {};
template <class T>
struct has_atomic_add<T, std::void_t<decltype(atomicAdd(static_cast<T *>(nullptr), T()))>>
    : std::true_type {};
static_assert(has_atomic_add<int>::value && has_atomic_add<unsigned long long>::value, "");
static_assert(!has_atomic_add<float>::value && !has_atomic_add<double>::value,
              "sums of floats in any order are refused");

__device__ bool atomics_are_right() {
  unsigned long long large = ~0ull;
  int i = 5;
  unsigned u = 7;
  return atomicAdd(&large, 2) == ~0ull && large == 1 && atomicAdd(&i, -7) == 5 && i == -2 &&
         atomicMax(&i, 3) == -2 && i == 3 && atomicMin(&u, 2) == 7 && u == 2 &&
         atomicCAS(&u, 1u, 9u) == 2 && u == 2 && atomicCAS(&u, 2u, 9u) == 2 && u == 9 &&
         atomicExch(&u, 4u) == 9 && u == 4;
}

__global__ void functions(int *out) {
  out[0] = integers_are_right();
  out[1] = floats_are_right();
  out[2] = atomics_are_right();
}

__global__ void add(const int *in, int *out, int n, int amount) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) __stcs(out + i, __ldg(in + i) + amount);
}

__global__ void write_byte(char *memory, long offset) { memory[offset] = 0; }

__global__ void touch_shared(size_t bytes) {
  if (bytes > 0 && threadIdx.x == 0) shim::dynamic_shared()[bytes - 1] = 1;
  __syncthreads();
}

// ---- misuses: blocks of 64 threads ----

__device__ void wait_in_two_places(int lane) {
  if (lane < 16) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

__device__ void wait_in_two_ways(int lane) {
  const bool all = lane < 16 ? __syncthreads_or(1) : __syncthreads_and(1);
  (void)all;
}

__device__ void leave_awaited(int lane) {
  if (lane == 31) {
    __syncwarp(1u << 31 | 1u << 30);
    return;
  }
  if (lane == 30) __syncwarp(1u << 31 | 1u << 30);
  __syncwarp(~0u);
}

__device__ void mix_operations(int lane) {
  if (lane % 2 == 0) {
    __shfl_xor_sync(~0u, lane, 1);
  } else {
    __shfl_down_sync(~0u, lane, 1);
  }
}

__device__ void overrun() { shim::dynamic_shared()[1024 + 3] = 1; }

__global__ void do_wrong(misuse kind, volatile int *null) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  if (kind == DIVERGENT_BARRIER) wait_in_two_places(lane);
  if (kind == BARRIER_KINDS) wait_in_two_ways(lane);
  if (kind == MASK_WITHOUT_SELF) __syncwarp(0xFFFFu);
  if (kind == MASK_OF_EXITED && lane >= 20) return;
  if (kind == MASK_OF_EXITED) __ballot_sync(~0u, lane);
  if (kind == EXIT_WHILE_AWAITED) leave_awaited(lane);
  if (kind == DIFFERENT_OPERATIONS) mix_operations(lane);
  if (kind == DIFFERENT_MASKS) __any_sync(lane < 8 ? ~0u : ~1u, 1);
  if (kind == SHUFFLE_OUTSIDE_MASK && lane < 16) __shfl_down_sync(0xFFFFu, lane, 1);
  if (kind == LANE_AT_BARRIER && lane == 3) __syncthreads();
  if (kind == LANE_AT_BARRIER && lane != 3) __syncwarp(~0u);
  if (kind == SHARED_OVERRUN) overrun();
  if (kind == NULL_ADDRESS) *null = lane;
}

}  // namespace

void queue_block_sums(cudaStream_t stream, const float *x, float *y, int blocks, bool barriers) {
  const auto kernel = barriers ? block_sums<true> : block_sums<false>;
  shim::launch({"block_sums", static_cast<unsigned>(blocks), 256, 0}, stream,
               [=] { kernel(x, y); });
}

void queue_shuffles(cudaStream_t stream, double *out) {
  shim::launch({"shuffles", 1, 32, 0}, stream, [=] { shuffles(out); });
}

void queue_votes(cudaStream_t stream, int *out) {
  shim::launch({"votes", 1, dim3(10, 5, 2), 0}, stream, [=] { votes(out); });
}

void queue_early_exit(cudaStream_t stream, int *out) {
  shim::launch({"early_exit", 1, 96, 0}, stream, [=] { early_exit(out); });
}

void queue_tickets(cudaStream_t stream, int *out) {
  shim::launch({"tickets", 2, TICKET_THREADS, 0}, stream, [=] { tickets(out); });
}

void queue_shared_memory(cudaStream_t stream, int *out, int blocks) {
  shim::launch({"shared_memory", static_cast<unsigned>(blocks), 64, 4096}, stream,
               [=] { shared_memory(out); });
}

void queue_functions(cudaStream_t stream, int *out) {
  shim::launch({"functions", 1, 1, 0}, stream, [=] { functions(out); });
}

void queue_add(cudaStream_t stream, const int *in, int *out, int n, int amount) {
  const unsigned blocks = static_cast<unsigned>(n + 63) / 64;
  shim::launch({"add", blocks, 64, 0}, stream, [=] { add(in, out, n, amount); });
}

void queue_write(cudaStream_t stream, char *memory, long offset) {
  shim::launch({"write_byte", 1, 1, 0}, stream, [=] { write_byte(memory, offset); });
}

void queue_large_shared(cudaStream_t stream, size_t bytes) {
  shim::launch("touch_shared", touch_shared, 1, 1024, bytes, stream, [=] { touch_shared(bytes); });
}

cudaError_t allow_large_shared(int bytes) {
  return cudaFuncSetAttribute(touch_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

void queue_empty(cudaStream_t stream, unsigned grid_y, unsigned threads) {
  shim::launch({"touch_shared", dim3(1, grid_y), threads, 0}, stream, [=] { touch_shared(0); });
}

void queue_misuse(cudaStream_t stream, misuse kind) {
  shim::launch({"do_wrong", 3, 64, 1024}, stream, [=] { do_wrong(kind, nullptr); });
}
