// SPDX-License-Identifier: Apache-2.0
// Prices rows with the planner and keeps the estimates.
#pragma once

#include "plan/estimate.h"
#include "published_job.h"
#include "published_row.h"

typedef struct ot_published_price {
  const ot_published_row *row;
  bool priced;
  const char *reason;    // where it is not priced
  const char *engine;    // that it was priced with
  uint64_t cluster;      // hash of the cluster that it was priced on
  ot_estimate estimate;  // where it is priced
  const char *beyond;    // where the planner says that no published run is like it; null: it knows
  double step_s;         // 0 where it is not priced
  double memory_gb;      // peak that memory_def means; 0 where it is not priced
} ot_published_price;

typedef struct ot_published_prices {
  int64_t num_rows;
  ot_published_price *price;  // [num_rows] in the order of the rows
} ot_published_prices;

// Takes the rows whose step time or memory is measured, none of them priced yet.
void ot_published_prices_create(const ot_published_rows *rows, ot_arena *arena,
                                ot_published_prices *out);

// Prices the rows whose cluster is another than at the last call. A row that the planner refuses is
// not priced and says why, in `arena`; a fault of the program (OT_BUG) is returned.
ot_status ot_published_prices_update(ot_published_setup *setup, ot_arena *arena,
                                     ot_published_prices *prices);

// Whether the row counts for step time, and for memory.
bool ot_published_has_step(const ot_published_row *row);
bool ot_published_has_memory(const ot_published_row *row);
