// SPDX-License-Identifier: Apache-2.0
// The estimate of replicas that replay a step by themselves (ot_replay_part): first the memory of
// their stages, then the time. Private to estimate/.
#pragma once

#include "estimate/crossing_estimate.h"

typedef struct ot_part_estimate {
  ot_replay_part part;
  bool periodic;               // a few micro-batches represent all
  ot_replay_request request;   // of all micro-batches, or of these few
  ot_replay_request more;      // periodic: of some more
  ot_memory_estimate *memory;  // [stages]
  ot_stage_replay *replays;    // [stages]
} ot_part_estimate;

// Finds what the next calls need, of estimate->part.
ot_status ot_part_estimate_find(ot_part_estimate *estimate);

// Fills the memory, then the replays, in `arena`, which may be a scratch of one of their estimators
// only once all parts are found.
ot_status ot_part_estimate_begin(ot_part_estimate *estimate, ot_arena *arena);
ot_status ot_part_estimate_replay(ot_part_estimate *estimate, ot_arena *arena);

// Finds and prepares a replay of all micro-batches of `part`, in `scratch`, an arena of the
// estimator's scratch that it begins.
ot_status ot_part_estimate_prepare(const ot_replay_part *part, ot_arena *scratch,
                                   ot_replay_request *request);

// Memory of each stage, `out` [stages].
void ot_part_estimate_memory(const ot_replay_request *request, ot_arena *arena,
                             ot_memory_estimate *out);

// The memory of a rank at `stage` that has nothing yet, and the same with `bytes` of a teacher.
ot_memory_estimate ot_memory_empty(const ot_estimator *estimator, int stage);
void ot_memory_add_teacher(const ot_estimator *estimator, int64_t bytes, ot_memory_estimate *out);

// Whether a device has room for it, and whether `a` fills a larger part of its device than `b`.
bool ot_memory_has_room(const ot_memory_estimate *memory);
bool ot_memory_is_fuller(const ot_memory_estimate *a, const ot_memory_estimate *b);

// Writes what each kind of device does to `out`, where an axis crosses.
//   parts  all of out->candidate, with their memory
void ot_crossing_report(const ot_part_estimate *parts, ot_estimate *out);
