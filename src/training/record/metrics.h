// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl: one JSON object per step, with every key of a step present, null if unknown; and
// validation lines. The record of a run: each step is in it once, also after resuming, because
// lines later than the resumed state are truncated.
#pragma once

#include <stdint.h>

#include "files/log_file.h"

// A named number: "gradient_norm/layers.3". NaN and infinities are written as null.
typedef struct ot_metric {
  const char *name;
  double value;
} ot_metric;

// Exposed communication in seconds, by axis.
typedef struct ot_metrics_exposed {
  double tp_s, cp_s, ep_s, pp_s, dp_s;
} ot_metrics_exposed;

// Expert statistics, as means over layers and over the tokens of the step.
typedef struct ot_metrics_experts {
  double aux_loss, z_loss;  // before their coefficients; not part of loss_nats
  double load_max;          // largest over mean load in a micro-batch
  double load_entropy;      // of the loads in a micro-batch; 1 when balanced
  double drop_share;        // of routed slots; with expert choice, of tokens
  double rounds;            // dispatch passes per micro-batch; 1: no overflow
} ot_metrics_experts;

// One step. Unknown: NaN for reals, -1 for counts.
typedef struct ot_metrics_step {
  int64_t step;            // completed steps, this one included
  double loss_nats;        // mean per unmasked target
  double data_loss_nats;   // of the data's targets, where loss_nats is of weighted ones
  double teacher_kl_nats;  // of teacher and model
  double gradient_norm;
  double learning_rate;
  int64_t tokens;  // trained on so far
  double step_s;
  double tokens_per_s;
  double mfu;      // of model FLOPs, 0 to 1
  double goodput;  // share of the time since the run began that steps took which count, 0 to 1
  double predicted_step_s;
  ot_metrics_exposed exposed;
  double bubble_fraction;
  int64_t memory_peak_bytes;
  int64_t memory_planned_bytes;
  int64_t products_by_own_kernel, algorithms_replaced;  // refused by cuBLASLt; -1 on the CPU
  double noise_scale_tokens;
  ot_metrics_experts experts;
  int num_health;
  const ot_metric *health;  // [num_health] further keys
} ot_metrics_step;

typedef struct ot_metrics ot_metrics;

// Opens the file at `path`, which need not exist, to continue after `step` completed steps (0: a
// new run): removes later lines and an incomplete one.
ot_status ot_metrics_create(const char *path, int64_t step, ot_metrics **out);

// The lines of the file at `path`, which need not exist.
typedef struct ot_metrics_extent {
  int64_t newest;  // highest step with a line; 0: none
  double kept_s;   // sum of the step_seconds of the lines up to a given step
  double later_s;  // of those after it
} ot_metrics_extent;
ot_status ot_metrics_measure(const char *path, int64_t step, ot_metrics_extent *extent);

// Only the highest step with a line, which takes less time.
ot_status ot_metrics_newest(const char *path, int64_t *step);

// Writes a copy of the lines after `step` of the file at `path` (which need not exist) to `copy`,
// synced; no file if there are none.
ot_status ot_metrics_copy_later(const char *path, int64_t step, const char *copy);

// Closes the file; written lines stay. Call ot_metrics_sync first if they must survive a power
// failure.
void ot_metrics_destroy(ot_metrics **metrics);

// The file, for what happens to it. Valid until destroy.
ot_log_file *ot_metrics_log(const ot_metrics *metrics);

// Appends a line with one write. One that cannot be written (disk full) is lost and counted.
void ot_metrics_write_step(ot_metrics *metrics, const ot_metrics_step *step);

// {"step", "val_loss" or "val_loss/NAME"}; `name` is null or "" for the unnamed set.
void ot_metrics_write_validation(ot_metrics *metrics, int64_t step, const char *name,
                                 double loss_nats);

// {"step", "audit_findings/NAME"}: findings of the audit NAME after a step.
void ot_metrics_write_audit(ot_metrics *metrics, int64_t step, const char *name, int64_t findings);

// {"step", and each of `values` [count]}: the line of an update of `orthant rl`.
void ot_metrics_write_values(ot_metrics *metrics, int64_t step, const ot_metric *values, int count);

// A figure of an evaluation: {"step", KEY: value}; KEY is OT_METRICS_EVALUATE "TASK/FIGURE".
#define OT_METRICS_EVALUATE "evaluate/"
void ot_metrics_write_figure(ot_metrics *metrics, int64_t step, const char *key, double value);

// An outlier step (health.h): {"step", "spike/NAME": z, "first_sample", "last_sample"}, so that its
// batch can be read again.
typedef struct ot_metrics_spike {
  int64_t step;
  const char *name;  // "loss", "grad_norm"
  double z;
  int64_t first_sample, last_sample;  // of the step
} ot_metrics_spike;
void ot_metrics_write_spike(ot_metrics *metrics, const ot_metrics_spike *spike);

// Makes all lines durable. Call before writing the checkpoint of a step, so that no step before a
// resume lacks its line.
void ot_metrics_sync(ot_metrics *metrics);
