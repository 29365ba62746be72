// SPDX-License-Identifier: Apache-2.0
// The settings of a run for trainers that audits make: on the run's layout, or as one rank would
// train with them, which is what a layout is compared with.
#pragma once

#include "base/status.h"
#include "describe/run.h"
#include "train/trainer.h"

// `run` at a learning rate of zero, so that a step leaves the weights what they were and gradients
// to look at; without validation and audits. Borrows from `run`.
ot_run ot_still_run(const ot_run *run);

// The same on one rank, with sums in full precision. `whole`: steps of the run's global batch, else
// of one micro-batch. Borrows from `run`.
ot_run ot_one_rank_run(const ot_run *run, bool whole);

// Bytes that a step of `run` takes on this rank of `team` (null: one rank).
ot_status ot_run_bytes(const ot_run *run, const ot_team *team, int64_t *bytes);
ot_status ot_one_rank_bytes(const ot_run *one, int64_t *bytes);

// Bytes that an audit may take on a rank beside the run of `trainer`: 1 GiB.
int64_t ot_audit_bytes(const ot_trainer *trainer);
