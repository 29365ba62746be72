// SPDX-License-Identifier: Apache-2.0
// Whether the software of a job can run it (describe/abilities.h).
#pragma once

#include "describe/job.h"

// OT_USAGE names what `engine` does not run of a candidate, and the software that does.
ot_status ot_ability_check(const ot_engine *engine, const ot_candidate *candidate);

// The same for a job that is searched: model, precision, hosts and given degrees.
ot_status ot_ability_check_job(const ot_job *job);
