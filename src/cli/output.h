// SPDX-License-Identifier: Apache-2.0
// What the program says: results go to stdout, talk to stderr, colour only on a terminal that has
// not set NO_COLOR.
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "base/status.h"
#include "files/config_file.h"

// True when `stream` is a terminal that may show colours.
bool ot_output_color(FILE *stream);

// Prints the failure recorded last: "error: WHAT (WHERE)" and "help: WHAT TO TRY".
// A bug also shows the chain of calls.
void ot_output_failure(ot_status status);

// Prints what a user should know of a model's file, a line each.
void ot_output_notes(const ot_config_notes *notes);

// Makes OT_ASSERT and OT_UNREACHABLE print where and end the process with OT_BUG.
void ot_output_catch_bugs(void);

// Flushes stdout after all else is done. A pipe whose reader has left ends the program by SIGPIPE,
// without a word, as programs end that do not ignore it. Otherwise returns `status`, or
// OT_ENVIRONMENT when a good result could not be written.
ot_status ot_output_finish(ot_status status);
