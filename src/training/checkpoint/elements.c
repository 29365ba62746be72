// SPDX-License-Identifier: Apache-2.0
// Real dtypes are converted through double, which represents each exactly, and rounded once; the
// two pairs that move gigabytes (fp32 <-> bf16) are direct.
#include "checkpoint/elements.h"

#include <string.h>

#include "base/status.h"

enum { BLOCK = 1024 };

// Mantissa bits, smallest exponent of a normal number, bits of infinity.
typedef struct narrow_format {
  int mantissa_bits;
  int exponent_min;
  uint16_t infinity;
} narrow_format;

static const narrow_format half_format = {10, -14, 0x7c00};
static const narrow_format brain_format = {7, -126, 0x7f80};

static uint16_t narrow(double value, const narrow_format *format) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  const uint16_t sign = (uint16_t)(bits >> 63 << 15);
  const int exponent = (int)(bits >> 52 & 0x7ff) - 1023;
  const uint64_t fraction = bits & ((1ULL << 52) - 1);
  if (exponent == 1024) {
    const uint16_t quiet = (uint16_t)(1u << (format->mantissa_bits - 1));
    return sign | format->infinity | (fraction != 0 ? quiet : 0);
  }
  const bool normal = exponent >= format->exponent_min;
  const int shift = 52 - format->mantissa_bits + (normal ? 0 : format->exponent_min - exponent);
  if (shift > 53) return sign;
  const uint64_t mantissa = fraction | 1ULL << 52;
  const uint64_t rest = mantissa & ((1ULL << shift) - 1);
  const uint64_t tie = 1ULL << (shift - 1);
  uint64_t rounded = mantissa >> shift;
  rounded += rest > tie || (rest == tie && (rounded & 1) != 0);
  // The leading one and a carry out of the rounding both add to the exponent field.
  if (normal) rounded += (uint64_t)(exponent - format->exponent_min) << format->mantissa_bits;
  return sign | (uint16_t)(rounded < format->infinity ? rounded : format->infinity);
}

static double half_to_double(uint16_t bits) {
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  const int exponent = bits >> 10 & 31;
  const int fraction = bits & 1023;
  if (exponent == 0) return sign * fraction * 0x1p-24;
  const uint64_t wide_exponent = exponent == 31 ? 0x7ff : (uint64_t)(exponent - 15 + 1023);
  const uint64_t wide =
      (uint64_t)(bits >> 15) << 63 | wide_exponent << 52 | (uint64_t)fraction << 42;
  double value;
  memcpy(&value, &wide, sizeof value);
  return value;
}

static void widen_block(ot_dtype from, const void *source, double *wide, int count) {
  const float *const f32 = source;
  const double *const f64 = source;
  const uint16_t *const f16 = source;
  switch (from) {
    case OT_F32:
      for (int i = 0; i < count; i++) wide[i] = f32[i];
      return;
    case OT_F64:
      memcpy(wide, f64, (size_t)count * sizeof *wide);
      return;
    case OT_BF16:
      for (int i = 0; i < count; i++) wide[i] = ot_bf16_to_float(f16[i]);
      return;
    case OT_F16:
      for (int i = 0; i < count; i++) wide[i] = half_to_double(f16[i]);
      return;
    default:
      OT_UNREACHABLE();
  }
}

static void narrow_block(const double *wide, ot_dtype to, void *target, int count) {
  float *const f32 = target;
  uint16_t *const f16 = target;
  switch (to) {
    case OT_F32:
      for (int i = 0; i < count; i++) f32[i] = (float)wide[i];
      return;
    case OT_F64:
      memcpy(target, wide, (size_t)count * sizeof *wide);
      return;
    case OT_BF16:
      for (int i = 0; i < count; i++) f16[i] = narrow(wide[i], &brain_format);
      return;
    case OT_F16:
      for (int i = 0; i < count; i++) f16[i] = narrow(wide[i], &half_format);
      return;
    default:
      OT_UNREACHABLE();
  }
}

bool ot_elements_convertible(ot_dtype from, ot_dtype to) {
  return from == to || (ot_dtype_is_real(from) && ot_dtype_is_real(to));
}

void ot_elements_convert(ot_dtype from, const void *source, ot_dtype to, void *target,
                         int64_t count) {
  OT_ASSERT(ot_elements_convertible(from, to));
  if (from == to) {
    memmove(target, source, (size_t)(count * ot_dtype_bytes(from)));
    return;
  }
  if (from == OT_F32 && to == OT_BF16) {
    for (int64_t i = 0; i < count; i++)
      ((uint16_t *)target)[i] = ot_bf16_from_float(((const float *)source)[i]);
    return;
  }
  if (from == OT_BF16 && to == OT_F32) {
    for (int64_t i = 0; i < count; i++)
      ((float *)target)[i] = ot_bf16_to_float(((const uint16_t *)source)[i]);
    return;
  }
  double wide[BLOCK];
  const char *from_bytes = source;
  char *to_bytes = target;
  for (int64_t i = 0; i < count; i += BLOCK) {
    const int part = count - i < BLOCK ? (int)(count - i) : BLOCK;
    widen_block(from, from_bytes + i * ot_dtype_bytes(from), wide, part);
    narrow_block(wide, to, to_bytes + i * ot_dtype_bytes(to), part);
  }
}
