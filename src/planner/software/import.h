// SPDX-License-Identifier: Apache-2.0
// Configurations of other software, as far as they determine the cost of a step: flags of
// Megatron-LM and Megatron-DeepSpeed (a shell script, a file of flags or a YAML map of them),
// torchtitan's TOML, YAML of nanotron, NeMo, Megatron-Bridge and MaxText, DeepSpeed's JSON; also
// inside a script that writes them by a here-document (export.h). The format is detected from the
// content. Pure: files/import_file.h opens files.
#pragma once

#include "software/imported.h"

typedef struct ot_import_request {
  const char *path;  // for messages, and for files next to it
  const char *name;  // the last part of the path
  const char *text;  // [bytes], ends in zero
  int64_t bytes;
  const ot_import_host *host;
} ot_import_request;

// Results are allocated in `arena`. OT_USAGE names path, line, key and the allowed values.
ot_status ot_import_text(const ot_import_request *request, ot_arena *arena, ot_imported *out);
