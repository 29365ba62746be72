// SPDX-License-Identifier: Apache-2.0
// A double represents every number of every narrower format, so rounding is scaling by a power of
// two and back.
#include "audit/rounding.h"

#include <math.h>
#include <string.h>

#include "base/status.h"

const ot_format ot_format_fp64 = {"fp64", 53, -1022, 0x1p-1022, 0x1.fffffffffffffp+1023};
const ot_format ot_format_fp32 = {"fp32", 24, -126, 0x1p-126, 0x1.fffffep+127};
const ot_format ot_format_fp16 = {"fp16", 11, -14, 0x1p-14, 65504};
const ot_format ot_format_bf16 = {"bf16", 8, -126, 0x1p-126, 0x1.fep+127};
const ot_format ot_format_e4m3 = {"e4m3", 4, -6, 0x1p-6, 448};
const ot_format ot_format_e5m2 = {"e5m2", 3, -14, 0x1p-14, 57344};

const ot_format *ot_format_of(ot_dtype dtype) {
  switch (dtype) {
    case OT_F64:
      return &ot_format_fp64;
    case OT_F32:
      return &ot_format_fp32;
    case OT_BF16:
      return &ot_format_bf16;
    case OT_F16:
      return &ot_format_fp16;
    case OT_F8:
      return &ot_format_e4m3;
    case OT_I32:
    case OT_I64:
    case OT_U8:
    case OT_DTYPE_COUNT:
      break;
  }
  OT_UNREACHABLE();
}

double ot_format_ulp(const ot_format *format, double value) {
  const int exponent = value == 0 ? format->min_exponent : ilogb(value);
  const int least = exponent > format->min_exponent ? exponent : format->min_exponent;
  return ldexp(1, least - format->bits + 1);
}

// In the normal range: adds half an ulp to the bits after the last place, and truncates.
static double round_normal(const ot_format *format, double value) {
  const int behind = 53 - format->bits;
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  bits += ((uint64_t)1 << (behind - 1)) - 1 + (bits >> behind & 1);
  bits &= ~(((uint64_t)1 << behind) - 1);
  memcpy(&value, &bits, sizeof value);
  return value;
}

double ot_format_round(const ot_format *format, double value) {
  if (format->bits == 53 || value == 0 || !isfinite(value)) return value;
  double rounded;
  if (fabs(value) >= format->smallest) {
    rounded = round_normal(format, value);
  } else {
    const double ulp = ot_format_ulp(format, value);
    rounded = nearbyint(value / ulp) * ulp;
  }
  return fabs(rounded) > format->largest ? copysign(INFINITY, value) : rounded;
}

const char *ot_reduction_kind_name(ot_reduction_kind kind) {
  static const char *const names[] = {
      [OT_SUM_RING] = "ring",
      [OT_SUM_TREE] = "tree",
      [OT_SUM_EXACT_PARTS] = "float32",
  };
  return names[kind];
}

static double sum_ring(const ot_format *format, const double *values, int64_t count) {
  double sum = values[0];
  for (int64_t i = 1; i < count; i++) sum = ot_format_round(format, sum + values[i]);
  return sum;
}

static double sum_tree(const ot_format *format, double *values, int64_t count) {
  for (int64_t n = count; n > 1; n = (n + 1) / 2) {
    for (int64_t i = 0; i < n / 2; i++) {
      values[i] = ot_format_round(format, values[2 * i] + values[2 * i + 1]);
    }
    if (n % 2 != 0) values[n / 2] = values[n - 1];
  }
  return values[0];
}

static double sum_wide(const double *values, int64_t count) {
  float sum = 0;
  for (int64_t i = 0; i < count; i++) sum += (float)values[i];
  return (double)sum;
}

double ot_reduction_emulate(ot_reduction_kind kind, const ot_format *format, double *values,
                            int64_t count) {
  for (int64_t i = 0; i < count; i++) values[i] = ot_format_round(format, values[i]);
  switch (kind) {
    case OT_SUM_RING:
      return sum_ring(format, values, count);
    case OT_SUM_TREE:
      return sum_tree(format, values, count);
    case OT_SUM_EXACT_PARTS:
      return format->bits > 24 ? ot_reduction_exact(format, values, count)
                               : sum_wide(values, count);
    case OT_SUM_KINDS:
      break;
  }
  OT_UNREACHABLE();
}

double ot_reduction_exact(const ot_format *format, const double *values, int64_t count) {
  double sum = 0, lost = 0;
  for (int64_t i = 0; i < count; i++) {
    const double x = ot_format_round(format, values[i]);
    const double next = sum + x;
    lost += fabs(sum) >= fabs(x) ? (sum - next) + x : (x - next) + sum;
    sum = next;
  }
  return sum + lost;
}
