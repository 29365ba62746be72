// SPDX-License-Identifier: Apache-2.0
// Scores of one token, for the kernels of routing.
#pragma once

#include "kernels/real.h"
#include "kernels/vector_math.h"
#include "ops/kernel.h"

// scores [E] = softmax(logits)
static inline void ot_route_softmax(const ot_real *logits, ot_real *scores, int64_t E) {
  ot_real largest = logits[0];
  for (int64_t e = 1; e < E; e++) largest = logits[e] > largest ? logits[e] : largest;
  ot_real sum = 0;
  for (int64_t e = 0; e < E; e++) {
    scores[e] = OT_KERNEL(ot_exp)(logits[e] - largest);
    sum += scores[e];
  }
  for (int64_t e = 0; e < E; e++) scores[e] /= sum;
}

// scores [E] from logits [E] by attributes.score
static inline void ot_route_scores(const ot_op_attributes *attributes, const ot_real *logits,
                                   ot_real *scores) {
  const int64_t E = attributes->num_experts;
  if (attributes->score == OT_MOE_SOFTMAX) {
    ot_route_softmax(logits, scores, E);
    return;
  }
  for (int64_t e = 0; e < E; e++) scores[e] = OT_KERNEL(ot_sigmoid)(logits[e]);
}

// dlogits [E] += the gradient of the logits from that of the scores
static inline void ot_route_scores_grad(const ot_op_attributes *attributes, const ot_real *scores,
                                        const ot_real *dscores, ot_real *dlogits) {
  const int64_t E = attributes->num_experts;
  if (attributes->score == OT_MOE_SIGMOID) {
    for (int64_t e = 0; e < E; e++) dlogits[e] += dscores[e] * scores[e] * (1 - scores[e]);
    return;
  }
  ot_real mean = 0;
  for (int64_t e = 0; e < E; e++) mean += dscores[e] * scores[e];
  for (int64_t e = 0; e < E; e++) dlogits[e] += scores[e] * (dscores[e] - mean);
}
