// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl: one JSON object a step, every key of a step always there, null where unknown; and
// validation lines. The source of truth of what a run did: each step is in it once, also after
// resuming, because lines later than the state that a run goes on from are cut off.
#pragma once

#include <stdint.h>

#include "base/status.h"

// A number with a name: "gradient_norm/layers.3". NaN and infinities are written as null.
typedef struct ot_metric {
  const char *name;
  double value;
} ot_metric;

// Seconds of communication that no compute hides, by axis.
typedef struct ot_metrics_exposed {
  double tp_s, cp_s, ep_s, pp_s, dp_s;
} ot_metrics_exposed;

// Of the experts of a model, means over layers and over the tokens of the step.
typedef struct ot_metrics_experts {
  double aux_loss, z_loss;  // before their coefficients; not part of loss_nats
  double load_max;          // largest over mean load of a micro-batch
  double load_entropy;      // of the loads of a micro-batch; 1 when they are even
  double drop_share;        // of the slots of tokens; where experts choose, of tokens
  double rounds;            // in which the rows of a micro-batch come to experts; 1: all fit
} ot_metrics_experts;

// One step. Unknown: NaN for reals, -1 for counts.
typedef struct ot_metrics_step {
  int64_t step;      // completed steps, this one included
  double loss_nats;  // mean of an unmasked target
  double gradient_norm;
  double learning_rate;
  int64_t tokens;  // trained on so far
  double step_s;
  double tokens_per_s;
  double mfu;  // of model FLOPs, 0 to 1
  double predicted_step_s;
  ot_metrics_exposed exposed;
  double bubble_fraction;
  int64_t memory_peak_bytes;
  int64_t memory_planned_bytes;
  double noise_scale_tokens;
  ot_metrics_experts experts;
  int num_health;
  const ot_metric *health;  // [num_health] further keys
} ot_metrics_step;

typedef struct ot_metrics ot_metrics;

// Opens the file at `path`, which need not exist, to go on after `step` completed steps (0: a new
// run): later lines are cut off, and one that was not written whole.
ot_status ot_metrics_create(const char *path, int64_t step, ot_metrics **out);

// The newest step that has a line in the file at `path`; 0: none, or there is no file.
ot_status ot_metrics_newest(const char *path, int64_t *step);

// Writes a copy of the lines later than `step` of the file at `path` (which need not exist) to
// `copy`, synced; no file when there are none.
ot_status ot_metrics_copy_later(const char *path, int64_t step, const char *copy);

// Closes; what was written stays. Call ot_metrics_sync first when it must survive a power cut.
void ot_metrics_destroy(ot_metrics **metrics);

// Appends a line with one write. After a failure (disk full) the file ends with the line before.
ot_status ot_metrics_write_step(ot_metrics *metrics, const ot_metrics_step *step);

// {"step", "val_loss" or "val_loss/NAME"}; `name` is null or "" for the unnamed set.
ot_status ot_metrics_write_validation(ot_metrics *metrics, int64_t step, const char *name,
                                      double loss_nats);

// {"step", "audit_findings/NAME"}: what the audit NAME found after a step.
ot_status ot_metrics_write_audit(ot_metrics *metrics, int64_t step, const char *name,
                                 int64_t findings);

// A step that stands out (health.h): {"step", "spike/NAME": z, "first_sample", "last_sample"}, so
// that its batch can be read again.
typedef struct ot_metrics_spike {
  int64_t step;
  const char *name;  // "loss", "grad_norm"
  double z;
  int64_t first_sample, last_sample;  // of the step
} ot_metrics_spike;
ot_status ot_metrics_write_spike(ot_metrics *metrics, const ot_metrics_spike *spike);

// Makes all lines durable. To be called before the checkpoint of a step is written, so that no step
// that a run resumes after can lack its line.
ot_status ot_metrics_sync(ot_metrics *metrics);
