// SPDX-License-Identifier: Apache-2.0
// A ledger as a table, as JSON and as a page with charts: multipliers of all changes with their
// intervals, how many claims to expect false, losses against compute, those that were predicted,
// and stacks against the sum of their parts.
#pragma once

#include "base/text_builder.h"
#include "ledger/analysis.h"
#include "ledger/preregistration.h"

// A change at its newest look.
typedef struct ot_ledger_row {
  const char *change, *class, *verdict;  // verdict: "proposed", "running" before the first
  const char *signer;                    // of the verdict; "": none
  const ot_node *look, *decided;         // lines; null: none
} ot_ledger_row;

typedef struct ot_ledger_page {
  const ot_ledger *ledger;
  int proposed, looked, accepted, kept;  // kept: parts of merges that stay
  double expected_false;                 // claims of changes that do nothing
  int64_t num_rows, num_merges;
  ot_ledger_row *rows;     // [num_rows] in the order of their proposals
  const ot_node **merges;  // [num_merges]
  int64_t num_predictions;
  ot_ledger_prediction *predictions;  // [num_predictions]
} ot_ledger_page;

ot_ledger_page ot_ledger_page_of(const ot_ledger *ledger);

void ot_ledger_print(const ot_ledger_page *page, ot_text_builder *out);
// Losses that were predicted, and what came; of `change` alone unless it is null.
void ot_ledger_print_predictions(const ot_ledger_page *page, const char *change,
                                 ot_text_builder *out);
// "held", "missed", "no interval", "not run yet".
const char *ot_ledger_prediction_word(const ot_ledger_prediction *prediction);
const char *ot_ledger_json(const ot_ledger_page *page);
void ot_ledger_print_html(const ot_ledger_page *page, ot_text_builder *out);
