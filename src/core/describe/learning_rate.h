// SPDX-License-Identifier: Apache-2.0
// The learning rate of a step. Progress is counted in steps; in a run limited by tokens whose batch
// grows, in tokens, so that warm-up and decay follow the tokens trained on. Where batches are
// equal, both give the same rates.
//
// With `done` of `total` before the step and `end` after it (same unit):
//   warm-up  peak * end / warmup while done < warmup: the first step has a rate above zero, and the
//            last one of the warm-up has the peak
//   constant the peak
//   linear, cosine  from the peak, at the end of the warm-up, to `min` over decay_steps (0: to the
//            end of the run)
//   wsd      the peak, then linearly to `min` over the last decay_steps (0: a tenth of the run)
#pragma once

#include "describe/run.h"

// The rate of step `step` (counted from 0) of `run`.
double ot_learning_rate_at(const ot_run *run, int64_t step);
