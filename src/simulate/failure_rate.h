// SPDX-License-Identifier: Apache-2.0
// How often devices interrupt a job, as runs and fleets were reported to. A rate is an input like
// any other: clusters differ by several times, and a new one fails more often than an old one.
#pragma once

typedef struct ot_failure_rate {
  const char *name;       // "llama3"
  double device_mtbf_s;   // seconds of one device for each interruption, > 0
  double job_mtbf_s;      // between interruptions that come whatever the size; 0 = there are none
  double hardware_share;  // [0, 1] of interruptions that take devices out until they are repaired
  const char *source;
} ot_failure_rate;

// The rate called `name`, or null.
const ot_failure_rate *ot_failure_rate_find(const char *name);

// The rates in order, for lists; null from the last on.
const ot_failure_rate *ot_failure_rate_at(int index);
