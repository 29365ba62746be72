// SPDX-License-Identifier: Apache-2.0
// Estimates a plan with one decision changed and all else equal. Ranks that an axis gives up go to
// dp, and vice versa.
#pragma once

#include "base/arena.h"
#include "plan/estimate.h"

typedef struct ot_what_if {
  ot_estimator *estimator;  // null: no sentences
  const ot_job *job;
  const ot_estimate *best;
} ot_what_if;

// "; tp 4 with dp 256 takes 7.5 s (+5.0%: exposed tp +310 ms)", "... needs 142 GB of 80 GB", or why
// it cannot run; "" if there is no such configuration. In `arena`.
const char *ot_what_if_tp(const ot_what_if *w, int tp, ot_arena *arena);
const char *ot_what_if_pp(const ot_what_if *w, int pp, ot_arena *arena);
const char *ot_what_if_cp(const ot_what_if *w, int cp, ot_arena *arena);
const char *ot_what_if_ep(const ot_what_if *w, int ep, ot_arena *arena);
const char *ot_what_if_zero(const ot_what_if *w, int zero, ot_arena *arena);

// The fastest plan with states sharded over all devices (zero 3) and no other parallelism: "takes
// 24.3 s (+14.1%: ...) with ...", "needs 142 GB of 80 GB" or "cannot run: ..."; "" as above.
const char *ot_what_if_sharded(const ot_what_if *w, ot_arena *arena);
const char *ot_what_if_recompute(const ot_what_if *w, ot_recompute recompute, ot_arena *arena);
const char *ot_what_if_pipeline(const ot_what_if *w, ot_pipeline pipeline, ot_arena *arena);
