// SPDX-License-Identifier: Apache-2.0
// The weights, moments and master copies of a model in memory, as weights.h reads and writes them.
#pragma once

#include "checkpoint/weights.h"
#include "runtime/instance.h"

// `copy` of all parameters of `instance`, which must outlive it; lives in `arena`. Many ranks: all
// write, and read where rank 0 leads (ot_instance_lead_read).
ot_weight_access ot_weight_access_of(ot_arena *arena, ot_instance *instance,
                                     ot_parameter_copy copy);
