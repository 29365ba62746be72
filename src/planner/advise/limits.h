// SPDX-License-Identifier: Apache-2.0
// Limits of a job that hold for every plan: the number of devices above which gathers of sharded
// data parallelism take longer than the compute that hides them, the number that the batch has
// sequences for, and the largest useful tp. By bandwidth only: estimates add latency.
//
// For a micro-batch of T tokens a device computes 2 T N FLOPs forward, while N_g parameters arrive
// over the d links of its domain with bandwidth BW each (a ring over all devices of a domain
// crosses its edge once and uses every link). Each phase by itself, since gathers of the forward
// cannot overlap the backward:
//   forward   T >= gather_bytes x C / (2 d BW) x N_g / N
//   backward  T >= (gather_bytes x regathered + reduce_bytes) x C / (4 d BW) x N_g / N
#pragma once

#include "advise/model_totals.h"

// Compute and incoming traffic of a device per micro-batch.
typedef struct ot_gather_traffic {
  double flops_per_s;    // attained by one device
  double forward_flops;  // per token; the backward has twice as many
  double parameters;     // held by other ranks
  double gather_bytes;   // per parameter sent
  double reduce_bytes;   // per gradient sent
  bool regathered;       // gathered again for the backward
} ot_gather_traffic;

// Tokens of a micro-batch per device below which communication is exposed.
typedef struct ot_token_floor {
  double forward, backward;
} ot_token_floor;

// `bytes_per_s`: incoming bandwidth of a device, d BW.
ot_token_floor ot_token_floor_of(const ot_gather_traffic *traffic, double bytes_per_s);

// The largest number of devices that `tokens` per step keep compute-bound. Gathers inside a group
// of cluster->level[i] share the links of the levels below (d = the size of the level before it).
// With `flat`, each device uses only its own link.
double ot_crossover_devices(const ot_gather_traffic *traffic, const ot_cluster *cluster,
                            double tokens, bool flat);

// Seconds of a step of `tokens` with weights sharded over `devices`, as one micro-batch, by
// bandwidth alone: computation, and traffic that it may hide, each of forward and backward.
typedef struct ot_sharded_step {
  double forward_s, backward_s;
  double gather_s;  // during the forward
  double reduce_s;  // gathers and reductions during the backward
} ot_sharded_step;

ot_sharded_step ot_sharded_step_of(const ot_gather_traffic *traffic, const ot_cluster *cluster,
                                   double tokens, int devices, bool flat);

// Tokens per step beyond which a larger batch does not reduce steps in proportion, for a run of
// `tokens`.
double ot_critical_batch_tokens(double tokens);

typedef struct ot_limits_request {
  const ot_job *job;
  const ot_model_totals *totals;
  double flops_per_s;            // one device, during kernels
  double critical_batch_tokens;  // measured; 0: the scaling law for job->tokens
  double step_flops_per_s;       // one device, model FLOPs over the whole step
} ot_limits_request;

// The limits of a job; a mixed cluster has only the first four.
typedef struct ot_limits {
  double flops_per_s, step_flops_per_s;  // from the request
  double critical_batch_tokens;          // 0: neither measured nor derivable
  int64_t batch_floor_devices;           // the critical batch with one sequence per device
  ot_token_floor floor;                  // for a gather over all devices of the job
  int64_t crossover_devices;             // at the job's batch
  int64_t crossover_flat_devices;        // the same if each device uses only its own link
  int64_t crossover_critical_devices;    // at the critical batch
  int64_t crossover_replicated_devices;  // at the job's batch, weights replicated: only
                                         // gradients are reduced, once a step
  double tensor_ways;                    // above it, tp communication takes longer than its GEMMs
} ot_limits;

// The traffic of the job's sharded weights (zero 3).
ot_gather_traffic ot_limits_traffic(const ot_limits_request *request);

void ot_limits_build(const ot_limits_request *request, ot_limits *out);
