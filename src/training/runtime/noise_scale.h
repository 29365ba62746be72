// SPDX-License-Identifier: Apache-2.0
// The gradient noise scale B_simple = tr(Sigma) / |G|^2 of McCandlish et al. 2018 (arXiv
// 1812.06162), free with data parallelism: a step has the gradients of small batches (each rank's,
// before the reduction) and of the large batch of all. Below this batch size, more data per step
// saves nearly proportionally many steps; far above it, almost none.
//
// The averages restart when a run resumes: they are a measurement, not state, and are not in
// checkpoints.
#pragma once

#include "runtime/step_transfer.h"

// The inputs from one step. Gradients are means over unmasked targets.
typedef struct ot_noise_sample {
  double whole_squares;  // |g_B|^2 of the large batch
  double local_squares;  // sum over small batches of |w_k g_k|^2; w_k is its share of the targets
  double targets;        // B, unmasked targets of the large batch
  double share_squares;  // sum of w_k^2, in (0, 1]; 1 with one small batch
} ot_noise_sample;

// Averages over steps, zero at first. E|g_B|^2 = |G|^2 + tr(Sigma)/B gives unbiased estimates of
// both from one step; the ratio of their averages is far less biased than the average of ratios.
typedef struct ot_noise_average {
  double gradient_squares;  // of |G|^2
  double variance;          // of tr(Sigma), for a batch of one target
  int64_t steps;
} ot_noise_average;

// Adds a step. Skips steps with one small batch or non-finite values.
void ot_noise_average_add(ot_noise_average *average, const ot_noise_sample *sample);

// The noise scale in tokens; NAN until both averages are positive.
double ot_noise_average_tokens(const ot_noise_average *average);

// Whether steps have an estimate: not with one data-parallel rank, nor with context parallelism,
// where a rank has the gradient of parts of sequences.
bool ot_noise_is_known(const ot_schedule *schedule);

// Takes the values of a step from `results`, which has the squares if the estimate is known. The
// parameters are those of ot_reduce_adds_local_squares. False if the step has no estimate.
bool ot_noise_sample_read(const ot_runtime *runtime, const ot_step_transfer *results,
                          ot_noise_sample *sample);

// Unmasked targets of a rank's micro-batches.
typedef struct ot_noise_targets {
  int64_t sum;
  double squares;  // sum of the square of each micro-batch's
} ot_noise_targets;

// The value of OT_SCALAR_TARGET_SQUARES for a rank: the small batch is a micro-batch if gradients
// are reduced after each, else all micro-batches of the rank.
double ot_noise_target_squares(const ot_run *run, const ot_noise_targets *targets);
