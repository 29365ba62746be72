// SPDX-License-Identifier: Apache-2.0
// The rates of this machine, by running kernels, steps and communication: what `orthant bench`
// writes and predictions read.
#pragma once

#include "base/arena.h"
#include "describe/cluster.h"

typedef struct ot_measure_request {
  int ranks;              // that work at once; 0: one a core
  bool quick;             // fewer repetitions, for tests: seconds, and less exact
  const char *disk_file;  // written to time the disk, and removed; null: it is not timed
  void (*say)(void *context, const char *what);  // what is measured now; may be null
  void *context;
} ot_measure_request;

// Measures ranks that share the cores of this machine equally, all at work at once; what they take
// with one thread each, with all cores for one, and as asked; and what moves between 2, 4, ... of
// them. Text and arrays live in `arena` or are static. About a minute on an idle machine. Blocks.
ot_status ot_measure_machine(const ot_measure_request *request, ot_arena *arena, ot_cluster *out);

// Seconds of a product that always is the same, on one thread: how fast the machine is just now.
ot_status ot_measure_pace(double *seconds);
