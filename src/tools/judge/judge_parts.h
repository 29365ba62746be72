// SPDX-License-Identifier: Apache-2.0
// The state that the parts of a verdict share. Private to judge/.
#pragma once

#include "judge/assemble.h"
#include "judge/attribution.h"
#include "judge/hypothesis.h"
#include "judge/judge.h"
#include "judge/plain.h"
#include "judge/recomputation.h"
#include "judge/recorded_layers.h"
#include "judge/setting.h"
#include "judge/words.h"

enum {
  OT_JUDGE_HYPOTHESES = OT_EVIDENCE_MOST - OT_EVIDENCE_HYPOTHESES,
  OT_OWN_STREAMS = 3,  // recomputed, own, own again
};

// The copies of a recorded gradient on several ranks.
typedef struct ot_judged_copies {
  uint32_t copied, differing;  // axes, by bits
  double relative;             // largest difference of two copies, relative
} ot_judged_copies;

// Layers [from, to] that are computed from one recorded activation to the next; the number of
// layers is the head.
typedef struct ot_judged_span {
  int from, to;
} ot_judged_span;

// The forward or the backward pass through recorded activations.
typedef struct ot_judged_direction {
  ot_recorded_layers recorded;
  ot_evidence evidence;  // a tensor for each layer with an activation, in the order of the pass
  ot_judged_span *span;  // [evidence.num_tensors]
  int64_t capacity;
  int last;  // layer whose recorded activation the pass continues from
} ot_judged_direction;

typedef struct ot_judged_origin {
  int first;  // of its OT_OWN_STREAMS streams; 0: no activations are recorded
  ot_judged_direction forward, backward;
  // The recorded values of one layer [R, C], and the rows of which it has them.
  int loaded;  // layer; -1: none
  ot_recorded_kind loaded_kind;
  double *recorded;
  bool *known, any;
  double *computed[OT_OWN_STREAMS];  // [R, C] by its streams
} ot_judged_origin;

// Recorded choices of experts.
typedef struct ot_judged_routes {
  const int32_t **choices;  // [num_layers][R, k], null for a layer without; null: not recorded
  bool complete;            // for all layers with experts
  int layers, all;          // with choices, with experts
  double *merits[OT_OWN_STREAMS];  // [R, E] of the layer that is computed
  int64_t tokens, wrong;           // choices of a token in a layer; of these, beyond rounding
  int first_layer;                 // with a wrong one
  int64_t first_row;               // of the first wrong one
  double worst;                    // in own errors
} ot_judged_routes;

// A setting whose value is not that of config.json.
typedef struct ot_judged_setting {
  const ot_setting *setting;        // null: none is named
  const ot_hypothesis *hypothesis;  // that moves it
  double value;
  double before, rest;  // largest error in own errors, without and with the value
  double loss;          // of the step with the value
} ot_judged_setting;

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
  double router_loss;        // that gradients show to be added
  ot_evidence evidence;      // of gradients as one rank has them
  ot_judged_copies *copies;  // [num_tensors]
  ot_evidence sums, means;  // of the tensors whose copies differ: over these copies; [num_tensors],
                            // without elements where they do not
  int64_t missing;          // tensors of the model without a recorded gradient
  const char *first_missing;
  const bool *judged;  // [R] rows of documents with a target
  ot_judged_origin origin;
  ot_judged_routes routes;
  double *loads[OT_OWN_STREAMS];  // [num_layers, E] slots of experts; null: no biases follow them
  double layers_factor;           // of the gradients of some layers alone
  ot_judged_setting setting;
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

// Compares the samples of ranks and micro-batches.
void ot_judge_batches(ot_judging *judging);

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

// The evidence on gradients in which copies that lack their sum or mean over ranks have it.
ot_evidence ot_judge_right_copies(const ot_judging *judging);

// Whether hypotheses and factors explain all errors of the gradients that were measured.
bool ot_judge_explains_errors(ot_judging *judging);

// Where no hypothesis explains the errors of most tensors: fits the settings of the model, one by
// one, and keeps the one with which nothing but rounding is left. Computes the step again for each
// value. ot_judge_setting adds its finding to the report.
ot_status ot_judge_fit_settings(ot_judging *judging);
// Whether much of the errors is in the direction of a setting.
bool ot_judge_suspects_setting(const ot_judging *judging);
void ot_judge_setting(ot_judging *judging);

// Lists the streams that begin each layer with its recorded activation as streams [first, first +
// OT_OWN_STREAMS), like streams 0 on. Returns their number, 0 without activations. `stored`: see
// ot_evidence_create.
int ot_judge_origin_begin(ot_judging *judging, ot_dtype stored, int first,
                          ot_recomputation_stream *streams);
ot_status ot_judge_origin_exchange(ot_judging *judging, const ot_recomputed_exchange *values);

// Reads recorded choices of experts into the step, before its hypotheses are made. OT_USAGE for
// choices that are no experts.
ot_status ot_judge_routes_read(ot_judging *judging);
void ot_judge_routes_begin(ot_judging *judging);
void ot_judge_routes_exchange(ot_judging *judging, const ot_recomputed_exchange *values);

// The shares of experts in all layers together, of which stream 0 adds those of each layer in the
// forward pass, before hypotheses need them in the backward pass.
void ot_judge_shares_create(ot_judging *judging);
void ot_judge_shares_clear(ot_judging *judging);
void ot_judge_shares_add(ot_judging *judging, const ot_recomputed_exchange *values);

// Counts the loads of experts that move the biases of routers.
void ot_judge_biases_begin(ot_judging *judging);
void ot_judge_biases_exchange(ot_judging *judging, const ot_recomputed_exchange *values);

// OT_USAGE for layers that the model lacks, or whose activations are not recorded.
ot_status ot_judge_layers_check(const ot_judging *judging);
// Divides the recorded gradients by their common factor.
void ot_judge_layers_scale(ot_judging *judging);
void ot_judge_layers_part(const ot_judging *judging);

// Each adds its parts and findings to the report. The loss is compared first, and explained after
// the gradients: a hypothesis that explains these explains it, too.
void ot_judge_loss(ot_judging *judging);
void ot_judge_explain_loss(ot_judging *judging);
void ot_judge_gradients(ot_judging *judging);
void ot_judge_origin(ot_judging *judging);
void ot_judge_routes(ot_judging *judging);
void ot_judge_norm(ot_judging *judging);
ot_status ot_judge_update(ot_judging *judging);
ot_status ot_judge_biases(ot_judging *judging);
