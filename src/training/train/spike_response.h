// SPDX-License-Identifier: Apache-2.0
// How a running loop responds to outlier steps (spike_watch.h), as the run's on_spike says. Private
// to train/. All functions are collective over the world.
#pragma once

#include "train/saving.h"
#include "train/state_copies.h"

typedef struct ot_spike_response {
  ot_spike_watch watch;
  // These parts of the loop change when it goes back to an earlier checkpoint.
  ot_saving *saving;
  const ot_state_copies *copies;
} ot_spike_response;

// Runs the next step. One that is not finite is run again, if on_spike says so.
ot_status ot_spike_response_step(ot_spike_response *response, ot_session *s,
                                 ot_step_report *report);

// Reports a step that is an outlier. *went_back: the next step is the one after an earlier
// checkpoint. OT_NUMERIC ends the run.
ot_status ot_spike_response_watch(ot_spike_response *response, ot_session *s,
                                  const ot_step_report *report, bool *went_back);
