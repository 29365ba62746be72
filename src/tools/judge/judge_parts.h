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

// Records that are measured while their step is computed once.
typedef struct ot_judged_pass {
  int count;  // 1, or 2 records of one step
  ot_judging judgings[2];
  // With two records:
  bool same_batches;    // the same rows are in the same batches of the same ranks
  ot_evidence between;  // gradients of the second less those of the first, where both have them, in
                        // own errors of the record with the coarser type
  int64_t *differing;   // [between.num_tensors] elements whose values are not equal
  int64_t differing_capacity;
} ot_judged_pass;

// Reads a record: everything that precedes the computation.
ot_status ot_judging_open(ot_judging *judging);

// Computes the step again and measures all gradients: in the types that the weights say, and if
// these are float32 and do not fit, with matrix products in bf16.
ot_status ot_judged_pass_measure(ot_judged_pass *pass);

// Reaches the verdict from what was measured.
ot_status ot_judging_conclude(ot_judging *judging);

// Whether rounding may choose other experts for some tokens, whose gradients are then others.
static inline bool ot_judging_may_reroute(const ot_judging *judging) {
  return (judging->type == OT_PLAIN_BF16 || judging->type == OT_PLAIN_AUTOCAST) &&
         judging->own.model.moe.num_experts > 0;
}

// Whether two recorded values are the same, NaN included.
static inline bool ot_judged_equal(double a, double b) { return a == b || (a != a && b != b); }

// The record of both whose type is coarser; the first one if they are the same.
const ot_judging *ot_judged_pass_coarser(const ot_judged_pass *pass);

// Lists the tensors with their errors in the report.
void ot_judge_add_tensors(ot_judge_report *report, const ot_evidence *evidence);

// The mean of the losses that ranks recorded. False: none did; *several: they differ.
bool ot_judging_loss(const ot_judging *judging, double *mean, bool *several);

// Makes the vectors of hypotheses that move no gradient zero: they are rounding, which explains
// rounding.
void ot_judging_clear_inert(const ot_judging *judging, ot_evidence *evidence);

// "tp", "tp and cp": axes by their bits; null: none.
const char *ot_judging_axes(const ot_judging *judging, uint32_t axes);

// Adds a consequence of a finding over these axes, such as weights that differ after the step, to
// its evidence. False if there is no such finding.
bool ot_judging_add_consequence(ot_judging *judging, const char *axes, const char *consequence);

// Computes the step again once, in the types that the judgings have.
ot_status ot_judge_measure(ot_judged_pass *pass);

// Whether hypotheses and factors explain all errors of the gradients that were measured.
bool ot_judge_explains_errors(ot_judging *judging);

// Each adds its parts and findings to the report. The loss is compared first, and explained after
// the gradients: a hypothesis that explains these explains it, too.
void ot_judge_loss(ot_judging *judging);
void ot_judge_explain_loss(ot_judging *judging);
void ot_judge_gradients(ot_judging *judging);
void ot_judge_norm(ot_judging *judging);
ot_status ot_judge_update(ot_judging *judging);
