// SPDX-License-Identifier: Apache-2.0
// Figures: maximum likelihood on residuals of published runs that were predicted without reading
// the name of their source, with constants fitted without it; sources have equal weights.
#include "advise/doubt.h"

#include "advise/explain.h"
#include "base/extremes.h"
#include "base/math.h"
#include "base/text.h"
#include "describe/measured_keys.h"

// ---- variances ----

// The variances of a run whose software, device and kind are known.
static const double STEP = 0.0085, MEMORY = 0.0072;
static const double UNKNOWN_MEMORY = 0.02;  // of software without an engine file
// Orthant's own arena is planned to the byte; only the runtime's part is estimated.
static const double OWN_MEMORY = 0.0004;
// On GPUs libraries add to it what few runs have shown.
static const double OWN_MEMORY_ON_GPUS = 0.01;

enum { MOST_DEVICES = 4096 };

static const double ONE_SIDE_80 = 0.941;  // quantile of Student's t, 4 degrees

static void add(ot_doubt *out, double variance, const char *reason) {
  out->step_variance += variance;
  out->reason[out->num_reasons++] = reason;
}

void ot_doubt_find(const ot_doubt_request *request, ot_doubt *out) {
  const ot_job *const job = request->job;
  const ot_cluster_basis basis = job->cluster->basis;
  const bool measured = ot_cluster_basis_measured(basis) || basis == OT_BASIS_CALIBRATED;
  const bool guessed = basis == OT_BASIS_GUESSED || basis == OT_BASIS_UNKNOWN;
  const bool own = job->engine == &ot_engine_orthant;
  const bool unknown = request->unknown_software || ot_text_equal(job->engine->name, "unknown");
  const bool host = ot_device_is_host(&job->cluster->device);
  const double own_memory = host ? OWN_MEMORY : OWN_MEMORY_ON_GPUS;
  const double memory = own ? own_memory : unknown ? UNKNOWN_MEMORY : MEMORY;
  *out = (ot_doubt){.step_variance = STEP, .memory_variance = memory};
  const bool near = basis == OT_BASIS_EXTRAPOLATED;
  if (guessed || near || (!measured && !ot_explain_device_known(job))) {
    add(out, 0.0295, guessed ? "fitted to nothing" : "no measured run on this device");
  }
  if (basis == OT_BASIS_QUICK) add(out, 0.0295, "measured in seconds (bench --quick)");
  if (ot_measured_is_doubtful(job->cluster)) add(out, 0.0295, "measured on a busy machine");
  if (ot_cluster_is_mixed(job->cluster)) add(out, 0.0295, "no measured run on pools of devices");
  if (unknown || (!measured && !ot_explain_engine_known(job))) {
    add(out, 0.0154, "no measured run of this software");
  }
  if (job->model->moe.num_experts > 0) add(out, 0.0195, "experts");
  if (request->open) add(out, 0.0185, "chunks, micro-batches or recompute not stated");
  if (request->candidate->cp > 1) add(out, 0.004, "cp");
  if (job->recipe.products == OT_F8) add(out, 0.004, "fp8");
  if (job->devices > MOST_DEVICES) add(out, 0.006, "more than 4,096 devices");
}

double ot_doubt_memory_margin(const ot_job *job) {
  ot_doubt doubt;
  ot_doubt_find(&(ot_doubt_request){.job = job, .candidate = &job->given}, &doubt);
  return ot_exp(ONE_SIDE_80 * ot_sqrt(doubt.memory_variance)) - 1;
}

static ot_interval around(double value, double variance, double quantile) {
  const double factor = ot_exp(quantile * ot_sqrt(variance));
  return (ot_interval){value / factor, value * factor};
}

// Quantiles of Student's t, 4 degrees.
ot_interval ot_interval_80(double value, double variance) { return around(value, variance, 1.533); }
ot_interval ot_interval_95(double value, double variance) { return around(value, variance, 2.776); }

// ---- covariance ----

// Effects of a source on computation and on exposed communication, and the deviation of
// configurations from them, which decays with their distance.
static const double COMPUTE = 0.08, EXPOSED = 0.18, SHAPE = 0.12;
const double ot_doubt_noise = 0.07 * 0.07;
static const double OTHER_DEVICE = 1.2;  // distance of two kinds of device

static double log_of(double value) { return value > 0 ? ot_log(value) : 0; }

void ot_traits_find(const ot_job *job, const ot_estimate *estimate, ot_traits *out) {
  const ot_candidate *const c = &estimate->candidate;
  const ot_model *const model = job->model;
  const double sequences =
      (double)c->micro_batch_size * (double)c->micro_batches / (c->tp * c->pp * c->cp);
  double exposed_s = 0;
  for (int i = 0; i < OT_TIMELINE_AXES; i++) {
    if (i != OT_TIMELINE_WORLD) exposed_s += estimate->exposed_s[i];
  }
  *out = (ot_traits){
      .at = {0.6 * log_of((double)model->hidden_size), 0.5 * log_of((double)model->num_layers),
             0.25 * log_of(job->devices), 0.75 * log_of(c->tp), 0.4 * log_of(c->pp),
             0.5 * log_of(c->cp), 0.5 * log_of(c->ep), 0.4 * log_of((double)job->sequence_length),
             0.5 * log_of(sequences), 0.5 * (c->recompute == OT_RECOMPUTE_FULL),
             0.5 * (job->recipe.products == OT_F8) + 0.5 * (c->zero == 3)},
      .device = job->cluster ? job->cluster->device.name : ""};
  if (estimate->step_s > 0) out->exposed = ot_smaller(exposed_s / estimate->step_s, 0.95);
}

ot_covariance ot_traits_covariance(const ot_traits *a, const ot_traits *b) {
  double square = ot_text_equal(a->device, b->device) ? 0 : OTHER_DEVICE * OTHER_DEVICE;
  for (int i = 0; i < OT_TRAITS; i++) {
    const double far = a->at[i] - b->at[i];
    square += far * far;
  }
  return (ot_covariance){COMPUTE * COMPUTE * (1 - a->exposed) * (1 - b->exposed),
                         EXPOSED * EXPOSED * a->exposed * b->exposed,
                         SHAPE * SHAPE * ot_exp(-0.5 * square)};
}

double ot_covariance_sum(const ot_covariance *c) { return c->compute + c->exposed + c->shape; }

static double covariance_of(const ot_traits *a, const ot_traits *b) {
  const ot_covariance c = ot_traits_covariance(a, b);
  return ot_covariance_sum(&c);
}

bool ot_traits_equal(const ot_traits *a, const ot_traits *b, double ratio) {
  const double variance = covariance_of(a, a) + covariance_of(b, b) - 2 * covariance_of(a, b);
  const double apart = ot_log(ratio);
  return apart * apart <= ONE_SIDE_80 * ONE_SIDE_80 * ot_larger(variance, 0);
}

bool ot_doubt_equal(const ot_job *job, const ot_estimate *a, const ot_estimate *b) {
  ot_traits one, other;
  ot_traits_find(job, a, &one);
  ot_traits_find(job, b, &other);
  return ot_traits_equal(&one, &other, a->step_s / b->step_s);
}
