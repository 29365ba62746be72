// SPDX-License-Identifier: Apache-2.0
// Tiles and waves: NVIDIA, "Matrix Multiplication Background User's Guide", sections on tile and
// wave quantisation. A tile of a x b loads a + b per a b multiplied, so smaller tiles reach less of
// the peak: shares of cuBLAS kernels on large GEMMs, measured with CUTLASS's profiler.
#include "simulate/price_gemm.h"

#include "base/extremes.h"

typedef struct tile {
  double rows, columns, share;
} tile;

static const tile tiles[] = {
    {256, 128, 1}, {128, 256, 1}, {128, 128, 0.93}, {128, 64, 0.75}, {64, 64, 0.5}};

enum {
  MOST_CUTS = 4,       // split-K factor
  LEAST_DEPTH = 512,   // depth of a split
  STAGE_DEPTH = 32,    // depth loaded before the first multiplication
  ALIGNED_BYTES = 16,  // of operand rows: NVIDIA's guide, "Tensor Core requirements"
};

static double share_of(double share) { return share > 0 ? share : 1; }

static double rate_of(const ot_device_kind *d, ot_dtype type) {
  return d->flops[type] * share_of(d->matrix_efficiency) * ot_device_clock_share(d);
}

static double ceiling(double value) {
  const double whole = (double)(int64_t)value;
  return whole < value ? whole + 1 : whole;
}

double ot_gemm_flops(const ot_gemm_shape *p) {
  return 2 * p->batch * p->rows * p->columns * p->depth;
}

// Whether the contiguous dimensions of all three passes over a layer are aligned.
static bool is_aligned(const ot_gemm_shape *p) {
  const int64_t step = ALIGNED_BYTES / ot_dtype_bytes(p->type);
  return (int64_t)p->depth % step == 0 && (int64_t)p->columns % step == 0;
}

static double tile_s(const ot_device_kind *d, const ot_gemm_shape *p, tile t, int cuts) {
  const double count =
      ceiling(p->rows / t.rows) * ceiling(p->columns / t.columns) * p->batch * cuts;
  const double waves = ceiling(count / d->processors);
  const double depth = p->depth / cuts + STAGE_DEPTH;
  const double rate = rate_of(d, p->type) * t.share;
  const double s = waves * d->processors * 2 * t.rows * t.columns * depth / rate;
  // Split-K partial sums are fp32: each is written and read again.
  const double sums = cuts > 1 ? 4 * p->batch * p->rows * p->columns * cuts : 0;
  return s + sums / (d->memory_bytes_per_s * share_of(d->memory_efficiency));
}

double ot_gemm_s(const ot_device_kind *d, const ot_gemm_shape *p) {
  const double rate = rate_of(d, p->type);
  const double each = (double)ot_dtype_bytes(p->type);
  const double result = p->result_bytes > 0 ? p->result_bytes : each;
  const double bytes = p->batch * (each * (p->rows * p->depth + p->depth * p->columns) +
                                   result * p->rows * p->columns);
  const double memory_s = bytes / (d->memory_bytes_per_s * share_of(d->memory_efficiency));
  double best_s = -1;
  if (d->processors == 0) best_s = ot_gemm_flops(p) / rate;
  for (int i = 0; d->processors > 0 && i < (int)(sizeof tiles / sizeof *tiles); i++) {
    for (int cuts = 1; cuts <= MOST_CUTS; cuts *= 2) {
      if (cuts > 1 && p->depth / cuts < LEAST_DEPTH) break;
      const double s = tile_s(d, p, tiles[i], cuts);
      if (best_s < 0 || s < best_s) best_s = s;
    }
  }
  if (!is_aligned(p)) best_s /= share_of(d->unaligned_efficiency);
  return ot_larger(best_s, memory_s);
}
