// SPDX-License-Identifier: Apache-2.0
// Gaussian process regression (Rasmussen and Williams 2006, section 2.2): with the covariance K of
// the rows, a = K^-1 y corrects configuration p by the sum of k(p, i) a_i. Outliers have the
// weights of Student's t with 4 degrees (Lange, Little and Taylor 1989).
#include "advise/calibrate.h"

#include "base/extremes.h"
#include "base/math.h"

static const double MOST = 0.6;  // of a logarithm: beyond it is another mistake
enum { ROUNDS = 4, DEGREES = 4 };
static const double QUANTILE_95 = 2.776;  // Student's t, 4 degrees

static double clipped(double y) { return ot_larger(-MOST, ot_smaller(y, MOST)); }

static double covariance_of(const ot_traits *a, const ot_traits *b) {
  const ot_covariance c = ot_traits_covariance(a, b);
  return ot_covariance_sum(&c);
}

void ot_calibrating_row_find(const ot_job *job, const ot_estimate *estimate, double log_ratio,
                             ot_calibrating_row *out) {
  ot_doubt doubt;
  ot_doubt_find(&(ot_doubt_request){.job = job, .candidate = &estimate->candidate}, &doubt);
  *out = (ot_calibrating_row){.log_ratio = log_ratio, .variance = doubt.step_variance};
  ot_traits_find(job, estimate, &out->traits);
}

// ---- linear equations ----

// The lower triangle of the Cholesky factor, in place of that of `matrix` [n][n].
static void factorise(double *matrix, int n) {
  for (int i = 0; i < n; i++) {
    for (int j = 0; j <= i; j++) {
      double sum = matrix[i * n + j];
      for (int k = 0; k < j; k++) sum -= matrix[i * n + k] * matrix[j * n + k];
      matrix[i * n + j] = i == j ? ot_sqrt(sum) : sum / matrix[j * n + j];
    }
  }
}

// x [n]: right hand sides, then L^-1 x.
static void solve_lower(const double *lower, int n, double *x) {
  for (int i = 0; i < n; i++) {
    for (int k = 0; k < i; k++) x[i] -= lower[i * n + k] * x[k];
    x[i] /= lower[i * n + i];
  }
}

// x [n]: right hand sides, then L^-T x.
static void solve_upper(const double *lower, int n, double *x) {
  for (int i = n - 1; i >= 0; i--) {
    for (int k = i + 1; k < n; k++) x[i] -= lower[k * n + i] * x[k];
    x[i] /= lower[i * n + i];
  }
}

// ---- the process ----

// So that the mean variance of the rows is that which their predictions claim.
static double scale_of(const ot_calibration *c) {
  double claimed = 0, modelled = 0;
  for (int i = 0; i < c->count; i++) {
    claimed += c->rows[i].variance;
    modelled += covariance_of(&c->rows[i].traits, &c->rows[i].traits) + ot_doubt_noise;
  }
  return claimed > 0 ? claimed / modelled : 1;
}

// The pulls for the weights so far.
static void find_pulls(ot_calibration *c) {
  const int n = c->count;
  double pull[OT_MOST_CALIBRATING];
  for (int i = 0; i < n; i++) {
    pull[i] = clipped(c->rows[i].log_ratio) / c->scale;
    for (int j = 0; j <= i; j++) {
      c->lower[i * n + j] = covariance_of(&c->rows[i].traits, &c->rows[j].traits);
    }
    c->lower[i * n + i] += ot_doubt_noise / c->rows[i].weight;
  }
  factorise(c->lower, n);
  solve_lower(c->lower, n, pull);
  solve_upper(c->lower, n, pull);
  for (int i = 0; i < n; i++) c->rows[i].pull = pull[i];
}

// ln of the correction of a configuration.
static double correction_of(const ot_calibration *c, const ot_traits *traits) {
  double sum = 0;
  for (int i = 0; i < c->count; i++) {
    sum += c->scale * c->rows[i].pull * covariance_of(traits, &c->rows[i].traits);
  }
  return sum;
}

// Residuals, and the weights that they give.
static void find_weights(ot_calibration *c) {
  const double noise = c->scale * ot_doubt_noise;
  for (int i = 0; i < c->count; i++) {
    ot_calibrating_row *const row = &c->rows[i];
    row->residual = row->log_ratio - correction_of(c, &row->traits);
    row->weight = (DEGREES + 1) / (DEGREES + row->residual * row->residual / noise);
  }
}

static void find_factors(ot_calibration *c) {
  const ot_traits compute = {.device = "", .exposed = 0}, exposed = {.device = "", .exposed = 1};
  double logarithm[2] = {0};
  for (int i = 0; i < c->count; i++) {
    const ot_calibrating_row *const row = &c->rows[i];
    logarithm[0] += row->pull * ot_traits_covariance(&compute, &row->traits).compute;
    logarithm[1] += row->pull * ot_traits_covariance(&exposed, &row->traits).exposed;
  }
  c->compute = ot_exp(c->scale * logarithm[0]);
  c->exposed = ot_exp(c->scale * logarithm[1]);
}

void ot_calibration_find(ot_calibration *calibration) {
  ot_calibration *const c = calibration;
  c->scale = scale_of(c);
  for (int i = 0; i < c->count; i++) c->rows[i].weight = 1;
  for (int round = 0; round < ROUNDS; round++) {
    find_pulls(c);
    find_weights(c);
  }
  find_pulls(c);
  find_factors(c);
  const double most = QUANTILE_95 * ot_sqrt(c->scale * ot_doubt_noise);
  for (int i = 0; i < c->count; i++) {
    ot_calibrating_row *const row = &c->rows[i];
    row->residual = row->log_ratio - correction_of(c, &row->traits);
    const bool apart = row->residual > most || row->residual < -most;
    row->contradicts = apart && c->count > 1;
  }
}

ot_correction ot_calibration_correction(const ot_calibration *calibration,
                                        const ot_traits *traits) {
  const ot_calibration *const c = calibration;
  double known[OT_MOST_CALIBRATING], shape = 0, explained = 0;
  for (int i = 0; i < c->count; i++) {
    const ot_covariance covariance = ot_traits_covariance(traits, &c->rows[i].traits);
    known[i] = ot_covariance_sum(&covariance);
    shape += c->scale * c->rows[i].pull * covariance.shape;
  }
  solve_lower(c->lower, c->count, known);
  for (int i = 0; i < c->count; i++) explained += known[i] * known[i];
  const double before = covariance_of(traits, traits) + ot_doubt_noise;
  return (ot_correction){ot_exp(shape), c->scale * (before - explained)};
}

// The least factor of any configuration.
static double least_factor(const ot_calibration *calibration) {
  double sum = 0;
  for (int i = 0; i < calibration->count; i++) {
    const ot_calibrating_row *const row = &calibration->rows[i];
    const double most = ot_traits_covariance(&row->traits, &row->traits).shape;
    if (row->pull < 0) sum += calibration->scale * row->pull * most;
  }
  return ot_exp(sum);
}

static ot_correction correct(const ot_calibration *calibration, const ot_job *job,
                             const ot_estimate *estimate) {
  ot_traits traits;
  ot_traits_find(job, estimate, &traits);
  return ot_calibration_correction(calibration, &traits);
}

static double factor_of(const void *context, const ot_job *job, const ot_candidate *candidate) {
  return correct(context, job, &(ot_estimate){.candidate = *candidate}).factor;
}

ot_step_correction ot_calibration_of_steps(const ot_calibration *calibration) {
  return (ot_step_correction){factor_of, calibration, least_factor(calibration)};
}

double ot_calibration_variance(const ot_calibration *calibration, const ot_job *job,
                               const ot_estimate *estimate) {
  return correct(calibration, job, estimate).variance;
}

// ---- the cluster ----

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
  cluster->basis = OT_BASIS_CALIBRATED;
}
