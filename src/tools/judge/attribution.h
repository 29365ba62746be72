// SPDX-License-Identifier: Apache-2.0
// Explains errors of recorded gradients by hypotheses: the fewest that leave nothing but rounding.
// An explanation is complete when the rest is at rounding, which no threshold on errors alone can
// say. Small faults below the rounding of a tensor show in the fit over all tensors. Pure.
#pragma once

#include "judge/fit.h"

typedef enum ot_fault_form {
  OT_FAULT_WHOLE,  // the step was computed under the hypothesis: the factor is 1
  OT_FAULT_SHARE,  // any factor: the change of a setting
  OT_FAULT_LOSS,   // a loss that software may add: with factor 1 it is added, which is no fault
} ot_fault_form;

// A row of the table of hypotheses.
typedef struct ot_hypothesis {
  const char *fault;     // its class, one word: "documents_ignored"
  const char *sentence;  // "attention crosses the borders of documents"
  const char *advice;    // a sentence with what to try
  ot_fault_form form;
} ot_hypothesis;

// An error in own errors up to which a tensor agrees; one from which it is a finding without an
// explanation; the typical rest of a complete explanation.
#define OT_RATIO_FINE 4.0
#define OT_RATIO_FINDING 10.0
#define OT_RATIO_TYPICAL 1.5

typedef enum ot_attribution_kind {
  OT_EXPLAINED_BY_HYPOTHESES,  // `vectors` of hypotheses, and perhaps a common factor
  OT_EXPLAINED_BY_FACTOR,      // the gradients are `scale` times the right ones
  OT_EXPLAINED_BY_WEIGHTS,     // the weights were added to the gradients
  OT_UNEXPLAINED,
} ot_attribution_kind;

typedef struct ot_attribution {
  ot_attribution_kind kind;
  int count;
  int vectors[OT_FIT_MOST];    // [count]
  double factor[OT_FIT_MOST];  // [count]
  double spread[OT_FIT_MOST];  // [count]
  double scale;                // of the gradients; 1: not scaled
  bool *members;               // [num_tensors] that it is about
  int num_members;
  double before, rest;  // largest error of a member in own errors, without and with it
  int first;            // the member that the backward pass reaches first
  bool faint;           // no tensor shows it alone, all together do
} ot_attribution;

typedef struct ot_attributions {
  int count;
  int64_t capacity;
  ot_attribution *list;  // [count] each about other tensors, except those with all tensors
} ot_attributions;

// `hypotheses` [those of the evidence].
ot_attributions ot_attribute_errors(const ot_evidence *evidence, const ot_hypothesis *hypotheses);

// The smallest factor of vector `vector` that would have shown on these gradients: because a tensor
// that agrees would no longer agree, or because it would stand out in the fit over all tensors.
// Infinite: none would.
double ot_attribution_sensitivity(const ot_evidence *evidence, int vector);

// Whether these gradients suffice to say that the fault of the hypothesis `vector` is absent: all
// tensors agree, half of the fault would stand out, and less than a quarter of it is there.
bool ot_attribution_is_absent(const ot_evidence *evidence, int vector);
