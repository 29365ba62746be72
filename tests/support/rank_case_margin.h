// SPDX-License-Identifier: Apache-2.0
// Distance of a MoE run from another choice of experts. Top-k is a step function: if two scores are
// nearly equal, rounding decides, and two runs that differ only by rounding train different
// experts. The float32 fixtures exclude this case.
#pragma once

#include "support/rank_case.h"

// Four times the float32 error of the scores in the largest cases, 64 sequences in 16 layers: 5e-7.
// In one draw of ten, none of their 65,536 choices is closer than this.
#define RANK_LEAST_MARGIN 2e-6

// Smallest difference on one rank, over all tokens, layers and steps, between the worst chosen
// expert (or group of experts) and the best one not chosen. Infinite if there is no choice. Fails
// the test if the choice does not follow from these scores.
double rank_routing_margin(const rank_request *request);

// Sets `request` to the first tried sequences whose margin is at least RANK_LEAST_MARGIN; fails the
// test if there are none.
void rank_choose_sample(rank_request *request);
