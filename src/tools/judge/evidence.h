// SPDX-License-Identifier: Apache-2.0
// The measurements that a verdict on gradients rests on: for each tensor, the inner products of a
// few vectors, which are the recomputed gradient, the error of the recorded one, the judge's own
// rounding, and one vector for each hypothesis. Everything that is asked of gradients afterwards
// (errors, factors, fits on any set of tensors) follows from these numbers, so that no gradient is
// kept and no pass is repeated. Pure.
#pragma once

#include "base/arena.h"
#include "base/dtype.h"

enum { OT_EVIDENCE_MOST = 32 };  // vectors

// The vectors of every evidence. Hypothesis h is vector OT_EVIDENCE_HYPOTHESES + h: its gradient
// less the recomputed one.
enum {
  OT_EVIDENCE_GRADIENT,   // recomputed, in a type whose rounding does not matter
  OT_EVIDENCE_ERROR,      // the recorded gradient less the recomputed one
  OT_EVIDENCE_OWN,        // the gradient recomputed in the types of the record, less that one
  OT_EVIDENCE_OWN_AGAIN,  // the same with another order of sums
  OT_EVIDENCE_WEIGHT,     // the weights
  OT_EVIDENCE_HYPOTHESES,
};

typedef struct ot_evidence_tensor {
  const char *name;    // HF name, "model.layers.3.mlp.up_proj.weight"
  const char *kind;    // the name without its numbers, "model.layers.*.mlp.up_proj.weight"
  int layer;           // -1: in no layer
  int64_t elements;    // measured so far
  int64_t not_finite;  // of these, elements of the recorded gradient that are NaN or infinite
  double *products;    // [num_vectors, num_vectors]
} ot_evidence_tensor;

typedef struct ot_evidence {
  ot_arena *arena;
  int num_vectors;  // at most OT_EVIDENCE_MOST
  double unit;      // unit roundoff of the record's gradients: 2^-24 for fp32
  bool between;     // errors are differences of two records, to which own rounding adds no bias
  int num_tensors;
  int64_t capacity;
  ot_evidence_tensor *tensors;  // [num_tensors] in the order of the backward pass
} ot_evidence;

// `num_hypotheses` [0, OT_EVIDENCE_MOST - OT_EVIDENCE_HYPOTHESES]; `stored`: the type with the
// coarsest rounding that the record's step uses.
ot_evidence ot_evidence_create(ot_arena *arena, int num_hypotheses, ot_dtype stored);

// Adds a tensor without elements; tensors are added in the order of the backward pass. `name` is
// kept. The result is valid until the next one is added.
ot_evidence_tensor *ot_evidence_add(ot_evidence *evidence, const char *name);

// The values of `count` further elements of a tensor.
typedef struct ot_evidence_values {
  const double *recorded, *weight;  // [count]
  const double *gradient;           // [count]
  const double *own, *own_again;    // [count] gradients, not differences
  const double *const *hypotheses;  // [num_hypotheses][count] gradients; null: equal to `gradient`
} ot_evidence_values;

void ot_evidence_measure(const ot_evidence *evidence, ot_evidence_tensor *tensor,
                         const ot_evidence_values *values, int64_t count);

// The inner product of vectors `a` and `b` on a tensor.
static inline double ot_evidence_product(const ot_evidence *evidence,
                                         const ot_evidence_tensor *tensor, int a, int b) {
  return tensor->products[a * evidence->num_vectors + b];
}

// The length of the judge's own error on a tensor: the larger of both runs, at least a rounding of
// the gradient.
double ot_evidence_own(const ot_evidence *evidence, const ot_evidence_tensor *tensor);

// The error of the recorded gradient in own errors.
double ot_evidence_ratio(const ot_evidence *evidence, const ot_evidence_tensor *tensor);

// The largest of that ratio over all tensors; 0 without tensors.
double ot_evidence_largest_ratio(const ot_evidence *evidence);

// The median of that ratio over all tensors; 0 without tensors. Works in `scratch`.
double ot_evidence_typical_ratio(const ot_evidence *evidence, ot_arena *scratch);
