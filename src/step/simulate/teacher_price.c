// SPDX-License-Identifier: Apache-2.0
// The rule by which a step waits for a live teacher.
#include "simulate/teacher_price.h"

double ot_teacher_wait_s(const ot_teacher_price *price, int ranks, int dp, int64_t micro_batches,
                         double step_s) {
  const double own_s = price->micro_batch_s * (double)micro_batches;
  if (ranks == 0) return own_s;
  const double more_s = own_s * ((dp + ranks - 1) / ranks) - step_s;
  return more_s > 0 ? more_s : 0;
}
