// SPDX-License-Identifier: Apache-2.0
// Files with configurations of other software, as far as they determine the cost of a step: flags
// of Megatron-LM and Megatron-DeepSpeed (a shell script, a file of flags or a YAML map of them),
// torchtitan's TOML, YAML of nanotron, NeMo, Megatron-Bridge and MaxText, DeepSpeed's JSON; also
// inside a script that writes them by a here-document (export/). The format is detected from the
// content.
#pragma once

#include "files/config_file.h"
#include "software/imported.h"

// Parses the file at `path`; results are allocated in `arena`. Relative names of presets are looked
// up in `presets`. OT_ENVIRONMENT for an unreadable file, OT_USAGE naming file, line, key and the
// allowed values.
ot_status ot_import_read(const char *path, const ot_presets *presets, ot_arena *arena,
                         ot_imported *out);
