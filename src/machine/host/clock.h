// SPDX-License-Identifier: Apache-2.0
// The clocks of this machine.
#pragma once

#include <stdbool.h>
#include <time.h>

// Seconds on a clock that never goes back.
double ot_clock_s(void);

// Whether a thread that sleeps for at most a tenth of a second at a time belongs to a process that
// was stopped or suspended in the `gap_s` seconds since it last ran.
static inline bool ot_clock_was_stopped(double gap_s) { return gap_s > 0.5; }

// Seconds of CPU time of the calling thread. A system call.
double ot_clock_thread_s(void);

// Seconds since 1970 UTC, for records that outlive the process; may be set back.
double ot_clock_unix_s(void);

// A duration, or a time of one of these clocks, for POSIX; seconds >= 0.
struct timespec ot_clock_timespec(double seconds);
