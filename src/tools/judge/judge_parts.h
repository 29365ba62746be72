// SPDX-License-Identifier: Apache-2.0
// The state that the parts of a verdict share. Private to judge/.
#pragma once

#include "judge/assemble.h"
#include "judge/attribution.h"
#include "judge/hypothesis.h"
#include "judge/judge.h"
#include "judge/plain.h"
#include "judge/words.h"

enum { OT_JUDGE_HYPOTHESES = OT_EVIDENCE_MOST - OT_EVIDENCE_HYPOTHESES };

// The copies of a recorded gradient on several ranks.
typedef struct ot_judged_copies {
  uint32_t copied, differing;  // axes, by bits
  double relative;             // largest difference of two copies, relative
} ot_judged_copies;

typedef struct ot_judging {
  const ot_judge_request *request;
  ot_arena *arena;
  ot_judge_report *report;
  ot_recorded_step step;
  ot_step_rows recorded;  // its batches
  ot_judged_step own;     // as the record says
  ot_plain_type type;     // of the record
  ot_plain_type base;     // in which rounding does not matter
  int num_hypotheses;
  ot_hypothesis_case cases[OT_JUDGE_HYPOTHESES];
  ot_hypothesis hypotheses[OT_JUDGE_HYPOTHESES];  // [num_hypotheses] rows of these
  int num_sizes;
  ot_step_size sizes[OT_RECORDED_AXES + 3];  // of the mesh, micro-batches, loss scale
  double losses[OT_JUDGE_HYPOTHESES + 3];    // recomputed, own, own again, hypotheses
  double loss, loss_own;     // recorded, and its own error; loss NAN: it agrees, or is not recorded
  ot_evidence evidence;      // of gradients as one rank has them
  ot_judged_copies *copies;  // [num_tensors]
  ot_evidence sums, means;  // of the tensors whose copies differ: over these copies; [num_tensors],
                            // without elements where they do not
  int64_t missing;          // tensors of the model without a recorded gradient
  const char *first_missing;
} ot_judging;

// "tp", "tp and cp": axes by their bits; null: none.
const char *ot_judging_axes(const ot_judging *judging, uint32_t axes);

// Adds a consequence of a finding over these axes, such as weights that differ after the step, to
// its evidence. False if there is no such finding.
bool ot_judging_add_consequence(ot_judging *judging, const char *axes, const char *consequence);

// Computes the step again and measures all gradients.
ot_status ot_judge_measure(ot_judging *judging);

// Whether hypotheses and factors explain all errors of the gradients that were measured.
bool ot_judge_explains_errors(ot_judging *judging);

// Each adds its parts and findings to the report. The loss is compared first, and explained after
// the gradients: a hypothesis that explains these explains it, too.
void ot_judge_loss(ot_judging *judging);
void ot_judge_explain_loss(ot_judging *judging);
void ot_judge_gradients(ot_judging *judging);
void ot_judge_norm(ot_judging *judging);
ot_status ot_judge_update(ot_judging *judging);
