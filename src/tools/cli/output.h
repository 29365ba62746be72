// SPDX-License-Identifier: Apache-2.0
// Output of the program: results go to stdout, messages to stderr, with colour only on a terminal
// and without NO_COLOR.
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

// Prints the notes on a model's file, one line each.
void ot_output_notes(const ot_config_notes *notes);

// Takes the numbers of the standard streams that are closed: a file of the run that got one of them
// would get the messages, too. They still cannot be written. First in a program.
void ot_output_open_streams(void);

// Makes OT_ASSERT and OT_UNREACHABLE print their place and end the process with OT_BUG.
void ot_output_catch_bugs(void);

// Flushes stdout at the end. If the reader of a pipe has closed it, ends the program silently by
// SIGPIPE, as if it were not ignored. Otherwise returns `status`, or OT_ENVIRONMENT if the result
// could not be written.
ot_status ot_output_finish(ot_status status);
