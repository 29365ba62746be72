// SPDX-License-Identifier: Apache-2.0
// A step of AdamW, made once more: the gradient norm over every element of the model once, the clip
// factor, learning rate and bias corrections from the settings, moments, weights and master copies
// at some elements of every tensor from what they were before and the gradient that was summed.
// Whatever a layout does on the way, each number of the step must come out (ops/optimizer.h).
// Tensors that Muon updates are looked at no further than their norm.
#pragma once

#include "audit/audit_report.h"
#include "train/trainer.h"

typedef struct ot_update_figures {
  int64_t elements;   // looked at, in each copy
  double norm;        // recomputed
  double difference;  // largest, of an update, relative to it
} ot_update_figures;

// The trainer takes its next step, whose report is `step`. Findings are added on the leader.
// Collective over the world. Blocks.
ot_status ot_update_check(ot_trainer *trainer, ot_arena *arena, ot_audit_report *report,
                          ot_step_report *step, ot_update_figures *figures);
