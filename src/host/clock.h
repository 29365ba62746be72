// SPDX-License-Identifier: Apache-2.0
// The monotonic clock of this machine.
#pragma once

// Seconds on a clock that never goes back.
double ot_clock_s(void);
