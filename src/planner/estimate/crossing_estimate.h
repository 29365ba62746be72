// SPDX-License-Identifier: Apache-2.0
// The questions of an estimate and its bounds where an axis may cross kinds of device (crossing.h):
// an estimator prices those of one kind, and these functions know which one prices what. With one
// kind of device each gives what holds for all. Private to estimate/ and search/.
#pragma once

#include "estimate/crossing.h"
#include "estimate/estimator.h"

// ---- one estimator ----

// How many of `ranks` [size], a group with the first rank of each axis, are of the estimator's
// devices; 0: nothing crosses (ot_group_shape.near).
int ot_crossing_near(const ot_estimator *estimator, const ot_candidate *candidate, const int *ranks,
                     int size);

// `shape`, of a group in one stage whose first rank is of the estimator's devices, with their
// number in it.
ot_group_shape ot_crossing_shape(const ot_estimator *estimator, const ot_candidate *candidate,
                                 ot_group_shape shape);

// ---- the whole candidate ----

// Replicas that replay a step by themselves: all, or where they are of different devices, those of
// one kind.
typedef struct ot_replay_part {
  ot_estimator *estimator;
  ot_candidate candidate;  // with the micro-batches of these replicas
} ot_replay_part;

enum { OT_MOST_PARTS = OT_MAX_POOLS };

// OT_USAGE if the sequences cannot be divided.
//   out  [num_parts], at most OT_MOST_PARTS
ot_status ot_crossing_parts(ot_estimator *estimator, const ot_candidate *candidate,
                            ot_replay_part *out, int *num_parts);

// Fills request->places, in `arena`, where stages are not on consecutive devices of one kind:
// prices may be those of ot_work_prices_find (`works`).
ot_status ot_crossing_places(ot_replay_request *request, bool works, ot_arena *arena);

// Divides blocks by the time that each takes on the devices of its stage: fills cut->stages with
// contiguous chunks whose slowest is as fast as possible. Not `divided`: stages are equally fast,
// or the job gives the layers of each.
//   parallel  of the candidate's run
ot_status ot_crossing_partition(ot_estimator *estimator, const ot_candidate *candidate,
                                const ot_run_parallel *parallel, ot_stage_partition *cut,
                                bool *divided);

// FLOP/s of all devices of the job together, in recipe.products.
double ot_crossing_peak_flops(const ot_estimator *estimator);

// ---- bounds ----

// Whether a device of any kind has room for `reserved` bytes and what its runtime takes.
bool ot_crossing_has_room(const ot_estimator *estimator, int64_t reserved);

// The least time of a step whose work takes `work_s` (ot_price_step_s).
double ot_crossing_step_s(const ot_estimator *estimator, double work_s);

// Lower bound of the seconds of a step of `candidate`, which crosses, by the work of its blocks
// alone, if it were divided perfectly. Blocks are priced as those of `priced`, of which they take
// at least the share `scale`.
ot_status ot_crossing_bound(ot_estimator *estimator, const ot_candidate *candidate,
                            const ot_candidate *priced, double scale, double *seconds);
