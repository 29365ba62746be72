// SPDX-License-Identifier: Apache-2.0
// Reductions in blocks that stay in the L1 cache: a block of source 0 is converted to the reduction
// dtype, the others are added in order, and the result is written to the targets. Loops run over
// elements, never over sources, so vectorisation changes no bit; all sources of a block are read
// before a target is written, so a target may be a source.
#include "comm/comm_reduction.h"

#include <stdalign.h>
#include <stddef.h>

#include "base/status.h"

enum { PIECE = 1024 };

typedef void (*array_function)(void *into, const void *from, int count);

// Conversions of a pair (dtype, sum); dtype is that of the sources or targets.
typedef struct {
  ot_dtype dtype, sum;
  array_function widen;   // sum = dtype
  array_function add;     // sum += dtype
  array_function narrow;  // dtype = sum
  array_function round;   // sum = sum rounded to dtype
} adder;

static void copy_4(void *into, const void *from, int count) {
  memcpy(into, from, (size_t)count * 4);
}

static void copy_8(void *into, const void *from, int count) {
  memcpy(into, from, (size_t)count * 8);
}

static void add_f32(void *into, const void *from, int count) {
  float *restrict const sum = into;
  const float *restrict const x = from;
  for (int i = 0; i < count; i++) sum[i] += x[i];
}

static void add_f64(void *into, const void *from, int count) {
  double *restrict const sum = into;
  const double *restrict const x = from;
  for (int i = 0; i < count; i++) sum[i] += x[i];
}

// Integers wrap around.
static void add_i32(void *into, const void *from, int count) {
  uint32_t *restrict const sum = into;
  const uint32_t *restrict const x = from;
  for (int i = 0; i < count; i++) sum[i] += x[i];
}

static void add_i64(void *into, const void *from, int count) {
  uint64_t *restrict const sum = into;
  const uint64_t *restrict const x = from;
  for (int i = 0; i < count; i++) sum[i] += x[i];
}

static void widen_bf16_f32(void *into, const void *from, int count) {
  float *restrict const sum = into;
  const uint16_t *restrict const x = from;
  for (int i = 0; i < count; i++) sum[i] = ot_bf16_to_float(x[i]);
}

static void add_bf16_f32(void *into, const void *from, int count) {
  float *restrict const sum = into;
  const uint16_t *restrict const x = from;
  for (int i = 0; i < count; i++) sum[i] += ot_bf16_to_float(x[i]);
}

static void narrow_bf16_f32(void *into, const void *from, int count) {
  uint16_t *restrict const narrow = into;
  const float *restrict const sum = from;
  for (int i = 0; i < count; i++) narrow[i] = ot_bf16_from_float(sum[i]);
}

static void round_bf16_f32(void *into, const void *from, int count) {
  float *const rounded = into;
  const float *const sum = from;
  for (int i = 0; i < count; i++) rounded[i] = ot_bf16_to_float(ot_bf16_from_float(sum[i]));
}

static void widen_bf16_f64(void *into, const void *from, int count) {
  double *restrict const sum = into;
  const uint16_t *restrict const x = from;
  for (int i = 0; i < count; i++) sum[i] = (double)ot_bf16_to_float(x[i]);
}

static void add_bf16_f64(void *into, const void *from, int count) {
  double *restrict const sum = into;
  const uint16_t *restrict const x = from;
  for (int i = 0; i < count; i++) sum[i] += (double)ot_bf16_to_float(x[i]);
}

// Converts through float, as the kernels of the precision audit store bf16.
static void narrow_bf16_f64(void *into, const void *from, int count) {
  uint16_t *restrict const narrow = into;
  const double *restrict const sum = from;
  for (int i = 0; i < count; i++) narrow[i] = ot_bf16_from_float((float)sum[i]);
}

static void round_bf16_f64(void *into, const void *from, int count) {
  double *const rounded = into;
  const double *const sum = from;
  for (int i = 0; i < count; i++) {
    rounded[i] = (double)ot_bf16_to_float(ot_bf16_from_float((float)sum[i]));
  }
}

static const adder adders[] = {
    {OT_F32, OT_F32, copy_4, add_f32, copy_4, NULL},
    {OT_F64, OT_F64, copy_8, add_f64, copy_8, NULL},
    {OT_I32, OT_I32, copy_4, add_i32, copy_4, NULL},
    {OT_I64, OT_I64, copy_8, add_i64, copy_8, NULL},
    {OT_BF16, OT_F32, widen_bf16_f32, add_bf16_f32, narrow_bf16_f32, round_bf16_f32},
    {OT_BF16, OT_F64, widen_bf16_f64, add_bf16_f64, narrow_bf16_f64, round_bf16_f64},
};

static const adder *find_adder(ot_dtype dtype, ot_dtype sum) {
  for (int i = 0; i < OT_COUNT(adders); i++) {
    if (adders[i].dtype == dtype && adders[i].sum == sum) return &adders[i];
  }
  OT_UNREACHABLE();
}

static const void *source_at(const ot_comm_reduction *job, int source, int64_t element) {
  const int64_t bytes = ot_dtype_bytes(job->dtype);
  return (const char *)job->source(job->context, source) + (job->source_offset + element) * bytes;
}

typedef union {
  alignas(64) double f64[PIECE];
  float f32[PIECE];
  uint64_t i64[PIECE];
  uint32_t i32[PIECE];
} piece;

// Elements [start, start + count) from all sources to all targets; count <= PIECE.
static void reduce_block(const ot_comm_reduction *job, int64_t start, int count) {
  const adder *const how = find_adder(job->dtype, job->sum);
  const adder *const made = find_adder(job->target_dtype, job->sum);
  piece sum;
  how->widen(&sum, source_at(job, 0, start), count);
  for (int s = 1; s < job->num_sources; s++) {
    how->add(&sum, source_at(job, s, start), count);
    if (job->round && how->round) how->round(&sum, &sum, count);
  }
  const int64_t offset = (job->target_offset + start) * ot_dtype_bytes(job->target_dtype);
  for (int t = 0; t < job->num_targets; t++) {
    char *const target = (char *)job->target(job->context, t) + offset;
    if (job->accumulate) made->add(&sum, target, count);
    made->narrow(target, &sum, count);
  }
}

void ot_comm_reduce_run(const ot_comm_reduction *job) {
  OT_ASSERT(!job->accumulate || job->num_targets == 1);
  for (int64_t start = 0; start < job->count; start += PIECE) {
    const int64_t left = job->count - start;
    reduce_block(job, start, left < PIECE ? (int)left : PIECE);
  }
}
