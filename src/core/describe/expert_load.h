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

// Even shares of rows in one overflow pass, of the rank that is busiest, if micro-batches have
// `more` of them on average (> 0) and first passes hold `buffer` even shares. What its load exceeds
// an even share by is taken as exponentially distributed, the least that the mean of a positive
// quantity says of it (Jaynes 1957); so few passes are nearly empty, and many nearly full.
double ot_expert_overflow_rows(double buffer, double more);
