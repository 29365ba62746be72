// SPDX-License-Identifier: Apache-2.0
// Results of `orthant ledger` on stdout, as text or JSON, and notes on them on stderr.
#pragma once

#include "ledger/bisection.h"
#include "ledger/experiment.h"
#include "ledger/stack.h"

// FLOPs of a claim at each look.
ot_status ot_ledger_print_costs(const ot_ledger *ledger, bool as_json);

void ot_ledger_print_calibration(const ot_ledger *ledger, const ot_ledger_calibration *c,
                                 bool as_json);
void ot_ledger_print_look(const ot_ledger *ledger, const ot_ledger_look *look,
                          const ot_ledger_target *target, bool as_json);

// As text; the JSON of both is their line of the record.
void ot_ledger_print_merge(const ot_ledger_merge_result *m);
void ot_ledger_print_screening(const ot_ledger_screening *s);

void ot_ledger_print_bisection(const ot_ledger *ledger, const ot_bisection_result *b, bool as_json);
