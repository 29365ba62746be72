// SPDX-License-Identifier: Apache-2.0
// Totals of a model under a precision recipe, before any sharding: parameters, bytes of weights,
// gradients and optimizer states, and FLOPs per token. 7 G parameters in bf16 need 7 x 16 = 112 GB,
// thus at least two devices of 80 GB.
#pragma once

#include "describe/job.h"

typedef struct ot_model_totals {
  int64_t parameters;
  int64_t active_parameters;  // used by one token: excludes experts it is not routed to
  double multiplied;          // elements of the matrices that a token is multiplied with: includes
                              // the head, excludes the embedding lookup
  double forward_flops_per_token;
  double flops_per_token;      // forward and backward; half of the scores in causal attention
  double bytes_per_parameter;  // weights, gradients and optimizer states
  double moment_bytes_per_parameter;                      // both moments, mean over parameters
  int64_t weight_bytes, gradient_bytes, optimizer_bytes;  // of the whole model
  int64_t state_bytes;                                    // their sum
  int64_t min_devices_for_state;                          // by memory of the states alone
} ot_model_totals;

// Reads model, recipe, cluster->device and sequence_length of `job`.
void ot_model_totals_build(const ot_job *job, ot_model_totals *out);
