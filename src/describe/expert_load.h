// SPDX-License-Identifier: Apache-2.0
// How uneven the loads of ranks that share experts are, and what follows for their buffers
// (ops/expert_exchange.h). Loads are in even shares: rows of all ranks over the ranks.
#pragma once

#include "describe/model.h"
#include "describe/run.h"

// The most that one rank can be chosen for. A token is with an expert once, so one rank has all
// rows of it at most, and no more than its experts.
double ot_expert_load_most(const ot_moe *moe, int ep);

// Rounds behind the first that all ranks make when the busiest one has `imbalance` even shares:
// ceil(imbalance / expert_buffer) - 1, and no more than there can be. 0 where nothing travels.
//   parallel   ep, etp, expert_buffer > 0
//   imbalance  >= 0; below 1 as 1
int ot_expert_load_rounds(const ot_moe *moe, const ot_run_parallel *parallel, double imbalance);
