// SPDX-License-Identifier: Apache-2.0
// Pipeline schedule files (see pipeline_schedule.h).
#pragma once

#include "pipeline/pipeline_schedule.h"

// True if `text` has separate I and W anywhere.
bool ot_pipeline_csv_splits(const char *text);

// Fills the action lists of all ranks, which are allocated but empty. OT_USAGE names line, column,
// entry and allowed values. ot_pipeline_schedule_check finds errors that concern the whole
// schedule.
ot_status ot_pipeline_csv_read(const char *text, ot_arena *arena, ot_pipeline_schedule *order);
