// SPDX-License-Identifier: Apache-2.0
// Prices of a worker (rl.costs) on a described cluster, where a worker is one device: decode steps
// of one row and of many, priced task by task as steps of training are; a scoring pass and a
// training step on a batch of average responses; the weights on their way between devices.
#pragma once

#include "base/arena.h"
#include "describe/cluster.h"
#include "describe/run.h"

typedef struct ot_rl_prices {
  ot_rl_costs costs;   // but publish_s, which depends on the split
  double *publish_s;   // [workers] by number of generators, from 1 on
  int64_t most_slots;  // of a generator: as many as its memory holds, at least 1
  int num_buckets;     // of the weights, sent one after the other
  int64_t weight_bytes, largest_bucket_bytes;
} ot_rl_prices;

// `tokens`: of a prompt and its response, on average; `generated` of these by the policy.
typedef struct ot_rl_price_request {
  const ot_run *run;
  const ot_cluster *cluster;  // with at least rl.workers devices
  double tokens, generated;
} ot_rl_price_request;

// OT_USAGE if the cluster lacks a rate or devices, or memory for one response.
ot_status ot_rl_prices_build(const ot_rl_price_request *request, ot_arena *arena,
                             ot_rl_prices *out);
