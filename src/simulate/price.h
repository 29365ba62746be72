// SPDX-License-Identifier: Apache-2.0
// What one task takes: the formulas of simulate.h. Private to simulate/.
#pragma once

#include "simulate/simulate.h"

// OT_USAGE unless rates are positive.
ot_status ot_price_check(const ot_simulation *simulation);

// Seconds of `task` on the rank of `schedule`, from its start or, of a message, from when both
// sides have started it.
ot_status ot_price_task(const ot_simulation *simulation, const ot_schedule *schedule,
                        const ot_task *task, double *price_s);
