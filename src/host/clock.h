// SPDX-License-Identifier: Apache-2.0
// The clocks of this machine.
#pragma once

// Seconds on a clock that never goes back.
double ot_clock_s(void);

// Seconds of CPU time of the calling thread. A system call.
double ot_clock_thread_s(void);

// Seconds since 1970 UTC, for records that outlive the process; may be set back.
double ot_clock_unix_s(void);
