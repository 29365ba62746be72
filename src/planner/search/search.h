// SPDX-License-Identifier: Apache-2.0
// Finds the best candidates of a job. Enumerates all combinations of the degrees that the job
// leaves open, rejects invalid ones by rule, and simulates the rest in the order of their lower
// bounds until no bound beats the worst plan kept. Each candidate is simulated or rejected by a
// bound, so the result equals that of simulating all.
#pragma once

#include "estimate/estimate.h"

typedef enum ot_rejection_kind {
  OT_REJECTED_MEMORY,  // by simulation, or by the memory bound
  OT_REJECTED_SLOWER,  // by the time bound
  OT_REJECTED_RULE,    // ot_candidate_check
  OT_REJECTION_KINDS,
} ot_rejection_kind;

// A rejected candidate and the reason; only those closest to winning are kept.
typedef struct ot_rejection {
  ot_rejection_kind kind;
  ot_candidate candidate;
  ot_estimate_bound bound;  // memory and time, where known
  const char *reason;
} ot_rejection;

typedef struct ot_search ot_search;

typedef struct ot_search_request {
  const ot_job *job;
  int top;          // plans kept, >= 1
  bool exhaustive;  // simulate all valid candidates regardless of bounds: for tests
  bool plans_only;  // leave `nearest` out if nothing fits
  double below_s;   // keep only plans with shorter steps; 0: all
  // Called from time to time; null: never. `so_far` is incomplete.
  void (*progress)(void *context, const ot_search *so_far);
  void *progress_context;
  bool distinct;  // keep only the fastest plan of equal tp, pp, cp, ep, etp, dp and ZeRO
  // The estimator of the job without what it fixes, whose prices and memory are used; null: an own
  // one.
  ot_estimator *estimator;
  // Memory of the search, which may be reused after it; null: that of the estimator, else `arena`.
  ot_arena_pool *scratch;
} ot_search_request;

// A part of the candidates: those with these degrees and this ZeRO stage; 0, of zero -1: any.
typedef struct ot_search_part {
  int tp, pp, cp, ep, zero;
} ot_search_part;

bool ot_search_part_has(const ot_search_part *part, const ot_candidate *candidate);

struct ot_search {
  int num_plans;
  ot_estimate *plans;      // [num_plans] that fit, fastest first; ties by ot_candidate_compare
  int64_t num_candidates;  // enumerated
  int64_t num_simulated;
  int64_t num_rejected[OT_REJECTION_KINDS];  // without simulation; OT_REJECTED_MEMORY: all
  int num_rejections;
  ot_rejection *rejections;   // [num_rejections] at most a few of each kind
  ot_estimate nearest;        // if nothing fits: the smallest excess memory; else zero
  struct ot_searcher *state;  // of ot_search_parts
};

// OT_OK also if nothing fits (num_plans 0). In `arena`.
ot_status ot_search_build(const ot_search_request *request, ot_arena *arena, ot_search *out);

// The bounds and the best plan that are known for a part.
typedef struct ot_search_found {
  ot_estimate plan;  // the fastest that was priced; step_s 0: none
  double least_s;    // no plan of the part has a shorter step; plan.step_s: none is faster
} ot_search_found;

// Finds the fastest plan of each part with a step shorter than `below_s`. Continues `search` where
// it ended, for a small share of its work: a bound is left of what that does not settle. Call once,
// before another search with the same estimator or scratch.
//   out  [num_parts]
ot_status ot_search_parts(const ot_search *search, const ot_search_part *parts, int num_parts,
                          double below_s, ot_search_found *out);
