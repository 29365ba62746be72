// SPDX-License-Identifier: Apache-2.0
// The published pipeline schedules, as action lists of one rank.
#pragma once

#include "pipeline/pipeline_schedule.h"

// Appends the actions of `rank` to its list, which is empty and large enough. The kind must be
// valid for the numbers of chunks and micro-batches (ot_pipeline_check), and rank_of be looped:
// chunk c on rank c mod p; for zb-v and dualpipe-v down and back up.
void ot_pipeline_formula(const ot_pipeline_request *request, int rank, ot_arena *arena,
                         ot_pipeline_schedule *order);
