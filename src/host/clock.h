// SPDX-License-Identifier: Apache-2.0
// The time of this machine.
#pragma once

// Seconds on a clock that only goes forward.
double ot_clock_s(void);
