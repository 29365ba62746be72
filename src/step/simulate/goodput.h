// SPDX-License-Identifier: Apache-2.0
// Goodput: the share of a job's time spent on steps that count, given device failures, checkpoints,
// and recomputation of lost steps. Failures are assumed independent of the past (exponential
// times), also during checkpoints and recovery. Pure.
//
//   |---- interval ----|stall|---- interval ----|stall|-- lost --X---- recovery ----|-- interval ..
//                            |- write -| the checkpoint is valid from here on
//
// A synchronous checkpoint stalls training until it is written; an asynchronous one until it is
// copied to host memory, and steps continue, somewhat slower, during the write. M: mean time
// between failures of the job, t: interval, d: stall, w: write concurrent with steps (0 if
// synchronous), R: recovery. The share of time that counts is
//
//   E = t / (M exp((R + w) / M) (exp((t + d) / M) - 1))            as long as t + d >= w
//
// (Daly 2006, "A higher order estimate of the optimum checkpoint interval for restart dumps", for w
// = 0. A failure within w of a checkpoint falls back to the one before it; in this process that is
// equivalent to w more seconds in each recovery.) The best interval solves 1 - t/M = exp(-(t + d) /
// M), for any R and w. Not modelled: correlated failures, storage shared with other jobs, silent
// corruption.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum { OT_HOUR_S = 3600 };

// Rate of interruptions per device, as reported for runs and fleets. It is an input: clusters
// differ several-fold, and new ones fail more often.
typedef struct ot_failure_rate {
  const char *name;       // "llama3"
  double device_mtbf_s;   // device seconds per interruption, > 0
  double job_mtbf_s;      // between interruptions independent of the size; 0 = none
  double hardware_share;  // [0, 1] of interruptions that need a repair of devices
  const char *source;
} ot_failure_rate;

// The rate at `index`, for lists; null after the last.
const ot_failure_rate *ot_failure_rate_at(int index);

typedef struct ot_goodput_request {
  int devices;  // >= 1
  ot_failure_rate rate;
  // checkpoints
  double checkpoint_bytes;      // whole job, >= 0
  double storage_bytes_per_s;   // all ranks together, write and read, > 0
  double snapshot_bytes_per_s;  // one device to its host's memory, > 0
  double overhead_s;            // per checkpoint in addition to its bytes, >= 0
  bool asynchronous;
  double write_slowdown;  // share of step speed lost during an asynchronous write, [0, 1)
  double interval_s;      // from the end of a stall to the next; 0 = the best
  // recovery
  double detect_s;   // until a failure is detected, >= 0
  double restart_s;  // until ranks run again, without reading the state, >= 0
  // devices in repair
  double repair_s;         // duration of a repair, >= 0
  int devices_per_repair;  // devices per repair: those of a node, >= 1
  double availability;     // share of time for which spares must suffice, [0, 1)
  double train_s;          // run time without failures and checkpoints; 0 = unknown
} ot_goodput_request;

typedef struct ot_goodput {
  double mtbf_s;      // mean time between failures of the job
  double stall_s;     // per checkpoint, slower steps included
  double write_s;     // after the stall, until the checkpoint is valid
  double recovery_s;  // per failure: detection, restart, reading the checkpoint
  // intervals
  double young_s;  // sqrt(2 d M), Young 1974
  double daly_s;   // Daly 2006, higher order
  double best_s;   // formula above, at least the write
  double interval_s;
  // shares of time; they add up to 1
  double productive;   // E
  double checkpoints;  // stalls of checkpoints that count
  double recovery;
  double lost;         // recomputed steps and their stalls
  double first_order;  // 1 - d/t - (t/2 + w + R) / M: first-order formula for E
  // the run; 0 if train_s is unknown
  double elapsed_s;
  double interruptions;
  // spares
  double devices_away;    // on average
  int64_t spares;         // in addition to the devices of the job
  double spares_suffice;  // share of time with enough spares, at least `availability`
} ot_goodput;

// The interval between checkpoints that stall a job for `stall_s`, with a failure every `mtbf_s`,
// by Daly 2006: a series of the best one, within a thousandth of it up to stall_s = mtbf_s / 10.
double ot_goodput_daly_s(double stall_s, double mtbf_s);

// A request with defaults for everything except checkpoint size and run: the failures of Llama 3,
// synchronous checkpoints, and rates and times explained in goodput.c.
ot_goodput_request ot_goodput_defaults(int devices, double checkpoint_bytes);

// OT_USAGE names a value out of range.
ot_status ot_goodput_check(const ot_goodput_request *request);

// OT_USAGE as the check, and for an interval shorter than an asynchronous write.
ot_status ot_goodput_build(const ot_goodput_request *request, ot_goodput *out);
