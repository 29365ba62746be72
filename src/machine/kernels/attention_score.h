// SPDX-License-Identifier: Apache-2.0
// The transformations of a scaled score q . k before its exponential, and their derivatives, for
// the attention kernels of the CPU, on tiles and on a KV cache. ot_attention_score_flops counts
// FLOPs.
#pragma once

#include <math.h>

#include "kernels/attention_tile.h"
#include "kernels/soft_cap.h"

// False when scores stay as they are; then nothing below but the sinks has an effect.
static inline bool ot_scores_transform(const ot_op_attributes *a) { return a->soft_cap > 0; }

static inline void ot_transform_scores(const ot_tile_pair *pair, ot_panel_scores scores) {
  const ot_real cap = (ot_real)pair->p->attributes->soft_cap;
  for (int64_t j = 0; j < pair->n; j++) ot_soft_cap(scores.data + j * scores.stride, OT_PANEL, cap);
}

// slopes [n][OT_PANEL] = derivatives where the transformed scores are `scores`.
static inline void ot_score_slopes(const ot_tile_pair *pair, ot_panel_scores scores,
                                   ot_real *slopes) {
  const ot_real cap = (ot_real)pair->p->attributes->soft_cap;
  for (int64_t j = 0; j < pair->n; j++) {
    const ot_real *const row = scores.data + j * scores.stride;
    for (int i = 0; i < OT_PANEL; i++) slopes[j * OT_PANEL + i] = ot_soft_cap_slope(row[i], cap);
  }
}

// Scores of one query for `n` neighbouring keys, of which the last is its own.
typedef struct ot_query_scores {
  ot_real *data;  // [n]
  int64_t n;
  int64_t head;  // of this op
} ot_query_scores;

static inline void ot_transform_query_scores(const ot_op_attributes *a, ot_query_scores scores) {
  ot_soft_cap(scores.data, scores.n, (ot_real)a->soft_cap);
}

// The sink of head `head` of this op, a score that is not transformed; -inf when `sinks` is absent.
static inline ot_real ot_sink_of(const ot_op_attributes *a, const ot_tensor *sinks, int64_t head) {
  ot_real sink = -(ot_real)INFINITY;
  if (sinks->data) ot_load_row(&sink, sinks->data, sinks->type.dtype, a->first_sink + head, 1);
  return sink;
}
