// SPDX-License-Identifier: Apache-2.0
// Daly's interval in steps.
#include "state/save_interval.h"

#include "base/extremes.h"
#include "simulate/goodput.h"

// The resolution of the clock, and an interval that no run completes.
static const double least_s = 1e-9, most_steps = 1e15;

double ot_save_interval_mtbf(const ot_run_checkpoint *checkpoint, int ranks) {
  if (checkpoint->mtbf_hours > 0) return checkpoint->mtbf_hours * OT_HOUR_S;
  return ot_failure_rate_at(0)->device_mtbf_s / ranks;
}

int64_t ot_save_interval_steps(const ot_save_times *times) {
  const double best_s = ot_goodput_daly_s(ot_larger(times->blocked_s, least_s), times->mtbf_s);
  const double interval_s = ot_larger(best_s, times->save_s - times->blocked_s);
  const double steps = interval_s / ot_larger(times->step_s, least_s) + 0.5;
  return ot_larger_whole(1, (int64_t)ot_smaller(steps, most_steps));
}
