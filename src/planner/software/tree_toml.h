// SPDX-License-Identifier: Apache-2.0
// TOML as trees (base/tree.h).
#pragma once

#include "base/tree.h"

// The subset of TOML 1.0 used by training configurations: tables, bare and quoted keys, single-line
// strings, numbers, booleans, lists. Dates, inline tables, arrays of tables and dotted keys outside
// headers are OT_USAGE.
ot_status ot_tree_parse_toml(const ot_tree_origin *origin, const char *text, int64_t bytes,
                             ot_arena *arena, ot_node **out);
