// SPDX-License-Identifier: Apache-2.0
// The operations that CUDA C++ has in its own syntax or in PTX. A test build finds its own file of
// this name, for an emulated device, first.
#pragma once

#include <cuda_runtime.h>
#include <stdint.h>

// Template kernels with several arguments are written in parentheses.
#define OT_LAUNCH(kernel, grid, block, shared_bytes, stream, ...) \
  (kernel)<<<(grid), (block), (shared_bytes), (cudaStream_t)(stream)>>>(__VA_ARGS__)

// Dynamic shared memory, 128-byte aligned.
#define OT_DYNAMIC_SHARED(type, name)                             \
  extern __shared__ __align__(128) unsigned char ot_shared_bytes[]; \
  type *const name = (type *)ot_shared_bytes

// To nearest even.
__device__ __forceinline__ uint16_t ot_round_to_bf16(float x) {
  uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}

// Two numbers in one register, `low` in its lower half.
__device__ __forceinline__ uint32_t ot_pack_bf16(float low, float high) {
  uint32_t bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}

// 2^x, within 2 units in the last place; 0 for x below -126.
__device__ __forceinline__ float ot_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Hides from the compiler how x was computed, so that a loop computes what follows from it again
// instead of keeping it in registers.
__device__ __forceinline__ void ot_forget(int &x) { asm volatile("" : "+r"(x)); }

// ---- matrices in the registers of a warp; layouts as in PTX's mma.m16n8k16 and ldmatrix ----

// c [16, 8] += a [16, 16] b [16, 8].
__device__ __forceinline__ void ot_mma_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                            uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ uint32_t ot_shared_address(const void *shared) {
  return (uint32_t)__cvta_generic_to_shared(shared);
}

// Four 8 x 8 matrices of 2-byte elements; lane 8 m + r passes the address of row r of matrix m,
// 16-byte aligned.
__device__ __forceinline__ void ot_load_matrices(uint32_t (&to)[4], const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(ot_shared_address(row)));
}

// The same, each transposed.
__device__ __forceinline__ void ot_load_transposed(uint32_t (&to)[4], const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(ot_shared_address(row)));
}

// ---- copies to shared memory that proceed while the thread computes ----

// 16 bytes; zeros unless `given`. `from` must be an address that may be read in any case.
__device__ __forceinline__ void ot_copy_async(void *shared, const void *from, bool given) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(ot_shared_address(shared)),
               "l"(from), "r"(given ? 16 : 0)
               : "memory");
}

// Ends a group of the thread's copies.
__device__ __forceinline__ void ot_copy_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most N of the thread's groups are under way. Other threads see the copies after a
// barrier.
template <int N>
__device__ __forceinline__ void ot_copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
