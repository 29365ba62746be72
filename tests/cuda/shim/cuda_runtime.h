// SPDX-License-Identifier: Apache-2.0
// What a `.cu` source sees when g++ or clang++ compiles it for the emulated device (C++17): CUDA's
// qualifiers, warp operations, atomics and mathematics. Kernels are launched by shim::launch. In C
// this header is the runtime API alone.
//   - __shared__ variables are static: blocks run one at a time.
//   - Atomics on floats do not compile: their order would change bits.
//   - A shuffle that reads a lane outside its mask ends the process; on a GPU it reads anything.
#pragma once

#include "cuda_runtime_api.h"

#ifdef __cplusplus

#include <math.h>
#include <string.h>
#include <type_traits>

#include "fibers.h"
#include "vector_types.h"

#define __grid_constant__
#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __constant__ static const
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

namespace shim {

// Queues a kernel whose threads run `body`; CUDA's limits on shapes hold. Errors are found by
// cudaGetLastError, as in CUDA.
void queue_kernel(const launch_shape &shape, cudaStream_t stream, std::function<void()> body);
// The same for a kernel at `function`, whose dynamic shared memory beyond 48 KiB is opted in.
void queue_kernel_at(const void *function, const launch_shape &shape, cudaStream_t stream,
                     std::function<void()> body);

// `body` calls the kernel with copies of its arguments.
template <class Body>
void launch(const launch_shape &shape, cudaStream_t stream, Body body) {
  queue_kernel(shape, stream, std::move(body));
}
template <class... Arguments, class Body>
void launch(const char *kernel, void (*function)(Arguments...), dim3 grid, dim3 block,
            size_t shared_bytes, cudaStream_t stream, Body body) {
  queue_kernel_at(reinterpret_cast<const void *>(function), {kernel, grid, block, shared_bytes},
                  stream, std::move(body));
}

template <class To, class From>
To same_bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "both have the same size");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

// The value of lane `from` of the running thread's warp. T has 4 or 8 bytes.
uint64_t shuffle_bits(uint32_t mask, uint64_t bits, int from, const char *name, place at);
uint32_t ballot(uint32_t mask, bool predicate, const char *name, place at);

template <class T>
T shuffle(uint32_t mask, T value, int from, const char *name, place at) {
  static_assert(std::is_arithmetic<T>::value, "a shuffle moves a number");
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "of 4 or 8 bytes");
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof value);
  bits = shuffle_bits(mask, bits, from, name, at);
  memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace shim

// The line of the caller: the last parameters of everything that waits.
#define SHIM_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

// ---- waits of a block ----

static inline void __syncthreads(SHIM_HERE) { shim::barrier(false, "__syncthreads", {file, line}); }
static inline int __syncthreads_count(int predicate, SHIM_HERE) {
  return shim::barrier(predicate != 0, "__syncthreads_count", {file, line}).yes;
}
static inline int __syncthreads_or(int predicate, SHIM_HERE) {
  return shim::barrier(predicate != 0, "__syncthreads_or", {file, line}).yes > 0;
}
static inline int __syncthreads_and(int predicate, SHIM_HERE) {
  const shim::votes v = shim::barrier(predicate != 0, "__syncthreads_and", {file, line});
  return v.yes == v.all;
}
static inline void __threadfence() {}
static inline void __threadfence_block() {}

// ---- operations of a warp; `width` divides a warp into segments, as in CUDA ----

static inline void __syncwarp(unsigned mask = ~0u, SHIM_HERE) {
  shim::ballot(mask, false, "__syncwarp", {file, line});
}
static inline unsigned __ballot_sync(unsigned mask, int predicate, SHIM_HERE) {
  return shim::ballot(mask, predicate != 0, "__ballot_sync", {file, line});
}
static inline int __any_sync(unsigned mask, int predicate, SHIM_HERE) {
  return shim::ballot(mask, predicate != 0, "__any_sync", {file, line}) != 0;
}
static inline int __all_sync(unsigned mask, int predicate, SHIM_HERE) {
  return shim::ballot(mask, predicate == 0, "__all_sync", {file, line}) == 0;
}
template <class T>
T __shfl_sync(unsigned mask, T value, int from, int width = warpSize, SHIM_HERE) {
  const int lane = (shim::lane() & -width) | (from & (width - 1));
  return shim::shuffle(mask, value, lane, "__shfl_sync", {file, line});
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = warpSize, SHIM_HERE) {
  const int lane = shim::lane();
  const bool inside = static_cast<unsigned>(lane & (width - 1)) >= by;
  return shim::shuffle(mask, value, inside ? lane - static_cast<int>(by) : lane, "__shfl_up_sync",
                       {file, line});
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = warpSize, SHIM_HERE) {
  const int lane = shim::lane();
  const bool inside = by < static_cast<unsigned>(width - (lane & (width - 1)));
  return shim::shuffle(mask, value, inside ? lane + static_cast<int>(by) : lane, "__shfl_down_sync",
                       {file, line});
}
// Reads earlier segments, but of later ones its own value.
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = warpSize, SHIM_HERE) {
  const int lane = shim::lane();
  const bool inside = (lane ^ bits) <= (lane | (width - 1));
  return shim::shuffle(mask, value, inside ? lane ^ bits : lane, "__shfl_xor_sync", {file, line});
}

// ---- memory ----

template <class T>
T __ldg(const T *from) {
  return *from;
}
template <class T>
T __ldcs(const T *from) {
  return *from;
}
template <class T>
void __stcs(T *to, T value) {
  *to = value;
}

// The types for which CUDA has integer atomics; another type does not compile.
template <class T>
using if_atomic =
    typename std::enable_if<std::is_same<T, int>::value || std::is_same<T, unsigned>::value ||
                                std::is_same<T, unsigned long long>::value,
                            T>::type;
template <class T>
struct same_type {
  using type = T;
};
template <class T>
if_atomic<T> atomicAdd(T *at, typename same_type<T>::type value) {
  const T old = *at;
  *at = static_cast<T>(static_cast<unsigned long long>(old) + value);
  return old;
}
template <class T>
if_atomic<T> atomicMax(T *at, typename same_type<T>::type value) {
  const T old = *at;
  *at = old > value ? old : value;
  return old;
}
template <class T>
if_atomic<T> atomicMin(T *at, typename same_type<T>::type value) {
  const T old = *at;
  *at = old < value ? old : value;
  return old;
}
template <class T>
if_atomic<T> atomicExch(T *at, typename same_type<T>::type value) {
  const T old = *at;
  *at = value;
  return old;
}
template <class T>
if_atomic<T> atomicCAS(T *at, typename same_type<T>::type expected,
                       typename same_type<T>::type value) {
  const T old = *at;
  if (old == expected) *at = value;
  return old;
}

// ---- mathematics that glibc lacks or names otherwise ----

// glibc reserves these names for itself.
#define __expf expf
#define __logf logf
static inline float __fdividef(float x, float y) { return x / y; }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline float rsqrt(float x) { return rsqrtf(x); }
static inline void sincospi(double x, double *sine, double *cosine) {
  *sine = sin(x * M_PI);
  *cosine = cos(x * M_PI);
}

static inline unsigned __float_as_uint(float x) { return shim::same_bits<unsigned>(x); }
static inline int __float_as_int(float x) { return shim::same_bits<int>(x); }
static inline float __uint_as_float(unsigned x) { return shim::same_bits<float>(x); }
static inline float __int_as_float(int x) { return shim::same_bits<float>(x); }
static inline long long __double_as_longlong(double x) { return shim::same_bits<long long>(x); }
static inline double __longlong_as_double(long long x) { return shim::same_bits<double>(x); }

static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
static inline int __clzll(long long x) {
  return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x));
}
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline unsigned __umulhi(unsigned x, unsigned y) {
  return static_cast<unsigned>(static_cast<unsigned long long>(x) * y >> 32);
}
static inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(x) * y >> 64);
}
static inline unsigned __brev(unsigned x) {
  x = __builtin_bswap32(x);
  x = (x & 0x0F0F0F0Fu) << 4 | (x >> 4 & 0x0F0F0F0Fu);
  x = (x & 0x33333333u) << 2 | (x >> 2 & 0x33333333u);
  return (x & 0x55555555u) << 1 | (x >> 1 & 0x55555555u);
}

// As in CUDA: exactly these pairs of types, and of a NaN and a number the number.
static inline int min(int x, int y) { return x < y ? x : y; }
static inline unsigned min(unsigned x, unsigned y) { return x < y ? x : y; }
static inline long min(long x, long y) { return x < y ? x : y; }
static inline unsigned long min(unsigned long x, unsigned long y) { return x < y ? x : y; }
static inline long long min(long long x, long long y) { return x < y ? x : y; }
static inline unsigned long long min(unsigned long long x, unsigned long long y) {
  return x < y ? x : y;
}
static inline float min(float x, float y) { return fminf(x, y); }
static inline double min(double x, double y) { return fmin(x, y); }
static inline double min(float x, double y) { return fmin(x, y); }
static inline double min(double x, float y) { return fmin(x, y); }
static inline int max(int x, int y) { return x > y ? x : y; }
static inline unsigned max(unsigned x, unsigned y) { return x > y ? x : y; }
static inline long max(long x, long y) { return x > y ? x : y; }
static inline unsigned long max(unsigned long x, unsigned long y) { return x > y ? x : y; }
static inline long long max(long long x, long long y) { return x > y ? x : y; }
static inline unsigned long long max(unsigned long long x, unsigned long long y) {
  return x > y ? x : y;
}
static inline float max(float x, float y) { return fmaxf(x, y); }
static inline double max(double x, double y) { return fmax(x, y); }
static inline double max(float x, double y) { return fmax(x, y); }
static inline double max(double x, float y) { return fmax(x, y); }

// The C++ forms of CUDA's header.
template <class Kernel>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, Kernel *kernel) {
  return cudaFuncGetAttributes(attributes, reinterpret_cast<const void *>(kernel));
}

template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel *kernel, cudaFuncAttribute attribute, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel), attribute, value);
}

#endif  // __cplusplus
