// SPDX-License-Identifier: Apache-2.0
// The element type of a *_cpu.c file: each is compiled twice, with OT_REAL_BITS 32 and 64.
// Everything in such a file is static except its kernel table, whose name gets the suffix. Tensors
// may be stored in another type, usually bf16: kernels process a row in tiles of OT_TILE elements,
// get each tile with ot_row_in and ot_row_out, and finish it with ot_row_done. When storage and
// compute type agree, these return the tensor's own memory without a copy.
#pragma once

#include <stdint.h>

#include "base/dtype.h"

#ifndef OT_REAL_BITS
#define OT_REAL_BITS 32
#endif

#if OT_REAL_BITS == 64
typedef double ot_real;
#define OT_REAL_DTYPE OT_F64
#define OT_KERNEL(name) name##_f64
static inline ot_real ot_real_sqrt(ot_real x) { return __builtin_sqrt(x); }
#else
typedef float ot_real;
#define OT_REAL_DTYPE OT_F32
#define OT_KERNEL(name) name##_f32
static inline ot_real ot_real_sqrt(ot_real x) { return __builtin_sqrtf(x); }
#endif

enum { OT_TILE = 1024 };

// Widens or narrows elements [first, first + n) of `data`, stored as `dtype` (a real type but
// fp16), into `row` [n].
static inline void ot_load_row(ot_real *restrict row, const void *restrict data, ot_dtype dtype,
                               int64_t first, int64_t n) {
  if (dtype == OT_BF16) {
    const uint16_t *const from = (const uint16_t *)data + first;
    for (int64_t i = 0; i < n; i++) row[i] = (ot_real)ot_bf16_to_float(from[i]);
  } else if (dtype == OT_F32) {
    const float *const from = (const float *)data + first;
    for (int64_t i = 0; i < n; i++) row[i] = (ot_real)from[i];
  } else {
    const double *const from = (const double *)data + first;
    for (int64_t i = 0; i < n; i++) row[i] = (ot_real)from[i];
  }
}

// The inverse of ot_load_row: rounds `row` [n] to nearest even into elements [first, first + n).
static inline void ot_store_row(void *restrict data, ot_dtype dtype, int64_t first,
                                const ot_real *restrict row, int64_t n) {
  if (dtype == OT_BF16) {
    uint16_t *const to = (uint16_t *)data + first;
    for (int64_t i = 0; i < n; i++) to[i] = ot_bf16_from_float((float)row[i]);
  } else if (dtype == OT_F32) {
    float *const to = (float *)data + first;
    for (int64_t i = 0; i < n; i++) to[i] = (float)row[i];
  } else {
    double *const to = (double *)data + first;
    for (int64_t i = 0; i < n; i++) to[i] = (double)row[i];
  }
}

// Elements [first, first + n) of `data` for reading: its own memory if stored as ot_real, else
// `scratch` [n], filled.
static inline const ot_real *ot_row_in(const void *data, ot_dtype dtype, int64_t first, int64_t n,
                                       ot_real *scratch) {
  if (dtype == OT_REAL_DTYPE) return (const ot_real *)data + first;
  ot_load_row(scratch, data, dtype, first, n);
  return scratch;
}

// Destination of elements from `first` on: the tensor's own memory, or `scratch`.
static inline ot_real *ot_row_out(void *data, ot_dtype dtype, int64_t first, ot_real *scratch) {
  return dtype == OT_REAL_DTYPE ? (ot_real *)data + first : scratch;
}

// Finishes ot_row_out: narrows `row` [n] into the tensor unless it is the tensor's memory.
static inline void ot_row_done(void *data, ot_dtype dtype, int64_t first, const ot_real *row,
                               int64_t n) {
  if (dtype != OT_REAL_DTYPE) ot_store_row(data, dtype, first, row, n);
}
