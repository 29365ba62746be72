// SPDX-License-Identifier: Apache-2.0
#include "record/spike_watch.h"

#include <string.h>

int ot_spike_watch_add(ot_spike_watch *watch, const ot_spike_step *step, ot_spike spikes[2]) {
  int count = 0;
  if (ot_spike_add(&watch->loss, step->loss_nats)) {
    spikes[count++] = (ot_spike){"loss", watch->loss.z};
  }
  if (ot_spike_add(&watch->norm, step->gradient_norm)) {
    spikes[count++] = (ot_spike){"grad_norm", watch->norm.z};
  }
  return count;
}

// Also equal for two NaN.
static bool same_bits(double a, double b) { return memcmp(&a, &b, sizeof a) == 0; }

static bool is_repetition(const ot_spike_watch *watch, const ot_spike_step *step) {
  return watch->repeats.step > 0 && watch->repeats.step == step->step;
}

static bool is_same(const ot_spike_watch *watch, const ot_spike_step *step) {
  return same_bits(watch->repeats.loss_nats, step->loss_nats) &&
         same_bits(watch->repeats.gradient_norm, step->gradient_norm);
}

bool ot_spike_watch_differs(ot_spike_watch *watch, const ot_spike_step *step) {
  if (!is_repetition(watch, step) || is_same(watch, step)) return false;
  watch->repeats.step = 0;
  return true;
}

static ot_spike_answer end(ot_spike_watch *watch, const char *reason) {
  watch->reason = reason;
  return OT_SPIKE_ENDS;
}

ot_spike_answer ot_spike_watch_answer(ot_spike_watch *watch, ot_spike_action action,
                                      const ot_spike_step *step) {
  const bool again = is_repetition(watch, step);
  watch->repeats.step = 0;
  if (action == OT_SPIKE_NOTE) return OT_SPIKE_CONTINUES;
  if (action == OT_SPIKE_STOP) return end(watch, "on_spike=stop");
  if (again)
    return end(watch, "it repeats with the same bits, so the data and the weights cause it");
  if (watch->returns == OT_SPIKE_RETURNS) return end(watch, "the run went back five times before");
  watch->returns++;
  if (step->step > watch->furthest) watch->furthest = step->step;
  if (action == OT_SPIKE_SKIP) return OT_SPIKE_SKIPS;
  watch->repeats = *step;
  return OT_SPIKE_REPEATS;
}

void ot_spike_watch_saved(ot_spike_watch *watch, int64_t step) {
  if (step > watch->furthest) watch->returns = 0;
}
