// SPDX-License-Identifier: Apache-2.0
// A step of a run as a record for `orthant judge` (state/step_record.h): the calls around it. All
// are collective over the world, fail on all ranks or on none, and leave the bits of the run as
// they are.
#pragma once

#include "train/trainer.h"

// OT_USAGE unless a step of this run can be recorded as the folder `path`, which may be absent or
// empty: tokens learned from a teacher are no part of a record. Leaves nothing.
ot_status ot_step_recording_check(const ot_trainer *trainer, const char *path);

// Before ot_trainer_step: creates the folder and records the state before the step. Every rank must
// see the folder. OT_ENVIRONMENT if the disk is full; no file then remains. Keeps `path` until end.
ot_status ot_step_recording_begin(ot_trainer *trainer, const char *path);

// After it, in every case: completes the record if `status`, that of the step, is OT_OK, else
// removes it. Returns `status`, or the failure of the record.
ot_status ot_step_recording_end(ot_trainer *trainer, ot_status status,
                                const ot_step_report *report);
