// SPDX-License-Identifier: Apache-2.0
// Cost of a collective on a cluster of nested levels, with a topology-aware library. Private to
// simulate/.
#pragma once

#include "simulate/price.h"

// Seconds on the links. The ranks of `collective` are devices of `cluster`.
//
// Level i of the cluster connects c_i of the n members (c_-1 = 1, the last c = n). Members of a
// group of level i - 1 use their own links in parallel, so level i transfers S bytes in
//
//   (n-1)/n S / (c_{i-1} bytes_per_s efficiency)         twice that for all_reduce
//
// and the slowest level determines the time. In a mesh of p places, c_i / c_{i-1} of them have (c_i
// / c_{i-1} - 1) / (p - 1) of bytes_per_s. Steps are c_i / c_{i-1} - 1 messages of a ring, twice
// that for all_reduce, where a tree of 4 log2(c_i / c_{i-1}) may be shorter. Both parts overlap in
// chunks of the best size, a pipelined chain: T = (sqrt(steps) + sqrt(bytes part))^2. In-network
// reduction shortens all_reduce within a level to SWITCH_SHARE of the ring's bytes part. An
// all-to-all sends (n - c_{i-1})/n of its bytes across level i.
double ot_link_collective_s(const ot_simulation *simulation, const ot_collective *collective);

// The part of `device_s`, the time of `collective`, in which it slows down concurrent kernels. It
// takes processors of the device as long as it runs (NCCL's channels, which also wait), and
// memory bandwidth while its bytes move: over the innermost links they keep the device busy, over a
// slow network hardly. A quarter counts by time, the rest by bytes at the rate of the innermost
// links.
double ot_link_load_s(const ot_simulation *simulation, const ot_collective *collective,
                      double device_s);

// A message between two devices: latency + bytes.
double ot_link_message_s(const ot_link_level *level, double bytes);
