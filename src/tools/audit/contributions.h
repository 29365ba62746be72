// SPDX-License-Identifier: Apache-2.0
// Gradients of single micro-batches of the run's data, at sampled elements of every kind of
// parameter: what a rank contributes to a reduction. Contributions of any number of ranks are drawn
// from them.
#pragma once

#include "train/trainer.h"

// Kinds of parameters, which differ in the signal-to-noise ratio of their gradients.
typedef enum ot_gradient_class {
  OT_GRADIENT_EMBEDDING,  // rows that a micro-batch touches
  OT_GRADIENT_MATRIX,
  OT_GRADIENT_VECTOR,  // norms and biases
  OT_GRADIENT_HEAD,
  OT_GRADIENT_CLASSES,
} ot_gradient_class;

const char *ot_gradient_class_name(ot_gradient_class class);

typedef struct ot_contributions {
  int micro_batches;
  int64_t count[OT_GRADIENT_CLASSES];   // elements; 0: none of this kind
  double *values[OT_GRADIENT_CLASSES];  // [count, micro_batches]
} ot_contributions;

typedef struct ot_contributions_request {
  ot_trainer *trainer;  // provides weights, data and batch.micro_batch_size
  int micro_batches;    // >= 2
  int64_t elements;     // per kind, at most
  uint64_t seed;        // of the choice
} ot_contributions_request;

// Runs steps on one rank, whatever the run's layout; needs the memory of a micro-batch on one rank.
// `out` is filled on the leader, empty on the others. Collective over the world. Blocks.
ot_status ot_contributions_read(const ot_contributions_request *request, ot_arena *arena,
                                ot_contributions *out);

// The contributions of `ranks` ranks to element `index`: the values that were read, then draws with
// their mean and variance.
//   out  [ranks]
void ot_contributions_draw(const ot_contributions *contributions, ot_gradient_class class,
                           int64_t index, int64_t ranks, double *out);
