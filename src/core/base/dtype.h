// SPDX-License-Identifier: Apache-2.0
// Element types of tensors, their sizes and spellings, and the one conversion that is not a cast:
// bf16, a storage type that no back end computes in.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef enum ot_dtype {
  OT_F32,
  OT_F64,
  OT_BF16,
  OT_F16,  // storage in files only
  OT_I32,
  OT_I64,
  OT_U8,
  OT_F8,  // e4m3; only in cost models of devices that have it
  OT_DTYPE_COUNT,
} ot_dtype;

// Bytes of one element.
int64_t ot_dtype_bytes(ot_dtype dtype);
// "fp32", "fp64", "bf16", "fp16", "int32", "int64", "uint8", "fp8".
const char *ot_dtype_name(ot_dtype dtype);
// Accepts our names and HF's (float32, bfloat16, ...). False when unknown.
bool ot_dtype_parse(const char *text, ot_dtype *dtype);
// True for the types that gradients can have.
bool ot_dtype_is_real(ot_dtype dtype);
// The unit roundoff of values that are stored as `dtype`: 2^-53 for fp64, 2^-12 for fp16, 2^-9 for
// bf16, 2^-24 for all others.
double ot_dtype_roundoff(ot_dtype dtype);

static inline float ot_bf16_to_float(uint16_t bits) {
  const uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return value;
}

// Rounds to nearest, ties to even; NaN stays NaN.
static inline uint16_t ot_bf16_from_float(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits >> 16) | 0x40u);
  return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
