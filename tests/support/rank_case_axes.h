// SPDX-License-Identifier: Apache-2.0
// Options of a parallel run as factors of a covering array, and the constraints between them.
#pragma once

#include "support/rank_case.h"
#include "support/rank_case_cover.h"

// Factors; the first five are degrees.
typedef enum rank_factor {
  RANK_PP,
  RANK_DP_REPLICATE,
  RANK_DP_SHARD,
  RANK_CP,
  RANK_TP,
  RANK_ZERO,
  RANK_ACCUMULATE,
  RANK_RESHARD,
  RANK_PREFETCH,
  RANK_PIPELINE,
  RANK_LAYOUT_KIND,
  RANK_RECOMPUTE,
  RANK_MODEL,
  RANK_CONTEXT,
  RANK_OVERLAP,
  RANK_ROUNDS,
  RANK_MICRO_BATCH,
  RANK_EP,
  RANK_ETP,
  RANK_LOADS,
  RANK_ROOM,
  RANK_FACTORS,
} rank_factor;

// Levels of each factor, [RANK_FACTORS].
extern const int rank_levels[];

// Constraints: degrees multiply to 1, 2, 4 or 8; an option without effect is not chosen.
bool rank_fits(const cover_row *row);

// Rows of every factorisation of 1, 2, 4 and 8, other factors open. Returns their number.
int rank_factorisations(ot_arena *arena, cover_row **rows);

// The run request of a closed row.
void rank_request_of(const cover_row *row, ot_dtype dtype, rank_request *request);
