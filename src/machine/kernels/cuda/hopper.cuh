// SPDX-License-Identifier: Apache-2.0
// The PTX of Hopper (sm_90a) beyond machine.cuh: barriers in shared memory, copies of tiles
// by the tensor memory accelerator, and products of warpgroups. A test build finds its own file of
// this name, for an emulated device, first. Source of all semantics and layouts: PTX ISA manual,
// "mbarrier", "cp.async.bulk.tensor", "wgmma.mma_async" with its tables of matrix fragments and
// canonical layouts, "setmaxnreg", "bar".
#pragma once

#include "kernels/cuda/machine.cuh"

extern "C" {
#include "kernels/cuda/tensor_map.h"
}

// An instruction that only sm_90a has. Other targets compile these kernels, too, and never launch them.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define OT_HOPPER(...) asm volatile(__VA_ARGS__)
#else
#define OT_HOPPER(...) __trap()
#endif

// A kernel's parameter that holds a tensor map.
#define OT_GRID_CONSTANT const __grid_constant__

// Dynamic shared memory aligned for 128-byte swizzling.
#define OT_SWIZZLED_SHARED(name)                                              \
  extern __shared__ __align__(1024) unsigned char ot_swizzled_shared_bytes[]; \
  unsigned char *const name = ot_swizzled_shared_bytes

// ---- barriers in shared memory ----

// A phase ends when `count` threads have arrived and all expected bytes have landed. One thread
// initialises barriers, calls ot_barrier_fence once, and then a barrier of the block follows.
__device__ __forceinline__ void ot_barrier_init(uint64_t *barrier, int count) {
  OT_HOPPER("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(ot_shared_address(barrier)),
               "r"(count)
               : "memory");
}

__device__ __forceinline__ void ot_barrier_fence() {
  OT_HOPPER("fence.mbarrier_init.release.cluster;" ::: "memory");
  OT_HOPPER("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void ot_barrier_arrive(uint64_t *barrier) {
  OT_HOPPER("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(ot_shared_address(barrier))
               : "memory");
}

// Arrives, and lets the phase also wait for `bytes` of copies.
__device__ __forceinline__ void ot_barrier_expect(uint64_t *barrier, int bytes) {
  OT_HOPPER("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                   ot_shared_address(barrier)),
               "r"(bytes)
               : "memory");
}

// Waits until the phase of this parity has ended: of phases 0, 1, 2, ... parities are 0, 1, 0, ...
__device__ __forceinline__ void ot_barrier_wait(uint64_t *barrier, int parity) {
  OT_HOPPER(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra ended;\n"
      "bra again;\n"
      "ended:\n"
      "}" ::"r"(ot_shared_address(barrier)),
      "r"(parity)
      : "memory");
}

// All `threads`, whole warps, that use barrier `number` [1, 16) of the block wait for each other.
__device__ __forceinline__ void ot_named_barrier(int number, int threads) {
  OT_HOPPER("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// ---- copies of tiles ----

// Copies the tile of a tensor map of rank 3 whose first element is (column, row, sequence) to
// `shared`, aligned to 8 rows. `barrier` counts its bytes. By one thread.
__device__ __forceinline__ void ot_copy_tile(void *shared, const ot_tensor_map &map, int column,
                                             int row, int sequence, uint64_t *barrier) {
  OT_HOPPER(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(ot_shared_address(shared)),
      "l"(&map), "r"(column), "r"(row), "r"(sequence), "r"(ot_shared_address(barrier))
      : "memory");
}

__device__ __forceinline__ void ot_prefetch_map(const ot_tensor_map &map) {
  OT_HOPPER("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// ---- registers of a warpgroup's threads; of one branch each ----

template <int N>
__device__ __forceinline__ void ot_fewer_registers() {
  OT_HOPPER("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N>
__device__ __forceinline__ void ot_more_registers() {
  OT_HOPPER("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

// ---- products of a warpgroup: d [64, N] = a [64, 16] b [16, N] (+ d) in bf16 and float32 ----
// A lane has of each 8 columns of d, and of a in registers, what it has in mma.m16n8k16; warp w of
// the warpgroup has rows 16 w on.

// A tile of COLUMNS columns in shared memory, aligned to 8 rows: 64 of 128 bytes a row with 128-byte
// swizzling, or 32 of 64 bytes with 64-byte swizzling. Rows of the tile are the depth, columns those
// of b; the next COLUMNS columns are `panel` bytes on. `from`: of the part, a row that is a multiple
// of 8, and a column that is a multiple of 16.
template <int COLUMNS>
__device__ __forceinline__ uint64_t ot_operand_by_column(const void *from, int panel) {
  static_assert(COLUMNS == 64 || COLUMNS == 32, "one of two ways of swizzling");
  const uint64_t stride = 8 * COLUMNS * 2, swizzle = COLUMNS == 64 ? 1 : 2;
  return (ot_shared_address(from) & 0x3FFFF) >> 4 | (uint64_t)panel >> 4 << 16 |
         stride >> 4 << 32 | swizzle << 62;
}

// The same with columns as the depth, and rows that are those of a or columns of b.
template <int COLUMNS>
__device__ __forceinline__ uint64_t ot_operand_by_depth(const void *from) {
  return ot_operand_by_column<COLUMNS>(from, 16);  // a distance that is not used
}

// Before the first product of a group: orders earlier accesses of its registers.
__device__ __forceinline__ void ot_products_begin() {
  OT_HOPPER("wgmma.fence.sync.aligned;" ::: "memory");
}

// Ends a group of products.
__device__ __forceinline__ void ot_products_end() {
  OT_HOPPER("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most N groups are under way. Until then no thread may use their registers.
template <int N>
__device__ __forceinline__ void ot_products_wait() {
  OT_HOPPER("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

// Between a wait and the first access of sums: the compiler does not know what the wait waits for.
template <int N>
__device__ __forceinline__ void ot_products_hold(float (&d)[N][4]) {
#pragma unroll
  for (int i = 0; i < N; i++) {
    OT_HOPPER("" : "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])::"memory");
  }
}

#define OT_SUMS_8(d, i)                                                              \
  "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3]), "+f"(d[i + 1][0]), \
      "+f"(d[i + 1][1]), "+f"(d[i + 1][2]), "+f"(d[i + 1][3])
#define OT_SUMS_32(d, i) \
  OT_SUMS_8(d, i), OT_SUMS_8(d, i + 2), OT_SUMS_8(d, i + 4), OT_SUMS_8(d, i + 6)
#define OT_NAMES_24                                                                  \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, " \
  "%18, %19, %20, %21, %22, %23"
#define OT_NAMES_32 OT_NAMES_24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define OT_NAMES_48                                                                        \
  OT_NAMES_32                                                                              \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define OT_NAMES_64                                                                        \
  OT_NAMES_48                                                                              \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define OT_NAMES_96                                                                        \
  OT_NAMES_64                                                                              \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"       \
  ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define OT_NAMES_128                                                                       \
  OT_NAMES_96                                                                              \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110" \
  ", %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124"   \
  ", %125, %126, %127"

// Both operands in shared memory with K innermost.
__device__ __forceinline__ void ot_multiply(float (&d)[6][4], uint64_t a, uint64_t b, bool add) {
  OT_HOPPER(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %26, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n48k16.f32.bf16.bf16 {" OT_NAMES_24
      "}, %24, %25, p, 1, 1, 0, 0;\n}"
      : OT_SUMS_8(d, 0), OT_SUMS_8(d, 2), OT_SUMS_8(d, 4)
      : "l"(a), "l"(b), "r"((int)add));
}

__device__ __forceinline__ void ot_multiply(float (&d)[8][4], uint64_t a, uint64_t b, bool add) {
  OT_HOPPER(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" OT_NAMES_32
      "}, %32, %33, p, 1, 1, 0, 0;\n}"
      : OT_SUMS_32(d, 0)
      : "l"(a), "l"(b), "r"((int)add));
}

__device__ __forceinline__ void ot_multiply(float (&d)[16][4], uint64_t a, uint64_t b, bool add) {
  OT_HOPPER(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" OT_NAMES_64
      "}, %64, %65, p, 1, 1, 0, 0;\n}"
      : OT_SUMS_32(d, 0), OT_SUMS_32(d, 8)
      : "l"(a), "l"(b), "r"((int)add));
}

// d += a b with a in registers and b in shared memory with columns innermost.
__device__ __forceinline__ void ot_multiply_add(float (&d)[8][4], const uint32_t (&a)[4],
                                                uint64_t b) {
  OT_HOPPER(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" OT_NAMES_32
      "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
      : OT_SUMS_32(d, 0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

__device__ __forceinline__ void ot_multiply_add(float (&d)[12][4], const uint32_t (&a)[4],
                                                uint64_t b) {
  OT_HOPPER(
      "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {" OT_NAMES_48
      "}, {%48, %49, %50, %51}, %52, 1, 1, 1, 1;"
      : OT_SUMS_32(d, 0), OT_SUMS_8(d, 8), OT_SUMS_8(d, 10)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

__device__ __forceinline__ void ot_multiply_add(float (&d)[16][4], const uint32_t (&a)[4],
                                                uint64_t b) {
  OT_HOPPER(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" OT_NAMES_64
      "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
      : OT_SUMS_32(d, 0), OT_SUMS_32(d, 8)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

__device__ __forceinline__ void ot_multiply_add(float (&d)[24][4], const uint32_t (&a)[4],
                                                uint64_t b) {
  OT_HOPPER(
      "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {" OT_NAMES_96
      "}, {%96, %97, %98, %99}, %100, 1, 1, 1, 1;"
      : OT_SUMS_32(d, 0), OT_SUMS_32(d, 8), OT_SUMS_32(d, 16)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

__device__ __forceinline__ void ot_multiply_add(float (&d)[32][4], const uint32_t (&a)[4],
                                                uint64_t b) {
  OT_HOPPER(
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" OT_NAMES_128
      "}, {%128, %129, %130, %131}, %132, 1, 1, 1, 1;"
      : OT_SUMS_32(d, 0), OT_SUMS_32(d, 8), OT_SUMS_32(d, 16), OT_SUMS_32(d, 24)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
