// SPDX-License-Identifier: Apache-2.0
// Judges two records of one step, which is computed again once: what differs between them, whether
// that is rounding, whether the step repeats, and which of the two departs from the recomputed one.
#pragma once

#include "judge/judge.h"

// The gradients of a tensor that both records have.
typedef struct ot_compared_tensor {
  double ratio[2];   // error of each record in own errors, as ot_judged_tensor
  int64_t elements;  // whose values are not equal
} ot_compared_tensor;

typedef struct ot_judged_pair {
  const char *paths[2];
  ot_judge_report records[2];  // each as ot_judge_record has it, but computed with the other one
  // Between both: parts; findings, with those of the records; its verdict is that of all. A ratio
  // of a tensor is the difference of both, in own errors of the record with the coarser type.
  ot_judge_report difference;
  bool same_layout;    // mesh, and batches of the ranks
  bool same_types;     // in which the step was computed
  bool same_software;  //
  bool same_values;    // all that both recorded of gradients, loss, norm and weights after the step
  bool departs[2];     // the record has findings
  const char *conclusion;  // a line: which of the two departs from the recomputed step, and how
  ot_compared_tensor *compared;  // [difference.num_tensors]
} ot_judged_pair;

// Judges the record of `request` and `other`; `out` lives in `arena`. As ot_judge_record, and
// OT_USAGE if the records are not of one step (same_step.h). Blocks.
ot_status ot_judge_pair(const ot_judge_request *request, const char *other, ot_arena *arena,
                        ot_judged_pair *out);

// The pair as lines, each ended; as one JSON document.
const char *ot_judged_pair_print(const ot_judged_pair *pair);
const char *ot_judged_pair_json(const ot_judged_pair *pair);
