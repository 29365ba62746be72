// SPDX-License-Identifier: Apache-2.0
// The best plan at each point of a grid of option values (`orthant plan --sweep`), and the fewest
// devices that end a run in time (`--deadline`).
#pragma once

#include "cli/plan_request.h"

// Searches every combination of the values of --sweep and prints a line of CSV for each, or one
// JSON document. A combination that is invalid or does not fit has its reason in place of figures.
ot_status ot_plan_sweep(const ot_options *options);

// The fewest devices of the cluster (halved from all of them, or from --gpus) whose run ends within
// --deadline: `out` is `options` with them as --gpus. OT_FINDINGS where none does.
ot_status ot_plan_deadline(const ot_options *options, ot_deadline *deadline,
                           const ot_options **out);
