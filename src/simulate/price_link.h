// SPDX-License-Identifier: Apache-2.0
// What a collective takes on a cluster of nested levels, by a library that knows them. Private to
// simulate/.
#pragma once

#include "simulate/price.h"

// Seconds on the wires. The ranks of `collective` are devices of `cluster`.
//
// Level i of the cluster joins c_i of the n members (c_-1 = 1, the last c = n). Members of a group
// of level i - 1 use their own links side by side, so that level passes S bytes in
//
//   (n-1)/n S / (c_{i-1} bytes_per_s efficiency)         twice that for all_reduce
//
// and the slowest level sets the pace; of a mesh of p places, c_i / c_{i-1} of them have
// (c_i / c_{i-1} - 1) / (p - 1) of bytes_per_s. Steps
// are c_i / c_{i-1} - 1 messages of a ring, twice that for all_reduce, where a tree of
// 4 log2(c_i / c_{i-1}) may be shorter. Both parts overlap in chunks of the best size, a pipelined
// chain: T = (sqrt(steps) + sqrt(bytes part))^2. Switches that add up shorten all_reduce within
// their level to SWITCH_SHARE of the ring's bytes part. An exchange of everyone with everyone has
// (n - c_{i-1})/n of its bytes cross level i.
double ot_link_collective_s(const ot_simulation *simulation, const ot_collective *collective);

// A message between two devices: latency + bytes.
double ot_link_message_s(const ot_link_level *level, double bytes);
