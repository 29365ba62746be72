// SPDX-License-Identifier: Apache-2.0
// Engine files: YAML (describe/engine_keys.h), found as presets or paths.
#pragma once

#include "describe/engine.h"
#include "files/config_file.h"

// The engine called `name`: this program, a path (with a slash or .yaml) or a preset; lives in
// `arena`. OT_USAGE as of ot_engine_read, or naming all engines when there is none called so.
ot_status ot_engine_file_load(const char *name, const ot_presets *presets, ot_arena *arena,
                              const ot_engine **out);
