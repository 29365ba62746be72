// SPDX-License-Identifier: Apache-2.0
// The table of an engine file: the behaviour of a framework in a step, with units and ranges.
#pragma once

#include "base/schema.h"
#include "describe/engine.h"

extern const ot_schema ot_engine_schema;

// Parses `tree` into `out` and checks it; text is allocated in `arena`. OT_USAGE for the name of
// Orthant, which is not described by a file.
ot_status ot_engine_read(const ot_node *tree, ot_arena *arena, ot_engine *out);

// The same as a tree for writing.
ot_node *ot_engine_write(const ot_engine *engine, ot_arena *arena);
