// SPDX-License-Identifier: Apache-2.0
// Initial weights in device memory: the operations of ot_rng_normal (base/rng.c), in its order.
#include "kernels/cuda/kernel.cuh"
#include "kernels/cuda/philox.cuh"

extern "C" {
#include "base/math_lanes.h"
#include "base/rng.h"
#include "kernels/initial.h"
}

namespace {

enum { THREADS = 256 };

struct initial_operands {
  ot_initial_draw draw;
  uint64_t key;  // of the seed and the stream
  int64_t first, end;
  char *arena;
};

// The 53 upper bits of high << 32 | low.
__device__ __forceinline__ double upper_bits(uint32_t low, uint32_t high, uint64_t added) {
  return (double)((((uint64_t)high << 32 | low) >> 11) + added) * 0x1p-53;
}

__device__ __forceinline__ double normal_at(uint64_t key, uint64_t counter) {
  uint32_t word[4];
  ot_philox(key, 0, (uint32_t)(counter >> 32), (uint32_t)counter, word);
  const double u = upper_bits(word[0], word[1], 1), v = upper_bits(word[2], word[3], 0);
  return sqrt(-2 * log_positive(u)) * circular(0x1.921fb54442d18p+2 * v, 1);
}

static __global__ void __launch_bounds__(THREADS) initial_kernel(initial_operands o) {
  const ot_initial_draw &d = o.draw;
  const int64_t i = o.first + (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (i >= o.end) return;
  double value = d.scale;
  if (d.normal) {
    const int64_t row = i / d.columns, column = i - row * d.columns;
    value *= normal_at(o.key, d.counter + (uint64_t)row * d.row_step +
                                  (uint64_t)column * d.column_step);
  }
#pragma unroll
  for (int k = 0; k < OT_INITIAL_TARGETS; k++) {
    const ot_initial_target &to = d.target[k];
    if (k >= d.num_targets || i < to.first || i >= to.end) continue;
    ot_any<double>{o.arena + to.offset, to.dtype}.set(i - to.first, value);
  }
}

}  // namespace

extern "C" void ot_initial_draw_cuda(void *stream, const ot_initial_draw *draw, void *arena) {
  initial_operands o = {*draw, ot_rng_key(draw->seed, draw->stream), 0, 0, (char *)arena};
  ot_initial_draw_range(draw, &o.first, &o.end);
  if (o.first >= o.end) return;
  OT_LAUNCH(initial_kernel, ot_blocks(o.end - o.first, THREADS), THREADS, 0, stream, o);
}
