// SPDX-License-Identifier: Apache-2.0
// What benchmark programs have in common: each is a table of options and a function, as a verb of
// `orthant` is, so that all answer --help and refuse what they do not know in the same way.
#pragma once

#include "cli/options.h"

// The program. main() is in bench_program.c; the exit code is the status.
extern const ot_verb ot_bench_program;

// Before the name of a program in messages: its verb's prefix.
#define OT_BENCH_PREFIX "bench/"
