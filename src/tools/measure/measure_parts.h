// SPDX-License-Identifier: Apache-2.0
// Shared by the parts of a measurement. Repeated runs are summarised by their first quartile,
// because other load on the machine makes some runs longer and none shorter. Kernels of steps are
// summarised by their median and the share of interruptions, in the fastest of several rounds of
// steps: on a virtual machine, a neighbour can slow down all of them for seconds.
#pragma once

#include <stdint.h>

#include "base/arena.h"
#include "comm/comm.h"
#include "describe/cluster.h"
#include "device/device.h"
#include "measure/measure.h"
#include "ops/op.h"

enum { OT_TIMINGS_MOST = 192 };

enum { OT_FLOAT_BYTE = 0x3f };  // repeated: a float or a double between 0 and 1

typedef struct ot_timings {
  int64_t count;                    // runs, of which the first OT_TIMINGS_MOST are kept
  double total_s;                   // of all runs
  double seconds[OT_TIMINGS_MOST];  // sorted by ot_timings_sort
} ot_timings;

void ot_timings_add(ot_timings *timings, double seconds);

// Seconds of one run, of the fastest run, and the interquartile range relative to the median. Sorts
// `timings`.
typedef struct ot_timing {
  double seconds, fastest_s, spread;
} ot_timing;
ot_timing ot_timings_read(ot_timings *timings);
double ot_timings_median(ot_timings *timings);

// Writes the indices of the fastest fifth of `count` rounds, at least one if there is one, to the
// front of `fastest` [count], ascending in time. Returns their number.
int ot_timings_fastest(const double *seconds, int count, int *fastest);

// Their mean. At most OT_TIMINGS_MOST rounds.
double ot_timings_fast_mean(const double *seconds, int count);

// Kernel rates inside steps: small models of several families and parallel configurations are
// trained for a few steps, and the constants of each kind of kernel are fitted to its task times.
typedef struct ot_measured_kernels {
  ot_kernel_rates *rates;  // [num_rates] one per kind of op
  int64_t num_rates;
  double launch_s;  // between two kernels of a step
} ot_measured_kernels;

typedef struct ot_kernel_trials {
  ot_backend backend;
  ot_dtype dtype;           // precision of the steps
  int ranks, threads;       // of each; one on a GPU
  double peak_flops_per_s;  // no product is faster; 0: not known
  double event_s;  // between two events with nothing between them, subtracted from each timing
  bool quick;
  bool small;  // models of a few thousand parameters, for an emulated GPU
} ot_kernel_trials;

// With `ranks` concurrent ranks of `threads` threads. In `arena`. Blocks.
ot_status ot_measure_kernels(const ot_kernel_trials *trials, ot_arena *arena,
                             ot_measured_kernels *out);

// The step of two ranks a core over twice that of one: what their turns cost. Blocks.
ot_status ot_measure_sharing(int cores, bool quick, double *sharing);

// One GPU: its memory, one stream and its kernels (gpu_timing.c).
typedef struct ot_gpu_timer {
  ot_device *device;
  ot_stream *stream;
  ot_event *from, *to;
  void *context;    // of kernels on the stream
  double sample_s;  // least time of one timing, of several calls
  int samples;      // per figure
  double event_s;   // between two events with nothing between them
} ot_gpu_timer;

// Device `ordinal`. After a failure, destroy is allowed. Blocks.
ot_status ot_gpu_timer_create(int ordinal, bool quick, ot_gpu_timer *timer);
void ot_gpu_timer_destroy(ot_gpu_timer *timer);

// A call of a kernel; outputs follow from the inputs.
typedef struct ot_gpu_call {
  ot_op_kind op;
  ot_op_attributes attributes;
  ot_op_types types;
} ot_gpu_call;

// Times one call among many, on random numbers. OT_ENVIRONMENT without a kernel or memory. Blocks.
ot_status ot_gpu_time_call(ot_gpu_timer *timer, ot_gpu_call *call, ot_timing *out);

// Times one call among a hundred that are queued one by one, or as one graph. Blocks.
ot_status ot_gpu_time_launch(ot_gpu_timer *timer, bool graph, ot_timing *out);

// Bytes per second of a copy of `bytes` between pinned memory and the device. Blocks.
ot_status ot_gpu_time_transfer(ot_gpu_timer *timer, int64_t bytes, bool to_device, double *rate);

// Bytes per second of a copy of `bytes` on the device (read and written bytes both count), or to
// the device of `peer` (bytes received). Blocks.
ot_status ot_gpu_time_copy(ot_gpu_timer *timer, const ot_gpu_timer *peer, int64_t bytes,
                           double *rate);

// Measures all GPUs (measure.h).
ot_status ot_measure_gpus(const ot_measure_request *request, ot_arena *arena, ot_cluster *out);

// Latency and rate of collectives and messages on one machine, by kind and number of ranks.
typedef struct ot_measured_links {
  ot_collective_rates *rates;  // [num_rates]
  int64_t num_rates;
} ot_measured_links;

// Among 2, 4, 8, ... up to `most` ranks, threads of this process. In `arena`. Blocks.
ot_status ot_measure_links(int most, bool quick, ot_arena *arena, ot_measured_links *out);

// Within and across the hosts of `comm`, each with the `per_host` next ranks: among groups of
// several sizes, all groups of a size at the same time. In `arena`, the same on all ranks.
// Collective over the world. Blocks.
typedef struct ot_host_links_request {
  ot_comm *comm;
  int per_host;  // >= 1
  bool quick;
} ot_host_links_request;
ot_status ot_measure_host_links(const ot_host_links_request *request, ot_arena *arena,
                                ot_measured_links *out);

// A kind of call whose time is measured, and the sizes.
typedef struct ot_link_call {
  ot_comm_kind kind;
  ot_op_kind op;   // OT_OP_COUNT: a message
  bool of_blocks;  // call.count is a block of the whole, one for each rank
} ot_link_call;
enum { OT_LINK_CALLS = 6, OT_LINK_SIZES = 7 };
extern const ot_link_call ot_link_calls[OT_LINK_CALLS];  // the last one is a message
extern const int64_t ot_link_bytes[OT_LINK_SIZES];       // ascending

// Memory of the calls of one rank: each call uses the next part.
typedef struct ot_link_memory {
  char *block;  // [bytes]
  int64_t bytes, next;
} ot_link_memory;

// For all sizes of calls, on one of `ranks` ranks of a host. OT_ENVIRONMENT without enough memory.
ot_status ot_link_memory_create(int ranks, ot_link_memory *memory);
void ot_link_memory_destroy(ot_link_memory *memory);

// The call with `bytes` in a group of `size` ranks, in the next part. Writes what it sends, as the
// kernels of a step do. Of a message only the peer is missing.
ot_comm_call ot_link_call_make(const ot_link_call *call, int64_t bytes, int size,
                               ot_link_memory *memory);

// Its rates from the timings of the first `count` sizes. In `arena`.
ot_collective_rates ot_link_fit(const ot_link_call *call, const ot_timing *timings, int count,
                                ot_arena *arena);
