// SPDX-License-Identifier: Apache-2.0
// Is a resumed run where its checkpoint left it? Weights, moments and master copies in memory, put
// together from all ranks, against the files, bit by bit; step, next sample and tokens against the
// manifest.
#pragma once

#include "audit/audit_report.h"
#include "train/trainer.h"

// For a trainer that has resumed from `path` and taken no step since. Findings are added on the
// leader, which also counts the tensors that were `compared`. Collective over the world. Blocks.
ot_status ot_resume_check(ot_trainer *trainer, const char *path, ot_arena *arena,
                          ot_audit_report *report, int64_t *compared);
