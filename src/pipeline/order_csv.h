// SPDX-License-Identifier: Apache-2.0
// Compute order files (see pipeline_order.h).
#pragma once

#include "pipeline/pipeline_order.h"

// True when `text` has I and W apart somewhere.
bool ot_order_csv_splits(const char *text);

// Fills the lists of all ranks, whose num_actions and actions are there but empty. OT_USAGE naming
// line, column, entry and what is allowed. What only shows over the whole order is
// ot_pipeline_order_check's to find.
ot_status ot_order_csv_read(const char *text, ot_arena *arena, ot_pipeline_order *order);
