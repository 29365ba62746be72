// SPDX-License-Identifier: Apache-2.0
// The batches of a step, held against what they must be. By themselves: a target is the token after
// it, positions count up from the beginning of each document and are where the mask begins anew,
// and what has no next token in its document has no target. Against the run: sample numbers follow
// from the position and the rank alone, and the data are read once more.
#pragma once

#include "audit/audit_report.h"
#include "train/trainer.h"

// Looks at the batches of the step that began at `position`; adds a finding of the first rank where
// something is wrong to `report`, the same on all ranks. Collective over the world. Blocks.
ot_status ot_batch_check(ot_trainer *trainer, const ot_position *position, ot_arena *arena,
                         ot_audit_report *report);
