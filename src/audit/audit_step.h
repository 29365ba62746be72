// SPDX-License-Identifier: Apache-2.0
// `audit step`: one training step, made once more by other means. Its batches (batch_check.h), its
// update (update_check.h), its loss and its gradients (slope_check.h), and what is random in it:
// every dropout must draw from a stream of its own, with the run's seed, and its gradient from the
// same; after resuming, the state that it begins with (resume_check.h). Works on any number of
// ranks, one included; what replicas must agree in is the audit of ranks.
#pragma once

#include "audit/audit_report.h"
#include "train/trainer.h"

// The trainer takes its next step; the report is that of the leader. `checkpoint` is what it has
// just resumed from, or null. Collective over the world. Blocks.
ot_status ot_audit_step(ot_trainer *trainer, const char *checkpoint, ot_arena *arena,
                        ot_audit_report *report);
