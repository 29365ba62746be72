// SPDX-License-Identifier: Apache-2.0
// Experts of other software, spread over the ranks of ep. Blocks are built with all experts on each
// rank; what this changes is counted here: a rank holds a part of the experts, multiplies as many
// rows in fewer and larger groups (simulate/price_kernel.c), and sends rows to where their experts
// are and back. Routing is taken to be even, as published runs force it to be. Private to plan/.
#pragma once

#include "plan/estimator.h"

// Elements of the routed experts that a rank holds of blocks of kind `kind`; 0 when they have none.
double ot_expert_elements(const ot_estimator *estimator, const ot_candidate *candidate, int kind);

// Ranks that hold the same experts: those that their gradients are summed over.
ot_group_shape ot_expert_replicas(const ot_candidate *candidate);

// Adds dispatch and combination, forward, backward and where the layer is made again.
ot_status ot_expert_prices_add(const ot_estimator *estimator, const ot_prices *prices, int kind,
                               ot_block_price *to);

// Whether ep goes with the model and the other degrees. OT_USAGE naming what does not fit.
ot_status ot_expert_check(const ot_job *job, const ot_candidate *candidate);
