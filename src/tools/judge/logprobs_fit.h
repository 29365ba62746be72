// SPDX-License-Identifier: Apache-2.0
// Explains the log-probabilities x of a source, which differ from reference values e, by causes
// that predict other values p: d = x - e is projected on h = p - e, and a cause is confirmed when x
// - p is at rounding. Pure.
#pragma once

#include "base/arena.h"

// A row of the table of causes.
typedef struct ot_logprob_cause {
  const char *what;      // its class, one word
  const char *sentence;  // with what was done
  const char *advice;
} ot_logprob_cause;

enum { OT_LOGPROB_FP32, OT_LOGPROB_BF16, OT_LOGPROB_TYPES };

// A source and what it is compared with, token by token of a pair.
typedef struct ot_logprob_source {
  int64_t count, known;
  const double *x, *exact;  // [count] nats; exact NAN: not known, but for `known` tokens
  const double *own[OT_LOGPROB_TYPES][2];  // [count] exact with the rounding of a type, in two
                                           // orders of sums; null: not known
  double rounding[OT_LOGPROB_TYPES];       // RMS of these less exact; 0: the type is excluded
} ot_logprob_source;

// A cause with numbers, and sums over tokens.
typedef struct ot_logprob_candidate {
  const ot_logprob_cause *cause;
  const char *factor;                    // in words, or null
  int type;                              // the only one whose rounding it stands; -1: any
  double size, noise[OT_LOGPROB_TYPES];  // of a fitted number, and its rounding; 0: none is fitted
  int64_t count, apart;  // tokens; those that only one of source and cause says cannot be drawn
  double dd, dh, hh, rest;
  double own_h[OT_LOGPROB_TYPES][2];
} ot_logprob_candidate;

// Adds token `t` with the predicted value. Tokens without one are NAN.
void ot_logprob_candidate_add(ot_logprob_candidate *candidate, const ot_logprob_source *source,
                              int64_t t, double predicted);

// The smallest share of the cause that shows beyond rounding of a type, by the projection or as a
// difference; of a fitted number, the smallest change. Infinite: none.
double ot_logprob_sensitivity(const ot_logprob_candidate *candidate,
                              const ot_logprob_source *source, int type);

typedef struct ot_logprob_verdict {
  int type;  // the rounding that the source has, with the cause; -1: neither explains it
  const ot_logprob_candidate *cause;  // null: none
  double direct, rest;                // RMS of x - exact, and of x - predicted
} ot_logprob_verdict;

ot_logprob_verdict ot_logprob_explain(const ot_logprob_source *source,
                                      const ot_logprob_candidate *candidates, int count);
