// SPDX-License-Identifier: Apache-2.0
// The best plans with one decision of a plan changed. Axes and ZeRO stages: of all plans, as the
// search found them, so that no sentence contradicts a plan that is shown.
#pragma once

#include "base/arena.h"
#include "search/search.h"

enum { OT_MOST_OTHERS = 12 };

// The parts of the search that are compared with a plan, and the fastest plan of each.
typedef struct ot_other_plans {
  int num;
  ot_search_part part[OT_MOST_OTHERS];
  ot_search_found found[OT_MOST_OTHERS];
  double below_s;  // slower plans are not searched
} ot_other_plans;

// Fills all but found: the neighbours of `best` whose times its explanation states.
void ot_other_plans_choose(const ot_job *job, const ot_estimate *best, ot_other_plans *out);

typedef struct ot_what_if {
  ot_estimator *estimator;  // null: no sentences
  const ot_job *job;
  const ot_estimate *best;
  const ot_other_plans *others;  // null: what the search has to find is left out
  const ot_estimate *plans;      // [num_plans] that are shown, for their numbers
  int num_plans;
} ot_what_if;

// "; the best plan with tp 4, plan 3, takes 7.5 s (+5.0%: exposed tp +310 ms)", "; no plan with tp
// 4 takes less than 7.2 s; one takes 7.5 s (+5.0%: ...)" where a faster one is not ruled out, "; no
// plan with tp 4 takes less than 9 s (with dp 256 it needs 142 GB of 80 GB)", or, where the job
// fixes another value, the plan with all else equal; ranks that an axis gives up go to dp, and vice
// versa. "" if there is no such configuration. In `arena`.
const char *ot_what_if_tp(const ot_what_if *w, int tp, ot_arena *arena);
const char *ot_what_if_pp(const ot_what_if *w, int pp, ot_arena *arena);
const char *ot_what_if_cp(const ot_what_if *w, int cp, ot_arena *arena);
const char *ot_what_if_ep(const ot_what_if *w, int ep, ot_arena *arena);

// The same with the degrees of the plan; of the last two, with its ZeRO stage.
const char *ot_what_if_zero(const ot_what_if *w, int zero, ot_arena *arena);
const char *ot_what_if_recompute(const ot_what_if *w, ot_recompute recompute, ot_arena *arena);
const char *ot_what_if_pipeline(const ot_what_if *w, ot_pipeline pipeline, ot_arena *arena);

// The fastest plan with states sharded over all devices (zero 3) and no other parallelism: "takes
// 24.3 s (+14.1%: ...) with ...", "needs 142 GB of 80 GB" or "cannot run: ..."; "" as above.
const char *ot_what_if_sharded(const ot_what_if *w, ot_arena *arena);
