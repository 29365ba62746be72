// SPDX-License-Identifier: Apache-2.0
// The first of a sequence that is no longer what was recorded, by halving. Bases of merges are
// compared by their bits. Commits, and settings of another run, are compared by the loss of pairs
// at one scale: bits change with every order of a sum, so only a difference that seeds do not
// explain is one.
#pragma once

#include "ledger/ledger.h"

typedef enum ot_bisection_kind {
  OT_BISECTION_MERGES,
  OT_BISECTION_KEYS,
  OT_BISECTION_COMMITS,
} ot_bisection_kind;

// Keys are searched if `against` is given, commits if `commits` is, else merges.
typedef struct ot_bisection_request {
  const char *from, *to;  // merges: ids of the first and the last line; null: the whole record
  const char *against;    // keys: the RUN.yaml that sets them; or null
  const char *commits;    // commits: GOOD..BAD of git; or null
  const char *source;     // commits: the repository; null: the current directory
  const char *build;      // commits: the shell command that builds one
  const char *program;    // null: this one; commits: within their tree, null: build/orthant
  const char *scale;      // keys and commits: its name; null: the first
  int pairs;              // keys and commits; 0: those of the first look
} ot_bisection_request;

typedef struct ot_bisection_result {
  ot_bisection_kind kind;
  bool ended;                   // the search has a result, even if an error came after it
  int64_t looks;                // candidates that halving tried
  const char *first;            // the first that differs from the record; null: none does
  const ot_record_line *merge;  // merges: the line that wrote `first`
  const char *scale;            // keys and commits: where losses were compared
  int pairs;                    // keys and commits: how many were compared
  ot_measured difference;       // keys and commits: the loss of `first` minus the recorded one
  int64_t num_untried;
  const char *const *untried;  // [num_untried] before `first`; they could not be tried
  bool all;                    // merges and commits: every candidate differs
} ot_bisection_result;

// Searches, and announces each candidate. OT_FINDINGS with an empty message if one differs.
ot_status ot_ledger_bisect(const ot_ledger *ledger, const ot_bisection_request *request,
                           ot_bisection_result *out);
