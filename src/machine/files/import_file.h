// SPDX-License-Identifier: Apache-2.0
// Files with configurations of other software (software/import.h).
#pragma once

#include "files/config_file.h"
#include "software/import.h"

// Parses the file at `path`; results are allocated in `arena`. Relative names of presets are looked
// up in `presets`. OT_ENVIRONMENT for an unreadable file, OT_USAGE naming file, line, key and the
// allowed values.
ot_status ot_import_read(const char *path, const ot_presets *presets, ot_arena *arena,
                         ot_imported *out);
