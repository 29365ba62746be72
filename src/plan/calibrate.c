// SPDX-License-Identifier: Apache-2.0
// Bayesian linear regression with two unknowns: y = (1 - x) a + x b + noise, a and b normal around
// 0. Outliers have the weights of Student's t with 4 degrees (Lange, Little and Taylor 1989).
#include "plan/calibrate.h"

#include "base/extremes.h"
#include "base/math.h"

// Deviations before any measurement: of a, of b, and of the noise of a step; from published runs
// (plan/doubt.c).
static const double COMPUTE = 0.092, EXPOSED = 0.587, NOISE = 0.090;
static const double MOST = 0.6;  // of a logarithm: beyond it is another mistake
enum { ROUNDS = 4, DEGREES = 4 };
static const double QUANTILE_95 = 2.776;  // Student's t, 4 degrees

double ot_calibrating_exposed(const ot_estimate *estimate) {
  double exposed_s = 0;
  for (int i = 0; i < OT_TIMELINE_AXES; i++) {
    if (i != OT_TIMELINE_WORLD) exposed_s += estimate->exposed_s[i];
  }
  return estimate->step_s > 0 ? ot_smaller(exposed_s / estimate->step_s, 0.95) : 0;
}

static double clipped(double y) { return ot_larger(-MOST, ot_smaller(y, MOST)); }

// Solves the weighted normal equations for a and b.
static void solve(const ot_calibrating_row *rows, int count, double out[2]) {
  const double noise = NOISE * NOISE;
  double aa = noise / (COMPUTE * COMPUTE), bb = noise / (EXPOSED * EXPOSED), ab = 0, a = 0, b = 0;
  for (int i = 0; i < count; i++) {
    const double w = rows[i].weight, x = rows[i].exposed, y = clipped(rows[i].log_ratio);
    aa += w * (1 - x) * (1 - x);
    ab += w * (1 - x) * x;
    bb += w * x * x;
    a += w * (1 - x) * y;
    b += w * x * y;
  }
  const double determinant = aa * bb - ab * ab;
  out[0] = (bb * a - ab * b) / determinant;
  out[1] = (aa * b - ab * a) / determinant;
}

static double residual_of(const ot_calibrating_row *row, const double factors[2]) {
  return row->log_ratio - (1 - row->exposed) * factors[0] - row->exposed * factors[1];
}

void ot_calibration_find(ot_calibrating_row *rows, int count, ot_calibration *out) {
  double factors[2] = {0}, squares = 0;
  for (int i = 0; i < count; i++) rows[i].weight = 1;
  for (int round = 0; round < ROUNDS; round++) {
    solve(rows, count, factors);
    for (int i = 0; i < count; i++) {
      const double t = residual_of(&rows[i], factors) / NOISE;
      rows[i].weight = (DEGREES + 1) / (DEGREES + t * t);
    }
  }
  solve(rows, count, factors);
  for (int i = 0; i < count; i++) {
    ot_calibrating_row *const row = &rows[i];
    row->residual = residual_of(row, factors);
    row->contradicts = row->residual > QUANTILE_95 * NOISE || row->residual < -QUANTILE_95 * NOISE;
    squares += row->weight * row->residual * row->residual;
  }
  // The noise that is known before counts as one more row.
  const double variance = (squares + NOISE * NOISE) / (count + 1);
  *out = (ot_calibration){ot_exp(factors[0]), ot_exp(factors[1]), ot_sqrt(variance)};
}

// Efficiency 0 stands for 1.
static double scaled(double efficiency, double factor) {
  return ot_smaller(1, (efficiency > 0 ? efficiency : 1) / factor);
}

void ot_calibration_apply(const ot_calibration *calibration, ot_cluster *cluster) {
  ot_device_kind *const d = &cluster->device;
  d->matrix_efficiency = scaled(d->matrix_efficiency, calibration->compute);
  d->memory_efficiency = scaled(d->memory_efficiency, calibration->compute);
  d->attention_efficiency = scaled(d->attention_efficiency, calibration->compute);
  if (d->attention_1_efficiency > 0) {
    d->attention_1_efficiency = scaled(d->attention_1_efficiency, calibration->compute);
  }
  if (d->attention_2_efficiency > 0) {
    d->attention_2_efficiency = scaled(d->attention_2_efficiency, calibration->compute);
  }
  for (int i = 0; i < cluster->num_levels; i++) {
    ot_link_level *const level = &cluster->level[i];
    level->efficiency = scaled(level->efficiency, calibration->exposed);
  }
  cluster->basis = OT_BASIS_MEASURED;
}
