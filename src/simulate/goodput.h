// SPDX-License-Identifier: Apache-2.0
// Goodput: the share of its time that a job spends on steps that count, where devices fail, states
// are saved, and what was not saved is done again. Failures are taken to come independently of the
// past (exponential times), also while a state is saved and while the job comes back. Pure.
//
//   |---- interval ----|stall|---- interval ----|stall|-- lost --X---- recovery ----|-- interval ..
//                            |- write -| a state counts from here on
//
// A synchronous checkpoint stalls until it is written; an asynchronous one until it is copied to
// the hosts' memory, and steps go on, somewhat slower, while it is written. With M the mean time
// between failures of the job, t the interval, d the stall, w the write beside steps (0 when
// synchronous) and R the recovery, the share of time that counts is
//
//   E = t / (M exp((R + w) / M) (exp((t + d) / M) - 1))            as long as t + d >= w
//
// (Daly 2006, "A higher order estimate of the optimum checkpoint interval for restart dumps", for
// w = 0. A failure within w of a checkpoint falls back to the one before it, which in this process
// has the effect of w more seconds in each recovery.) The best interval solves
// 1 - t/M = exp(-(t + d) / M), whatever R and w. It does not model correlated failures, storage
// that others use, and silent corruption.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

// How often devices interrupt a job, as runs and fleets were reported to. A rate is an input like
// any other: clusters differ by several times, and a new one fails more often than an old one.
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

typedef struct ot_goodput_request {
  int devices;  // >= 1
  ot_failure_rate rate;
  // checkpoints
  double checkpoint_bytes;      // of the whole job, >= 0
  double storage_bytes_per_s;   // of all ranks together, written and read, > 0
  double snapshot_bytes_per_s;  // of one device to its host's memory, > 0
  double overhead_s;            // of every checkpoint, besides its bytes, >= 0
  bool asynchronous;
  double write_slowdown;  // share of the speed of steps lost during an asynchronous write, [0, 1)
  double interval_s;      // from the end of a stall to the next; 0 = the best
  // recovery
  double detect_s;   // until a failure is noticed, >= 0
  double restart_s;  // until ranks run again, without reading the state, >= 0
  // devices that are away
  double repair_s;         // until one is back, >= 0
  int devices_per_repair;  // that leave together: those of a node, >= 1
  double availability;     // share of time in which spares must suffice, [0, 1)
  double train_s;          // of the run without any of this; 0 = not known
} ot_goodput_request;

typedef struct ot_goodput {
  double mtbf_s;      // of the job
  double stall_s;     // of one checkpoint, slower steps included
  double write_s;     // after the stall, until the state counts
  double recovery_s;  // of one failure: detection, restart, reading the state
  // intervals
  double young_s;  // sqrt(2 d M), Young 1974
  double daly_s;   // Daly 2006, of higher order
  double best_s;   // of the formula above, and long enough for the write
  double interval_s;
  // shares of time; they add up to 1
  double productive;   // E
  double checkpoints;  // stalls whose states were of use
  double recovery;
  double lost;         // done again, with the stalls between
  double first_order;  // 1 - d/t - (t/2 + w + R) / M: what a short formula says of E
  // of the run; 0 where train_s is not known
  double elapsed_s;
  double interruptions;
  // spares
  double devices_away;    // on average
  int64_t spares;         // devices beside those of the job
  double spares_suffice;  // share of time in which they do, at least the one asked for
} ot_goodput;

// A request with everything but checkpoints' size and the run filled in: the failures of Llama 3,
// synchronous checkpoints, and rates and times as goodput.c gives and explains them.
ot_goodput_request ot_goodput_defaults(int devices, double checkpoint_bytes);

// OT_USAGE for a value out of its range, naming it.
ot_status ot_goodput_check(const ot_goodput_request *request);

// OT_USAGE as the check, and for an interval that is shorter than an asynchronous write.
ot_status ot_goodput_build(const ot_goodput_request *request, ot_goodput *out);
