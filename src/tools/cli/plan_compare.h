// SPDX-License-Identifier: Apache-2.0
// The configurations of --compare: other files' ways to run the job of the command line.
#pragma once

#include "cli/plan_request.h"

// Reads each file of --compare, a RUN.yaml or a configuration that --from reads, into
// request->compared. OT_USAGE if it is for another model, batch or sequence length than the job, or
// does not divide its devices.
ot_status ot_plan_compare_read(const ot_options *options, ot_arena *arena,
                               ot_plan_request *request);

// A file of --compare as the page takes it: a launch script as it stands, a RUN.yaml with its model
// as one line of JSON, without names of files. Null: only the program reads it. The second takes
// scripts only, as --from does.
ot_status ot_plan_page_text(const char *path, ot_arena *arena, const char **out);
ot_status ot_plan_page_script(const char *path, ot_arena *arena, const char **out);
