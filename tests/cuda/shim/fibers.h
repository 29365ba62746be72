// SPDX-License-Identifier: Apache-2.0
// Grids of an emulated device: blocks run one after the other on the calling OS thread, and the
// threads of a block are fibers that switch where they wait for each other. Threads that never wait
// share one fiber. One grid runs at a time in a process (the runtime's lock). What a GPU leaves
// undefined is made visible:
//   - Blocks, and threads between two waits, run in an order that the test picks.
//   - Dynamic shared memory starts as NaN, with a canary after it. Static shared memory keeps what
//     the block before left (zeros in the first), because its size is not known here.
//   - A barrier in divergent code, lanes of a warp that wait for each other in different
//     operations, wrong masks, lanes that exit while others wait for them, addresses that are not
//     mapped, and deadlocks end the process with a message that names kernel, block and thread.
// Not covered: blocks that wait for each other (they hang), memory ordering, timing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "shim_control.h"
#include "vector_types.h"

// As in CUDA, of the thread that runs.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
constexpr int warpSize = 32;

namespace shim {

// A line of a kernel.
struct place {
  const char *file;
  int line;
};

// Ends the process with a message that names the kernel, the block, the thread and `at`.
[[noreturn]] void fail(place at, const char *format, ...) __attribute__((format(printf, 2, 3)));

// The lane of the running thread in its warp, and its number in its block.
int lane();
int thread_number();

// The block's dynamic shared memory, 1024-byte aligned.
unsigned char *dynamic_shared();

// Does the work of all lanes of `mask`: `arguments[lane]` is what each lane passed to `together`.
using warp_work = void (*)(void *const *arguments, uint32_t mask);

// A warp operation: waits until all lanes of `mask` are here with the same work, which the last to
// arrive then does for all. `name` stands in messages.
void together(uint32_t mask, warp_work work, void *argument, const char *name, place at);

struct votes {
  int yes, all;
};
// Waits until all threads of the block that have not exited are here, and counts their predicates.
votes barrier(bool predicate, const char *name, place at);

// For operations with waits of their own (hopper.h): the running thread waits until wake() names
// it, which may only name threads that wait here.
void park(const char *name, place at);
void wake(int thread);
// How the test wants undefined orders, and a number below `limit` to draw them.
shim_order thread_order();
uint32_t random_below(uint32_t limit);
size_t dynamic_shared_bytes();

struct launch_shape {
  const char *kernel;  // its name, for messages
  dim3 grid, block;
  size_t shared_bytes;
};

// Runs `body` for each thread of the grid. The shape must be valid.
void run_grid(const launch_shape &shape, const std::function<void()> &body);

void set_thread_order(shim_order order, uint64_t seed);

// Whether the calling code is a thread of a kernel; if so, prints kernel, block and thread to
// stderr.
bool print_running_thread();

// xorshift64*.
class random_numbers {
 public:
  explicit random_numbers(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u | 1) {}
  // Uniform below `limit`, which is at most 2^31.
  uint32_t below(uint32_t limit);

 private:
  uint64_t state_;
};

}  // namespace shim
