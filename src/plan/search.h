// SPDX-License-Identifier: Apache-2.0
// The best candidates of a job. All combinations of degrees that the job leaves open are
// enumerated; those that cannot run are refused by rule, the rest is simulated in the order of
// their lower bounds until no bound beats the worst that is kept. So each candidate is simulated or
// rejected by a bound, and the result is that of simulating all.
#pragma once

#include "plan/estimate.h"

typedef enum ot_rejection_kind {
  OT_REJECTED_MEMORY,  // simulated, or by the bound of memory
  OT_REJECTED_SLOWER,  // by the bound of time
  OT_REJECTED_RULE,    // ot_candidate_check
  OT_REJECTION_KINDS,
} ot_rejection_kind;

// A candidate that lost, and why: the ones nearest to winning are kept.
typedef struct ot_rejection {
  ot_rejection_kind kind;
  ot_candidate candidate;
  ot_estimate_bound bound;  // of memory and time, where known
  const char *reason;
} ot_rejection;

typedef struct ot_search_request {
  const ot_job *job;
  int top;          // plans kept, >= 1
  bool exhaustive;  // simulate all that can run, whatever their bound: for tests
  bool plans_only;  // where nothing fits, nobody asks what comes nearest
  bool distinct;    // of plans with the same tp, pp, cp, ep, etp, dp and ZeRO the fastest alone
} ot_search_request;

typedef struct ot_search {
  int num_plans;
  ot_estimate *plans;      // [num_plans] that fit, fastest first; ties by ot_candidate_compare
  int64_t num_candidates;  // enumerated
  int64_t num_simulated;
  int64_t num_rejected[OT_REJECTION_KINDS];  // without simulation, and OT_REJECTED_MEMORY in all
  int num_rejections;
  ot_rejection *rejections;  // [num_rejections] at most a few of each kind
  ot_estimate nearest;       // where nothing fits: what misses by least; else zero
} ot_search;

// OT_OK also when nothing fits (num_plans 0). Lives in `arena`.
ot_status ot_search_build(const ot_search_request *request, ot_arena *arena, ot_search *out);
