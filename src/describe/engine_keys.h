// SPDX-License-Identifier: Apache-2.0
// The table of an engine file: what a framework does in a step, with units and ranges.
#pragma once

#include "base/schema.h"
#include "describe/engine.h"

extern const ot_schema ot_engine_schema;

// Reads `tree` into `out` and checks it; text lives in `arena`. OT_USAGE where it takes the name of
// this program, whose figures are its schedules'.
ot_status ot_engine_read(const ot_node *tree, ot_arena *arena, ot_engine *out);

// The same as a tree to be written.
ot_node *ot_engine_write(const ot_engine *engine, ot_arena *arena);
