// SPDX-License-Identifier: Apache-2.0
// The gradient noise scale B_simple = tr(Sigma) / |G|^2 of McCandlish et al. 2018 (arXiv
// 1812.06162), for free from data parallelism: a step has the gradients of small batches (each
// rank's, before they are summed) and of the large batch that they make up. Below this batch size
// more data a step buys nearly as many fewer steps; far above it, next to none.
//
// The averages start anew when a run is resumed: they are a reading, not a state, and stand in no
// checkpoint.
#pragma once

#include "runtime/instance.h"

// What one step says. Gradients are means over unmasked targets.
typedef struct ot_noise_sample {
  double whole_squares;  // |g_B|^2 of the large batch
  double local_squares;  // sum over small batches of |w_k g_k|^2; w_k is its share of the targets
  double targets;        // B, unmasked targets of the large batch
  double share_squares;  // sum of w_k^2, in (0, 1]; 1 when there is only one small batch
} ot_noise_sample;

// Averages over steps, zero at first. E|g_B|^2 = |G|^2 + tr(Sigma)/B gives unbiased estimates of
// both from one step; the ratio of their averages is far less biased than the average of ratios.
typedef struct ot_noise_average {
  double gradient_squares;  // of |G|^2
  double variance;          // of tr(Sigma), for a batch of one target
  int64_t steps;
} ot_noise_average;

// Adds a step. One small batch says nothing and is left out, as is what is not finite.
void ot_noise_average_add(ot_noise_average *average, const ot_noise_sample *sample);

// The noise scale in tokens; NAN until both averages are positive.
double ot_noise_average_tokens(const ot_noise_average *average);

// Reads what the last step left. The parameters are those of ot_reduce_notes. False when the step
// says nothing: with one rank of data parallelism, or with context parallelism, where a rank has
// the gradient of pieces of sequences and not of sequences.
bool ot_noise_sample_read(ot_instance *instance, ot_noise_sample *sample);

// Unmasked targets of a rank's micro-batches.
typedef struct ot_noise_targets {
  int64_t sum;
  double squares;  // sum of the square of each micro-batch's
} ot_noise_targets;

// The value of OT_SCALAR_TARGET_SQUARES for a rank: the small batch is a micro-batch when gradients
// are summed over ranks after each, else all micro-batches of the rank.
double ot_noise_target_squares(const ot_run *run, const ot_noise_targets *targets);
