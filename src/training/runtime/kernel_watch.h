// SPDX-License-Identifier: Apache-2.0
// A thread of each rank that ends the process if a kernel of the rank does not end: other ranks
// name a rank that is missing from a collective (comm/comm.h), but one rank waits for nobody. Only
// time inside one and the same kernel counts, so slow disks, saves, waits for other ranks and long
// steps end nothing; time in which the process was stopped does not count.
#pragma once

#include "execute/progress.h"

typedef struct ot_kernel_watch ot_kernel_watch;

typedef struct ot_kernel_watch_request {
  const ot_schedule *schedule;  // kept, of the tasks that are watched
  const char *rank;             // kept, the rank in words
  // Seconds after which a kernel hangs, 0: never. In the first step, in which libraries allocate,
  // choose kernels and start threads, three times as many.
  double timeout_s;
  // The same from a stop request on (runtime/stop_signal.h), always.
  double stop_s;
  // The last call of the watching thread, whose ot_fail_message has the failure, OT_RANKS. Ends the
  // process.
  void (*end)(void);
} ot_kernel_watch_request;

// The timeout in seconds before a first step is done, for parallel.watchdog_seconds `watchdog_s`.
double ot_kernel_watch_first_s(double watchdog_s);

// OT_ENVIRONMENT if there is no thread.
ot_status ot_kernel_watch_create(const ot_kernel_watch_request *request, ot_kernel_watch **out);
void ot_kernel_watch_destroy(ot_kernel_watch **watch);

// Where an executor marks its kernels (ot_executor_leave); null for null.
ot_progress *ot_kernel_watch_progress(ot_kernel_watch *watch);

// The rank begins step `step`, counted from 1. Null: nothing.
void ot_kernel_watch_step(ot_kernel_watch *watch, int64_t step);
