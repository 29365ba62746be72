// SPDX-License-Identifier: Apache-2.0
// Load imbalance of the ranks that share experts, and the resulting buffers
// (ops/expert_exchange.h). Loads are in even shares: rows of all ranks over the ranks.
#pragma once

#include "describe/model.h"
#include "describe/run.h"

// The largest possible load of one rank, in even shares. An expert gets a token at most once, so a
// rank gets at most all tokens once per own expert.
double ot_expert_load_max(const ot_moe *moe, int ep);

// Overflow passes of all ranks when the busiest one has `imbalance` even shares: ceil(imbalance /
// expert_buffer) - 1, limited to the possible maximum. 0 without an all-to-all.
//   parallel   ep, etp, expert_buffer > 0
//   imbalance  >= 0; below 1 as 1
int ot_expert_overflow_passes(const ot_moe *moe, const ot_run_parallel *parallel, double imbalance);
