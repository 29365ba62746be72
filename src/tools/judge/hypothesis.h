// SPDX-License-Identifier: Apache-2.0
// The faults of a training step that are computed: each is a row of one table, which says how the
// step is changed, what that explains and what a user tries. A row changes the batch (which tokens
// see which, what is predicted, how rows are weighted), a number of the model, or the losses.
#pragma once

#include "judge/attribution.h"
#include "judge/plain.h"

// The rows of a step with what tells its micro-batches apart.
typedef struct ot_judged_rows {
  ot_plain_batch batch;
  const int64_t *sequence;  // [rows] first row of the sequence that a row is in
  const int32_t *micro;     // [rows] micro-batch of its rank
  const int32_t *dp_rank;   // [rows] rank of data parallelism
  const bool *judged;       // [rows] in documents with a target; others are padding
} ot_judged_rows;

// A step to compute: stream 0 of a judge is the recorded step itself.
typedef struct ot_judged_step {
  ot_model model;
  ot_judged_rows rows;
  unsigned losses;  // of plain.h
  // [groups, E] share of the slots of a group that each expert has in all layers together, which
  // the forward pass fills in: of all rows, and of those that are judged. Null: there are no
  // experts.
  double *layer_shares[2];
} ot_judged_step;

typedef struct ot_hypothesis_case {
  const ot_hypothesis *hypothesis;
  ot_judged_step changed;
} ot_hypothesis_case;

// The hypotheses that change the gradients of `step`, at most `most`, in `arena`. Returns their
// number.
int ot_hypotheses_list(const ot_judged_step *step, ot_arena *arena, int most,
                       ot_hypothesis_case *out);
