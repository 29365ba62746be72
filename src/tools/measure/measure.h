// SPDX-License-Identifier: Apache-2.0
// Measures the rates of this machine by running kernels, steps and communication. `orthant bench`
// writes them, predictions read them.
#pragma once

#include "base/arena.h"
#include "comm/comm.h"
#include "describe/cluster.h"

typedef struct ot_measure_request {
  ot_backend backend;     // what is measured: the CPU, or all GPUs of this machine
  int ranks;              // concurrent ranks; 0: one per core
  bool quick;             // fewer repetitions: takes seconds, less exact
  const char *disk_file;  // written to time the disk, and removed; null: no timing
  bool no_links;          // leave communication out: one level, at the rate of memory
  ot_comm *comm;  // ranks of a launcher, on any number of hosts: ot_measure_cluster; else null
  void (*say)(void *context, const char *what);  // reports progress; may be null
  void *context;
} ot_measure_request;

// Measures kernels while all ranks work concurrently on equal shares of the cores: with one thread
// per rank, with all cores for one rank, and with `ranks` ranks; then communication between 2, 4,
// ... ranks. Text and arrays live in `arena` or are static. Takes about a minute on an idle
// machine. Blocks.
// A GPU is measured by one rank: products, copies, attention and launches alone, then the kernels
// of steps, in bf16 and fp32. OT_ENVIRONMENT if it cannot be used.
ot_status ot_measure_machine(const ot_measure_request *request, ot_arena *arena, ot_cluster *out);

// The cluster of the ranks of `request->comm`, processes on one or more hosts: the first host as by
// ot_measure_machine (its `ranks` share the cores as the processes do), and communication within
// and across hosts. In `out` of rank 0. OT_RANKS unless all hosts have equally many ranks, host by
// host; OT_USAGE for GPUs. Collective over the world. Blocks.
ot_status ot_measure_cluster(const ot_measure_request *request, ot_arena *arena, ot_cluster *out);

// Seconds for a cache line from the first core to the last one and back; 0: there is one core. In a
// virtual machine it changes when the host moves a core away from the cache that both shared.
ot_status ot_measure_round_trip(double *seconds);

// Seconds of a fixed matrix product on one thread: the present speed of the machine.
ot_status ot_measure_pace(double *seconds);
