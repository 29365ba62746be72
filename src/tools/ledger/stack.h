// SPDX-License-Identifier: Apache-2.0
// Stacks of registered changes: against their parts by leaving one out (`orthant ledger merge`), or
// as a two-level design that screens all effects (`--factorial`).
#pragma once

#include "ledger/analysis.h"

typedef struct ot_ledger_stack_request {
  int num_parts;             // 1 to OT_LEDGER_PARTS
  const char *const *parts;  // [num_parts] names of registered changes
  int pairs;                 // 0: those of the first look
  const char *write;         // name of a new file next to the base, for the new base; null: none
} ot_ledger_stack_request;

// The parts, and the baseline that they are compared with. Keeps the ledger.
typedef struct ot_ledger_stack {
  ot_ledger *ledger;
  int num_parts, pairs;
  const ot_ledger_change *part[OT_LEDGER_PARTS];  // [num_parts]
  ot_baseline base;
} ot_ledger_stack;

typedef struct ot_ledger_merge_result {
  ot_ledger_stack stack;
  ot_stack_result effect;
  const char *fate[OT_LEDGER_PARTS];  // [num_parts] "stays", "barnacle", "masked", "undecided"
  const char *verdict;                // a sentence
} ot_ledger_merge_result;

// Runs the baseline, the stack, each part alone, and the stack without each; writes the base with
// the parts that stay where the request has `write`; appends the line "merge". OT_NUMERIC if a run
// diverged.
ot_status ot_ledger_merge(ot_ledger *ledger, const ot_ledger_stack_request *request,
                          ot_ledger_merge_result *out);

// Effects of single changes and of two together.
typedef struct ot_ledger_screening {
  ot_ledger_stack stack;
  ot_factorial design;
  int count;
  unsigned mask[OT_JACKKNIFE_VALUES];       // [count] parts
  const char *name[OT_JACKKNIFE_VALUES];    // [count] "a", "a x b"
  const char *same[OT_JACKKNIFE_VALUES];    // [count] effects not told apart; null: none
  ot_measured effect[OT_JACKKNIFE_VALUES];  // [count] ln m
} ot_ledger_screening;

// Runs the arms of the design; appends no line of its own. OT_USAGE for a number of changes without
// a design, OT_NUMERIC if a run diverged.
ot_status ot_ledger_screen(ot_ledger *ledger, const ot_ledger_stack_request *request,
                           ot_ledger_screening *out);

// Appends the line "factorial".
ot_status ot_ledger_record_screening(const ot_ledger_screening *screening);
