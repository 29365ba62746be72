// SPDX-License-Identifier: Apache-2.0
// How far a run of a model with experts is from another choice of them. A choice is a step: where
// two experts are as good as equal, rounding decides, and two runs that differ by rounding alone
// train different experts. Fixtures in float32 are such that this cannot be.
#pragma once

#include "support/rank_case.h"

// Four times what float32 does to scores of the largest cases, 64 sequences in 16 layers: 5e-7. Of
// their 65,536 choices the closest is, in one draw of ten, no closer.
#define RANK_LEAST_MARGIN 2e-6

// The least difference, over all tokens, layers and steps, between the worst expert (or group of
// experts) that is chosen and the best one that is not, on one rank. Infinite where nothing is
// chosen. Fails the test when the choice that was made is not the one these scores say.
double rank_routing_margin(const rank_request *request);

// Gives `request` sequences for which the margin is no less than RANK_LEAST_MARGIN, the first of
// some that are tried; fails the test when there are none.
void rank_settle(rank_request *request);
