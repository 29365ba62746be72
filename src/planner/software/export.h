// SPDX-License-Identifier: Apache-2.0
// A planned configuration as other software's own: one shell script that writes a configuration
// file where the software has one, and starts it on each host. What is written here, import.h reads
// back as the same job; a test compares both over many layouts. Each writer names the version whose
// spellings it uses.
#pragma once

#include "base/text_builder.h"
#include "describe/job.h"

typedef struct ot_export {
  const ot_job *job;
  const ot_candidate *candidate;
  const int *layers;  // [num_chunks] of each pipeline chunk, in model order
  int num_chunks;
  const char *model_name;  // a preset's, or as given by the user
  const char *summary;     // the plan and what it was predicted to take
  int ranks_per_host;
} ot_export;

// Appends the script for job->engine->software. OT_USAGE names what that software cannot be
// configured to run, and what it can.
ot_status ot_export_write(const ot_export *plan, ot_text_builder *out);
