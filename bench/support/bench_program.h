// SPDX-License-Identifier: Apache-2.0
// Common interface of benchmark programs: each is a table of options and a function, like a verb of
// `orthant`, so all of them handle --help and unknown options alike.
#pragma once

#include "cli/options.h"

// The program. main() is in bench_program.c; the exit code is the status.
extern const ot_verb ot_bench_program;

// Prefix of the program name in messages.
#define OT_BENCH_PREFIX "bench/"
