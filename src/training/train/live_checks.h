// SPDX-License-Identifier: Apache-2.0
// Audits of a running loop (ot_loop_check). Private to train/. All functions are collective over
// the world.
#pragma once

#include "train/session.h"

// Before the first step.
ot_status ot_live_checks_begin(const ot_session *s);

// After `step`: runs the audits that are due. OT_FINDINGS, naming the first finding.
ot_status ot_live_checks_run(ot_session *s, int64_t step);
