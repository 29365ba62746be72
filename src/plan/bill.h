// SPDX-License-Identifier: Apache-2.0
// The bill of a model under a precision recipe, before anything is split: parameters, bytes of
// weights, gradients and optimizer state, and work of a token. 7 G parameters in bf16 take 7 x 16 =
// 112 GB, so two devices of 80 GB at least.
#pragma once

#include "plan/job.h"

typedef struct ot_bill {
  int64_t parameters;
  int64_t active_parameters;  // that one token meets: all but the experts it is not sent to
  double multiplied;          // elements of matrices that a token is multiplied with: the head
                              // counts, the look-up of its embedding does not
  double forward_flops_per_token;
  double flops_per_token;             // forward and backward; causal attention counts half
  double bytes_per_parameter;         // all states
  double moment_bytes_per_parameter;  // of the mean parameter, both moments together
  int64_t weight_bytes, gradient_bytes, optimizer_bytes;  // of the whole model
  int64_t state_bytes;                                    // their sum
  int64_t min_devices_for_state;                          // whose memory holds them, and no more
} ot_bill;

// Reads model, recipe, cluster->device and sequence_length of `job`.
void ot_bill_build(const ot_job *job, ot_bill *out);
