// SPDX-License-Identifier: Apache-2.0
// The checks of the step audit, and their shared state. All are collective over the world and
// block; findings and figures are on the leader.
#pragma once

#include "audit/audit_report.h"
#include "train/trainer.h"

typedef struct ot_step_audit {
  ot_trainer *trainer;
  ot_world *world;
  const ot_run *run;
  ot_runtime *runtime;
  ot_audit_report *report;
  ot_position before;        // the step
  ot_step_report step;       // that was taken
  int64_t resumed;           // tensors compared with a checkpoint
  const char *left_out;      // why the step was not recorded for the judge, or null
  const char *open;          // what the judge leaves open, or why it has no verdict; or null
  bool judged;               // it has one
  int gradients;             // tensors whose gradients it compared
  double gradient_error;     // largest, in own errors (docs/judge.md)
  int64_t elements;          // elements of updates compared, in each copy
  double norm;               // of gradients, recomputed
  double update_difference;  // largest relative difference of an update
  bool slopes_left_out;      // one rank would need more memory than it may use
  int slopes;                // tensors compared
  double slope_difference;   // largest, relative
} ot_step_audit;

// Checks that a resumed run continues where its checkpoint ended. Weights, moments and master
// copies in memory, collected from all ranks, against the files at `path`, bit by bit; step, next
// sample and tokens against the manifest. For a trainer that has just resumed from there and taken
// no step.
ot_status ot_step_check_resume(ot_step_audit *audit, const char *path);

// Takes the next step; if the run and its size allow it, records and judges it: loss, gradients,
// copies, norm, clipping and update, by a second implementation. A record that fails, as where
// ranks share no folder, is left open.
ot_status ot_step_check_record(ot_step_audit *audit);

// Takes the next step (ot_step_check_record) and recomputes the gradient norm over each element of
// the model once. If there is no verdict of the judge, and of the weights that are stored in fewer
// bits than their master copies, compares with the settings: clip factor, learning rate and bias
// corrections; moments, weights and master copies at some elements of every tensor, which follow
// from their previous values and the reduced gradient. Whatever the layout does, each number of the
// step must match (ops/optimizer.h). Only the norm is checked of tensors that an optimizer other
// than AdamW updates.
ot_status ot_step_check_update(ot_step_audit *audit);

// Checks the batches of the step. Alone: a target is the next token; positions increase from the
// beginning of each document, where the mask restarts; a token without a next token in its document
// has no target. Against the run: sample numbers follow from position and rank only, and the data
// are read again.
ot_status ot_step_check_batches(ot_step_audit *audit);

// Checks that the gradient is the derivative of the loss, and the loss that of the model. On one
// rank, so that faults common to all layouts show, too: the loss of a training step on one
// micro-batch against that of the evaluation forward in float64; then, tensor by tensor, the slope
// of the latter along the gradient against the gradient's length. A constant that forward and
// backward do not share (epsilon, window, scale, mask) shows, as does a tensor that is not
// differentiated. Router losses are part of both. Dropout is off. Not where the judge has a
// verdict, unless there are router losses.
ot_status ot_step_check_slopes(ot_step_audit *audit);
