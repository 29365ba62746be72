// SPDX-License-Identifier: Apache-2.0
// The settings of a run as one rank would train with them: what audits compare a layout with.
#pragma once

#include "base/status.h"
#include "describe/run.h"

// `run` on one rank, with sums in full precision and a learning rate of zero, so that a step leaves
// the weights what they were and gradients to look at. `whole`: steps of the run's global batch,
// else of one micro-batch. Borrows from `run`.
ot_run ot_one_rank_run(const ot_run *run, bool whole);

// Bytes that a step of such a run takes.
ot_status ot_one_rank_bytes(const ot_run *one, int64_t *bytes);
