// SPDX-License-Identifier: Apache-2.0
// One step on the run's layout against the same step on one rank: same weights, same samples. The
// layout must not change the loss, nor any gradient by more than the order of summation does. A
// constant factor points to a scaling that is missing or applied twice; another direction, to a
// missing reduction or wrong weights in one. Documents of unequal lengths give ranks unequal
// numbers of targets, so that a mean of means is detected.
#pragma once

#include "audit/audit_report.h"
#include "train/trainer.h"

// The figures of a comparison.
typedef struct ot_reference_figures {
  bool compared;                         // false: one rank needs more memory than it may use
  double loss, reference;                // of the step
  int tensors;                           // gradients compared
  double largest;                        // largest relative difference of a tensor's gradient
  int64_t fewest_targets, most_targets;  // per micro-batch and rank; equal: means of means pass
  bool undecided;                        // above the tolerance, yet possibly rounding
} ot_reference_figures;

// The trainer takes its next step on the run's layout; the leader repeats it on one rank. Findings
// are added on the leader. Collective over the world. Blocks.
ot_status ot_reference_compare(ot_trainer *trainer, ot_audit_report *report,
                               ot_reference_figures *figures);

// Relative difference of gradients that the summation order may cause, by storage dtype.
double ot_reference_tolerance(const ot_run *run);

// The limit where rounding may route tokens to other experts; above it, a finding.
double ot_reference_limit(const ot_run *run);
