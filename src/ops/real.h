// SPDX-License-Identifier: Apache-2.0
// The element type that a *_cpu.c file is compiled for: each is built twice, with OT_REAL_BITS 32 and
// 64. Everything in such a file is static but its kernel functions, whose names get the suffix.
// Tensors stored as bf16 are widened and narrowed row by row with ot_load_row and ot_store_row.
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
#else
typedef float ot_real;
#define OT_REAL_DTYPE OT_F32
#define OT_KERNEL(name) name##_f32
#endif
