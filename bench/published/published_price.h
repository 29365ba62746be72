// SPDX-License-Identifier: Apache-2.0
// Predicts rows with the planner and stores the estimates.
#pragma once

#include "advise/calibrate.h"
#include "estimate/estimate.h"
#include "published_job.h"
#include "published_row.h"

typedef struct ot_published_price {
  const ot_published_row *row;
  bool priced;
  const char *reason;    // if not predicted
  const char *engine;    // framework of the prediction
  uint64_t cluster;      // hash of the cluster of the prediction
  ot_estimate estimate;  // if predicted
  ot_doubt doubt;
  ot_traits traits;
  const ot_published_setup *setup;  // of the prediction; kept
  const char *beyond;               // reason why no published run is similar; null: covered
  double step_s;                    // 0 if not predicted
  double memory_gb;                 // peak as memory_def defines it; 0 if not predicted
} ot_published_price;

typedef struct ot_published_prices {
  int64_t num_rows;
  ot_published_price *price;  // [num_rows] in the order of the rows
} ot_published_prices;

// Selects the rows with measured step time or memory; none of them is predicted yet.
void ot_published_prices_create(const ot_published_rows *rows, ot_arena *arena,
                                ot_published_prices *out);

// Predicts the rows whose cluster changed since the last call. A row that the planner rejects has
// no prediction but a reason, in `arena`; an internal error (OT_BUG) is returned.
ot_status ot_published_prices_update(ot_published_setup *setup, ot_arena *arena,
                                     ot_published_prices *prices);

// Predicts the step again after measured steps corrected the rates of its cluster and the
// prediction: seconds, 0 where it has none any more, and the variance that is left.
ot_status ot_published_reprice(const ot_published_price *price, const ot_calibration *calibration,
                               double *step_s, double *variance);

// Whether the row is used for step time, and for memory.
bool ot_published_has_step(const ot_published_row *row);
bool ot_published_has_memory(const ot_published_row *row);
