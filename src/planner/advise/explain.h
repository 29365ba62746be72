// SPDX-License-Identifier: Apache-2.0
// Explains a plan: a chain of problems and fixes in sentences made from the estimate's numbers, and
// what other plans lose against it, term by term.
#pragma once

#include "advise/limits.h"
#include "advise/what_if.h"
#include "base/arena.h"
#include "estimate/estimate.h"

typedef struct ot_reasons {
  int num;
  const char **text;  // [num] one sentence each
} ot_reasons;

typedef struct ot_explanation {
  const ot_job *job;
  const ot_model_totals *totals;
  const ot_limits *limits;
  const ot_estimate *best;
  ot_estimator *estimator;       // to compare with alternatives; null: no comparison
  const ot_other_plans *others;  // of `best` (advise/what_if.h); null: not compared
  const ot_estimate *plans;      // [num_plans] that are shown, for their numbers
  int num_plans;
} ot_explanation;

// The sentence about zb-h2.
extern const char ot_explain_barrier[];

// Sentences from the memory breakdown to the exposed collectives of `best`. In `arena`.
void ot_explain_best(const ot_explanation *e, ot_arena *arena, ot_reasons *out);

// "exposed dp +62.8 ms, compute -21.6 ms": differences of `other` from `best` per term of the step,
// largest first, at most `most` of them; omits those below a thousandth of the step.
const char *ot_explain_terms(const ot_estimate *other, const ot_estimate *best, int most,
                             ot_arena *arena);

// Differences of `other` from `best`, and the seconds that each term of its step adds or saves.
void ot_explain_other(const ot_explanation *e, const ot_estimate *other, ot_arena *arena,
                      ot_reasons *out);

// Whether the cost model was compared with runs on the job's device, and with runs of its engine on
// that device.
bool ot_explain_device_known(const ot_job *job);
bool ot_explain_engine_known(const ot_job *job);

// Properties of `candidate` outside the published runs that the cost model was compared with
// (docs/published.md): "pp 64 (at most 8)", "engine orthant on h100". The maximum is over runs with
// the engine, or over all on the device if there are none. Empty on a measured machine.
void ot_explain_beyond(const ot_job *job, const ot_candidate *candidate, ot_arena *arena,
                       ot_reasons *out);
