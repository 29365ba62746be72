// SPDX-License-Identifier: Apache-2.0
// The checks that the audit of a step is made of, and what they share. All are collective over the
// world and block; findings and figures are those of the leader.
#pragma once

#include "audit/audit_report.h"
#include "train/trainer.h"

typedef struct ot_step_audit {
  ot_trainer *trainer;
  ot_team *team;
  const ot_run *run;
  ot_instance *instance;
  ot_audit_report *report;
  ot_position before;        // the step
  ot_step_report step;       // that was taken
  int64_t resumed;           // tensors compared with a checkpoint
  int64_t elements;          // of updates compared, in each copy
  double norm;               // of gradients, recomputed
  double update_difference;  // largest, of an update, relative to it
  bool slopes_left_out;      // one rank would need more memory than it may take
  int slopes;                // tensors compared
  double slope_difference;   // largest, relative
} ot_step_audit;

// Is a resumed run where its checkpoint left it? Weights, moments and master copies in memory, put
// together from all ranks, against the files at `path`, bit by bit; step, next sample and tokens
// against the manifest. For a trainer that has resumed from there and taken no step since.
ot_status ot_step_check_resume(ot_step_audit *audit, const char *path);

// Takes the next step, and makes it once more: the gradient norm over every element of the model
// once, the clip factor, learning rate and bias corrections from the settings, moments, weights and
// master copies at some elements of every tensor from what they were before and the gradient that
// was summed. Whatever a layout does on the way, each number of the step must come out
// (ops/optimizer.h). Tensors that Muon updates are looked at no further than their norm.
ot_status ot_step_check_update(ot_step_audit *audit);

// The batches of the step. By themselves: a target is the token after it, positions count up from
// the beginning of each document and are where the mask begins anew, and what has no next token in
// its document has no target. Against the run: sample numbers follow from the position and the rank
// alone, and the data are read once more.
ot_status ot_step_check_batches(ot_step_audit *audit);

// Is the gradient the derivative of the loss, and the loss that of the model? On one rank, so that
// what every layout has in common is looked at, too: the loss of a training step on one micro-batch
// against that of the forward that hands out logits, in float64; then, tensor by tensor, the slope
// of the latter along the gradient against the gradient's length. A constant that forward and
// backward do not share (an epsilon, a window, a scale, a mask) shows, as does a tensor that is not
// differentiated. The losses of routers are part of both. Dropout is off for it.
ot_status ot_step_check_slopes(ot_step_audit *audit);
