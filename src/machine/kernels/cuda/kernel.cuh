// SPDX-License-Identifier: Apache-2.0
// Common parts of CUDA kernels: element types, vectors, sums in a fixed order, launch sizes.
//
// Kernels are templates over R, the compute type (float or double), and often S, the storage type of
// the activations (R or ot_bf16), and N, the elements of one memory access. Host functions take the
// call, choose the instance and launch it.
//
// The compiler contracts nothing (CMakeLists.txt): a product that is added is rounded before, unless
// fma is written. So equal expressions have equal bits in all kernels. Loops that are bound by
// arithmetic write fma.
#pragma once

#include <stdint.h>

#include "kernels/cuda/machine.cuh"

extern "C" {
#include "kernels/cuda/cuda_context.h"
}

// The least blocks of a multiprocessor for kernels to which ptxas gives too few registers, so that
// they spill, on all architectures but sm_90a. 0: left to ptxas.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
enum { OT_LEAST_BLOCKS = 0 };
#else
enum { OT_LEAST_BLOCKS = 1 };
#endif

// ---- element types ----

struct ot_bf16 {
  uint16_t bits;
};

__device__ __forceinline__ float ot_wide(ot_bf16 x) {
  return __uint_as_float((uint32_t)x.bits << 16);
}
__device__ __forceinline__ float ot_wide(float x) { return x; }
__device__ __forceinline__ double ot_wide(double x) { return x; }

__device__ __forceinline__ void ot_narrow(float x, ot_bf16 *to) { to->bits = ot_round_to_bf16(x); }
__device__ __forceinline__ void ot_narrow(double x, ot_bf16 *to) {
  to->bits = ot_round_to_bf16((float)x);
}
__device__ __forceinline__ void ot_narrow(float x, float *to) { *to = x; }
__device__ __forceinline__ void ot_narrow(double x, double *to) { *to = x; }
__device__ __forceinline__ void ot_narrow(double x, float *to) { *to = (float)x; }
__device__ __forceinline__ void ot_narrow(float x, double *to) { *to = x; }

// A tensor of any real type, told apart when it is accessed: weights, biases, accumulators.
template <class R>
struct ot_any {
  void *data;  // null: absent
  ot_dtype dtype;

  __device__ R operator[](int64_t i) const {
    if (dtype == OT_BF16) return (R)ot_wide(((const ot_bf16 *)data)[i]);
    return dtype == OT_F32 ? (R)((const float *)data)[i] : (R)((const double *)data)[i];
  }
  __device__ void set(int64_t i, R value) const {
    if (dtype == OT_BF16) {
      ot_narrow(value, (ot_bf16 *)data + i);
    } else if (dtype == OT_F32) {
      ot_narrow(value, (float *)data + i);
    } else {
      ot_narrow(value, (double *)data + i);
    }
  }
  // Overwrites an accumulator, or adds to it.
  __device__ void add(int64_t i, R value, bool accumulate) const {
    set(i, accumulate ? (*this)[i] + value : value);
  }
};

template <class R>
static inline ot_any<R> ot_any_of(const ot_tensor *tensor) {
  return {tensor->data, tensor->type.dtype};
}

// ---- vectors: N elements that one access moves ----

template <class S, int N>
struct __align__(sizeof(S) * N) ot_vector {
  S at[N];
};

template <class R, class S, int N>
__device__ __forceinline__ void ot_load(const S *from, R (&to)[N]) {
  const ot_vector<S, N> v = *(const ot_vector<S, N> *)from;
#pragma unroll
  for (int i = 0; i < N; i++) to[i] = (R)ot_wide(v.at[i]);
}

template <class R, class S, int N>
__device__ __forceinline__ void ot_store(S *to, const R (&from)[N]) {
  ot_vector<S, N> v;
#pragma unroll
  for (int i = 0; i < N; i++) ot_narrow(from[i], &v.at[i]);
  *(ot_vector<S, N> *)to = v;
}

// True if 16-byte accesses fit rows of `columns` elements of `dtype` at each of these addresses
// (null: absent).
static inline bool ot_fits_vectors(ot_dtype dtype, int64_t columns, const void *const *addresses,
                                   int count) {
  uintptr_t bits = (uintptr_t)(columns * ot_dtype_bytes(dtype));
  for (int i = 0; i < count; i++) bits |= (uintptr_t)addresses[i];
  return bits % 16 == 0;
}

// Calls `launch` with values of the types S and std::integral_constant-like N that fit:
// launch(S{}, ot_width<N>{}).
template <int N>
struct ot_width {
  static constexpr int value = N;
};

template <class R, class Launch>
static inline void ot_for_storage(ot_dtype dtype, bool vectors, Launch launch) {
  // float64 is for comparisons only: its vectors would double the time to compile.
  constexpr bool WIDE = sizeof(R) == 4;
  if (dtype == OT_BF16) {
    if (WIDE && vectors) {
      launch(ot_bf16{}, ot_width<WIDE ? 8 : 1>{});
    } else {
      launch(ot_bf16{}, ot_width<1>{});
    }
  } else if (WIDE && vectors) {
    launch(R{}, ot_width<WIDE ? 4 : 1>{});
  } else {
    launch(R{}, ot_width<1>{});
  }
}

// ---- sums: the same in all threads of the warp or block, in an order that the shape fixes ----

template <class R>
__device__ __forceinline__ R ot_warp_sum(R x) {
#pragma unroll
  for (int by = 16; by > 0; by /= 2) x += __shfl_xor_sync(0xffffffffu, x, by);
  return x;
}

template <class R>
__device__ __forceinline__ R ot_warp_max(R x) {
#pragma unroll
  for (int by = 16; by > 0; by /= 2) {
    const R other = __shfl_xor_sync(0xffffffffu, x, by);
    x = other > x ? other : x;
  }
  return x;
}

// `parts` [THREADS / 32] in shared memory; all threads of the block call it.
template <int THREADS, class R>
__device__ __forceinline__ R ot_block_sum(R x, R *parts) {
  x = ot_warp_sum(x);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
  __syncthreads();
  R total = parts[0];
#pragma unroll
  for (int w = 1; w < THREADS / 32; w++) total += parts[w];
  __syncthreads();
  return total;
}

template <int THREADS, class R>
__device__ __forceinline__ R ot_block_max(R x, R *parts) {
  x = ot_warp_max(x);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
  __syncthreads();
  R most = parts[0];
#pragma unroll
  for (int w = 1; w < THREADS / 32; w++) most = parts[w] > most ? parts[w] : most;
  __syncthreads();
  return most;
}

// ---- launches ----

// Blocks for `items` with `each` of them a block.
static inline unsigned ot_blocks(int64_t items, int64_t each) {
  return (unsigned)((items + each - 1) / each);
}

// `most` threads, a power of two, over rows of `vectors`: x, a power of two, for each row.
static inline dim3 ot_row_threads(int64_t vectors, unsigned most) {
  unsigned x = 1;
  while (x < most && x < vectors) x *= 2;
  return dim3(x, most / x);
}

// The shared memory that kernels without a substitute may use: that of a block of sm_80, the least
// of the GPUs that tests compile for, without 4 KiB that kernels declare.
enum { OT_LEAST_SHARED = (163 - 4) * 1024 };

// Lets a kernel have `bytes` of dynamic shared memory; false if a block of this GPU has less.
template <class... Arguments>
static inline bool ot_allow_shared(void (*kernel)(Arguments...), size_t bytes) {
  const bool fine = cudaPeekAtLastError() == cudaSuccess;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
  if (error != cudaSuccess && fine) (void)cudaGetLastError();  // no launch has failed
  return error == cudaSuccess;
}
