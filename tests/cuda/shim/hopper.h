// SPDX-License-Identifier: Apache-2.0
// Hopper's asynchronous operations on the emulated device (C++17): barriers in memory (mbarrier),
// tiles copied by the tensor memory accelerator (TMA), products of warpgroups (wgmma), named
// barriers. Semantics are those of the PTX ISA manual, sections "mbarrier", "cp.async.bulk.tensor",
// "Asynchronous warpgroup level matrix instructions" and "bar"; the layouts of operands in shared
// memory follow its tables of canonical layouts, here for swizzling of 128 and of 64 bytes. Made
// visible:
//   - A tile that is under way reads as NaN, and lands at once, at the last possible moment or at
//     random, by the order of threads.
//   - A product reads its operands when it is issued, when it is waited for, or in between; until
//     then its sums are NaN.
// Errors that end the process with a message: a barrier that was not initialised and fenced, was
// overwritten, or went on by two phases while a thread waited; products without a wgmma.fence,
// or whose sums or registers of operand a were touched before the wait; warps of a warpgroup that
// issue different products; descriptors outside shared memory; work under way when a block ends.
// Deadlocks name what threads wait for. Not covered: fences between the generic and the async proxy
// after ordinary stores to shared memory.
#pragma once

#include <cstdint>

#include "fibers.h"

namespace shim {

// ---- barriers in memory ----

void mbarrier_init(uint64_t *barrier, int count, place at);
// fence.mbarrier_init and fence.proxy.async of the thread that initialised them.
void mbarrier_fence_init();
void mbarrier_arrive(uint64_t *barrier, place at);
// Arrives, and the phase also waits for `bytes` of copies.
void mbarrier_expect(uint64_t *barrier, int bytes, place at);
// Waits until the phase of this parity has ended.
void mbarrier_wait(uint64_t *barrier, int parity, place at);

// bar.sync with a number and a count of threads, whole warps.
void named_barrier(int number, int threads, place at);

// ---- copies of tiles ----

enum { TENSOR_MAP_WORDS = 16, TENSOR_MAP_DIMS = 5 };

// What the emulated cuTensorMapEncodeTiled writes; only it and the copies look inside.
struct tensor_map {
  uint64_t magic;
  unsigned char *base;
  uint32_t rank, swizzled;  // swizzled: bytes, or 0
  uint64_t dim[TENSOR_MAP_DIMS];
  uint64_t stride[TENSOR_MAP_DIMS - 1];  // bytes
  uint16_t box[TENSOR_MAP_DIMS];
};
static_assert(sizeof(tensor_map) <= TENSOR_MAP_WORDS * sizeof(uint64_t), "as large as CUDA's");

// The function that cudaGetDriverEntryPointByVersion gives: the same arguments and checks as the
// driver's, for 2-byte elements; 0, or 1 for what the driver refuses.
int encode_tensor_map(void *map, int type, uint32_t rank, void *base, const uint64_t *dim,
                      const uint64_t *stride, const uint32_t *box, const uint32_t *element_stride,
                      int interleave, int swizzle, int promotion, int fill);

// Copies the box at `first` (innermost first) to shared memory; what lies outside is zero.
void copy_tile(void *shared, const void *map, const int *first, int rank, uint64_t *barrier,
               place at);

// ---- products of warpgroups: d [64, n] += a [64, 16] b [16, n] in bf16 ----

struct warpgroup_product {
  float *d;  // the lane's n / 2 sums
  int n;
  const uint32_t *a;  // the lane's 4 registers, or null
  uint64_t a_descriptor, b_descriptor;
  bool add;           // else d is overwritten
  bool b_transposed;  // b lies with n innermost
};

void wgmma(const warpgroup_product &product, place at);
void wgmma_fence(place at);
void wgmma_commit(place at);
// Waits until at most `left` of the warp's groups are under way.
void wgmma_wait(int left, place at);

// ---- for fibers.cc ----

void hopper_begin_block();
void hopper_end_block();
// Lands one tile that is under way; false if there is none.
bool hopper_land_one();

}  // namespace shim
