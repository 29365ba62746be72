// SPDX-License-Identifier: Apache-2.0
// Values from a hash, reductions from three loops.
#include "support/comm_values.h"

comm_members comm_world_of(const ot_comm *comm) {
  comm_members all = {
      .kind = OT_GROUP_WORLD, .size = ot_comm_size(comm), .index = ot_comm_rank(comm)};
  for (int i = 0; i < all.size; i++) all.ranks[i] = i;
  return all;
}

static uint64_t hash(uint64_t x) {
  x ^= x >> 31;
  x *= 0x7fb5d329728ea185u;
  x ^= x >> 27;
  x *= 0x81dadef4bc2dd44du;
  return x ^ (x >> 33);
}

void comm_value(int rank, int64_t element, ot_dtype dtype, void *out) {
  const uint64_t bits = hash((uint64_t)rank * 1000003u + (uint64_t)element * 2654435761u + 17u);
  const double fraction = (double)(bits >> 40) / (double)(1 << 24) - 0.5;
  const double power = (double)(1ll << bits % 41) / (double)(1 << 20);
  const double real = fraction * power;
  const float narrow = (float)real;
  const uint16_t bf16 = ot_bf16_from_float(narrow);
  const int32_t i32 = (int32_t)bits;
  const int64_t i64 = (int64_t)bits;
  const void *const from = dtype == OT_F32    ? (const void *)&narrow
                           : dtype == OT_F64  ? (const void *)&real
                           : dtype == OT_BF16 ? (const void *)&bf16
                           : dtype == OT_I32  ? (const void *)&i32
                                              : (const void *)&i64;
  memcpy(out, from, (size_t)ot_dtype_bytes(dtype));
}

void comm_values(int rank, int64_t first, int64_t count, ot_dtype dtype, void *out) {
  const int64_t bytes = ot_dtype_bytes(dtype);
  for (int64_t e = 0; e < count; e++) {
    comm_value(rank, first + e, dtype, (char *)out + e * bytes);
  }
}

static double read_real(int rank, int64_t element, ot_dtype dtype) {
  unsigned char raw[8];
  comm_value(rank, element, dtype, raw);
  float narrow;
  double wide;
  uint16_t bf16;
  memcpy(&narrow, raw, sizeof narrow);
  memcpy(&wide, raw, sizeof wide);
  memcpy(&bf16, raw, sizeof bf16);
  return dtype == OT_F64 ? wide : (double)(dtype == OT_F32 ? narrow : ot_bf16_to_float(bf16));
}

static double as_type(double value, ot_dtype dtype) {
  if (dtype == OT_F64) return value;
  if (dtype == OT_F32) return (double)(float)value;
  return (double)ot_bf16_to_float(ot_bf16_from_float((float)value));
}

// Adding two floats in double and rounding to float equals the float sum (53 >= 2 * 24 + 2).
static void real_sum(const ot_comm_call *call, const comm_members *m, int64_t element,
                     double *out) {
  double sum = read_real(m->ranks[0], element, call->dtype);
  for (int r = 1; r < m->size; r++) {
    sum = as_type(sum + read_real(m->ranks[r], element, call->dtype), call->sum);
    if (call->sum_on_wire) sum = as_type(sum, call->dtype);
  }
  *out = sum;
}

static void whole_sum(const ot_comm_call *call, const comm_members *m, int64_t element,
                      uint64_t *out) {
  *out = 0;
  for (int r = 0; r < m->size; r++) {
    uint64_t x = 0;
    comm_value(m->ranks[r], element, call->dtype, &x);
    *out += x;
  }
}

void comm_expected_sum(const ot_comm_call *call, const comm_members *m, int64_t element,
                       const void *before, void *out) {
  if (call->sum == OT_I32 || call->sum == OT_I64) {
    uint64_t sum, old = 0;
    whole_sum(call, m, element, &sum);
    const size_t bytes = (size_t)ot_dtype_bytes(call->sum);
    if (call->accumulate) memcpy(&old, before, bytes);
    sum += old;
    memcpy(out, &sum, bytes);
    return;
  }
  double sum, wide_old;
  float narrow_old;
  real_sum(call, m, element, &sum);
  if (call->accumulate && call->sum == OT_F64) {
    memcpy(&wide_old, before, sizeof wide_old);
    sum = wide_old + sum;
  } else if (call->accumulate) {
    memcpy(&narrow_old, before, sizeof narrow_old);
    sum = as_type((double)narrow_old + sum, OT_F32);
  }
  const float narrow = (float)sum;
  memcpy(out, call->sum == OT_F64 ? (const void *)&sum : (const void *)&narrow,
         (size_t)ot_dtype_bytes(call->sum));
}
