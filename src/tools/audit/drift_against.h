// SPDX-License-Identifier: Apache-2.0
// `audit drift --against`: log-probabilities that other software wrote for the model of the run, an
// inference server or another trainer, against those of the training forward in the run's own
// types, and both against the plain model in float64 (judge/judge_logprobs.h). Local.
#pragma once

#include "audit/audit_report.h"
#include "describe/run.h"
#include "judge/logprobs_read.h"
#include "runtime/model_runtime.h"

// Reads the file at `path`, in `arena`. Errors are those of ot_logprob_file_read; OT_USAGE, naming
// line and value, for a text that is longer than a sequence of the run or lacks its beginning, and
// for a token without an id or with one that the model lacks.
ot_status ot_drift_against_read(const char *path, const ot_run *run, ot_arena *arena,
                                ot_logprob_file *out);

typedef struct ot_drift_against {
  const ot_run *run;
  const ot_logprob_file *file;
  ot_runtime *weights;    // those of the run, on one rank
  const char *reference;  // the same as Hugging Face files; null: files do not describe the model
} ot_drift_against;

// Adds what the judge finds to `report`, its figures, and its comparisons as lines of the table.
// Without a reference, and where the judge cannot compute it, nothing is compared: inconclusive.
// OT_ENVIRONMENT if memory lacks, OT_NUMERIC if the training forward gives NaN. Blocks.
ot_status ot_drift_against_compare(const ot_drift_against *request, ot_audit_report *report);
