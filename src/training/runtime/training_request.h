// SPDX-License-Identifier: Apache-2.0
// The requests of training for its ranks.
#pragma once

#include "schedule/planned_run.h"

// ot_rank_request_train with the compute order that parallel.order_csv names. The back end is the
// CPU's, for others to replace. Lists are in `arena`. Reads a file; local.
ot_status ot_training_request(const ot_run *run, const ot_mesh *mesh, int rank, ot_arena *arena,
                              ot_rank_request *out);

// Sets the compute order of `planned` to that which its run names, in `arena`. Reads a file; local.
ot_status ot_training_read_order(ot_planned_run *planned, ot_arena *arena);
