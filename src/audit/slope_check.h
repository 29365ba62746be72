// SPDX-License-Identifier: Apache-2.0
// Is the gradient the derivative of the loss, and the loss that of the model? On one rank, so that
// what every layout has in common is looked at, too: the loss of a training step on one micro-batch
// against that of the forward that hands out logits, in float64; then, tensor by tensor, the slope
// of the latter along the gradient against the gradient's length. A constant that forward and
// backward do not share (an epsilon, a window, a scale, a mask) shows, as does a tensor that is not
// differentiated. The losses of routers are part of both. Dropout is off for it.
#pragma once

#include "audit/audit_report.h"
#include "audit/probe.h"
#include "train/trainer.h"

typedef struct ot_slope_figures {
  bool left_out;   // one rank would need more than most_bytes
  int tensors;     // compared
  double largest;  // relative difference of a slope
} ot_slope_figures;

typedef struct ot_slope_request {
  ot_trainer *trainer;
  const ot_probe_weights *weights;  // on the leader
  int64_t most_bytes;               // of memory that a trainer on one rank may take
  int most_tensors;                 // looked at; two forwards each
} ot_slope_request;

// For the leader to call. Blocks.
ot_status ot_slope_check(const ot_slope_request *request, ot_arena *arena, ot_audit_report *report,
                         ot_slope_figures *figures);
