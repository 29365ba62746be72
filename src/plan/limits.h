// SPDX-License-Identifier: Apache-2.0
// Limits of a job that hold whatever the plan: how many devices sharded data parallelism can feed
// before its gathers take longer than the compute that hides them, how many the batch can feed at
// all, and how far tensors can be cut. Bandwidth only: latency comes on top of it in estimates.
//
// A micro-batch of T tokens a device computes 2 T N flops forward while N_g parameters come in over
// the links of its domain, d links of BW each (a ring that holds all devices of a domain crosses
// its edge once and uses every link). So, each phase by itself, since the gathers of the forward
// pass cannot hide under the backward pass:
//   forward   T >= gather_bytes x C / (2 d BW) x N_g / N
//   backward  T >= (gather_bytes x regathered + reduce_bytes) x C / (4 d BW) x N_g / N
#pragma once

#include "plan/bill.h"

// What a device computes and pulls in for a micro-batch.
typedef struct ot_gather_traffic {
  double flops_per_s;    // of one device, as reached
  double forward_flops;  // of a token; the backward pass has twice as many
  double parameters;     // that come from elsewhere
  double gather_bytes;   // of a parameter on the wire
  double reduce_bytes;   // of its gradient on the wire
  bool regathered;       // once more for the backward pass
} ot_gather_traffic;

// Tokens of a micro-batch on each device below which the links are waited for.
typedef struct ot_token_floor {
  double forward, backward;
} ot_token_floor;

// With `bytes_per_s` into a device, as much as d BW.
ot_token_floor ot_token_floor_of(const ot_gather_traffic *traffic, double bytes_per_s);

// The most devices that so many tokens a step keep busy. Gathers inside a group of
// cluster->level[i] share the links of the levels below (d = the size of the level before it), or,
// with `flat`, each device has its own link alone.
double ot_crossover_devices(const ot_gather_traffic *traffic, const ot_cluster *cluster,
                            double tokens, bool flat);

// Tokens of a step from which a larger batch saves no steps in proportion, for a run of `tokens`.
double ot_critical_batch_tokens(double tokens);

typedef struct ot_limits_request {
  const ot_job *job;
  const ot_bill *bill;
  double flops_per_s;            // of one device while its kernels run
  double critical_batch_tokens;  // as measured; 0: the law for job->tokens
  double step_flops_per_s;       // the model's FLOPs on one device over the whole step
} ot_limits_request;

typedef struct ot_limits {
  double flops_per_s, step_flops_per_s;  // of the request
  double critical_batch_tokens;          // 0: neither measured nor a length known
  int64_t batch_floor_devices;           // with one sequence each, that the critical batch feeds
  ot_token_floor floor;                  // of a gather over all devices of the job
  int64_t crossover_devices;             // at the job's batch
  int64_t crossover_flat_devices;        // the same, were each device alone with its link
  int64_t crossover_critical_devices;    // at the critical batch
  int64_t crossover_replicated_devices;  // at the job's batch, weights whole on each device: only
                                         // gradients travel, once a step
  double tensor_ways;  // at more, the traffic of tensor parallelism takes longer than its products
} ot_limits;

void ot_limits_build(const ot_limits_request *request, ot_limits *out);
