// SPDX-License-Identifier: Apache-2.0
// Estimate of a candidate: seconds of a step, by term, and bytes of its fullest rank, by class. The
// schedule builders make the tasks of each distinct block and the simulator prices them. The
// estimate assigns blocks to chunks, replays the pipeline schedule as events, and adds gathers,
// reductions, norm and update.
#pragma once

#include "base/arena_pool.h"
#include "estimate/result.h"

// Costs that candidates share (blocks by tp, cp, micro-batch size, recompute) are cached between
// calls.
typedef struct ot_estimator ot_estimator;

// Keeps `job`. Allocated in `arena`. OT_USAGE as ot_job_check, or if the cluster lacks a rate.
ot_status ot_estimator_build(const ot_job *job, ot_arena *arena, ot_estimator **out);

// Memory of one call of the estimator, which others may use between its calls.
ot_arena_pool *ot_estimator_scratch(ot_estimator *estimator);

// `candidate` must have passed its check. Cost: O(stages x chunks x micro-batches) once the prices
// of its blocks are known.
ot_status ot_estimate_build(ot_estimator *estimator, const ot_candidate *candidate,
                            ot_estimate *out);

// The same, but if memory does not fit, the step may be left out: then all but memory may be zero.
ot_status ot_estimate_fitting(ot_estimator *estimator, const ot_candidate *candidate,
                              ot_estimate *out);

// The slowdown of the kernels of `candidate` on a measured machine whose ranks share cores, from
// the schedules of its run; for ot_job.stretch. Engine orthant.
ot_status ot_estimator_stretch(ot_estimator *estimator, const ot_candidate *candidate,
                               double *stretch);

// Layers of each chunk of the pipeline, in model order, in `arena`.
//   out  [num_chunks]
ot_status ot_estimate_chunks(ot_estimator *estimator, const ot_candidate *candidate,
                             ot_arena *arena, int **out, int *num_chunks);

// Estimates of the pipeline stages [candidate->pp], in `arena`.
ot_status ot_estimate_stages(ot_estimator *estimator, const ot_candidate *candidate,
                             ot_arena *arena, ot_stage_estimate **out);

// Estimates of the chunks of the pipeline, in model order, in `arena`.
ot_status ot_estimate_chunk_works(ot_estimator *estimator, const ot_candidate *candidate,
                                  ot_arena *arena, ot_chunk_estimate **out, int *num_chunks);

// The replayed step of `candidate`, in `arena`.
ot_status ot_estimate_replay(ot_estimator *estimator, const ot_candidate *candidate,
                             ot_arena *arena, ot_replayed_step *out);
