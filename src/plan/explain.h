// SPDX-License-Identifier: Apache-2.0
// Why a plan is as it is: the recipe as a chain of problem and fix, in sentences made from the
// numbers of the estimate, and what other plans lose against it, term by term.
#pragma once

#include "base/arena.h"
#include "plan/estimate.h"
#include "plan/limits.h"

typedef struct ot_reasons {
  int num;
  const char **text;  // [num] one sentence each
} ot_reasons;

typedef struct ot_explanation {
  const ot_job *job;
  const ot_bill *bill;
  const ot_limits *limits;
  const ot_estimate *best;
  ot_estimator *estimator;  // of the job: decisions are held against others; null: they are not
} ot_explanation;

// What is said of zb-h2.
extern const char ot_explain_barrier[];

// From the bill to the exposed collectives of `best`. Lives in `arena`.
void ot_explain_best(const ot_explanation *e, ot_arena *arena, ot_reasons *out);

// "exposed dp +62.8 ms, compute -21.6 ms": what `other` takes more of each term of the step than
// `best`, largest first, at most `most` of them; none of less than a thousandth of the step.
const char *ot_explain_terms(const ot_estimate *other, const ot_estimate *best, int most,
                             ot_arena *arena);

// What `other` does differently from `best`, and what each term of its step costs or saves.
void ot_explain_other(const ot_explanation *e, const ot_estimate *other, ot_arena *arena,
                      ot_reasons *out);

// What of `candidate` is outside the runs of other people that prices were compared with
// (docs/published.md): "pp 64 (at most 8)", "engine orthant on h100"; the most is that of runs with
// the engine, or of all on the device where it has none. Nothing on a machine that was measured.
void ot_explain_beyond(const ot_job *job, const ot_candidate *candidate, ot_arena *arena,
                       ot_reasons *out);
