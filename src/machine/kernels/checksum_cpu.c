// SPDX-License-Identifier: Apache-2.0
// The sum of integers has the same bits in any order, so threads need no order of blocks.
#include <string.h>

#include "kernels/cpu_tables.h"
#include "kernels/tiles.h"
#include "ops/checksum.h"

static uint64_t bits_at(const ot_tensor *x, int64_t bytes, int64_t i) {
  uint64_t bits = 0;
  memcpy(&bits, (const char *)x->data + i * bytes, (size_t)bytes);
  return bits;
}

static uint64_t term_of(uint64_t bits, int64_t i) {
  uint64_t z = bits + ((uint64_t)i + 1) * UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}

static void checksum(const ot_kernel_call *call) {
  const ot_tensor *const x = &call->in[0];
  const int64_t elements = ot_type_elements(&x->type);
  const int64_t bytes = ot_dtype_bytes(x->type.dtype);
  uint64_t *const s = call->out[0].data;
  uint64_t total = 0;
#pragma omp parallel for num_threads(ot_threads_for(call, elements)) reduction(+ : total)
  for (int64_t i = 0; i < elements; i++) total += term_of(bits_at(x, bytes, i), i);
  *s = call->attributes->accumulate ? *s + total : total;
}

const ot_kernel_entry OT_KERNEL(ot_checksum_cpu)[] = {
    {OT_OP_CHECKSUM, checksum},
    {OT_OP_COUNT, NULL},
};
