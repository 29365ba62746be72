// SPDX-License-Identifier: Apache-2.0
// One step on the run's layout against the same step on one rank: same weights, same samples. The
// split must not change the loss, nor any gradient by more than the order of sums. A constant
// factor names a scaling that is missing or made twice; another direction, a sum that is missing or
// parts that are weighed wrongly. Documents of unequal lengths make ranks count unequal numbers of
// targets, so that a mean of means shows.
#pragma once

#include "audit/audit_report.h"
#include "train/trainer.h"

// What was compared.
typedef struct ot_reference_figures {
  bool compared;                         // false: one rank would need more memory than it may take
  double loss, reference;                // of the step
  int tensors;                           // whose gradients were compared
  double largest;                        // relative difference of the gradient of a tensor
  int64_t fewest_targets, most_targets;  // of a micro-batch of a rank; equal: means of means pass
  bool undecided;  // it is more than the tolerance, and may be rounding all the same
} ot_reference_figures;

// The trainer, on the run's layout, takes its next step; the leader takes it once more alone.
// Findings are added on the leader. Collective over the world. Blocks.
ot_status ot_reference_compare(ot_trainer *trainer, ot_audit_report *report,
                               ot_reference_figures *figures);

// Relative difference that the order of sums may make, of gradients in a storage type.
double ot_reference_tolerance(const ot_run *run);

// What it may be where rounding sends tokens to other experts; from there on a finding.
double ot_reference_doubt(const ot_run *run);
