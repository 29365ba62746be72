// SPDX-License-Identifier: Apache-2.0
// Gradients of single micro-batches of the run's own data, at some elements of every kind of
// parameter: what a rank brings to a sum. From some of them those of any number of ranks are drawn.
#pragma once

#include "train/trainer.h"

// Kinds of parameters, whose gradients differ in how much of them is signal.
typedef enum ot_gradient_class {
  OT_GRADIENT_EMBEDDING,  // rows that some micro-batch touches
  OT_GRADIENT_MATRIX,
  OT_GRADIENT_VECTOR,  // norms and biases
  OT_GRADIENT_HEAD,
  OT_GRADIENT_CLASSES,
} ot_gradient_class;

const char *ot_gradient_class_name(ot_gradient_class class);

typedef struct ot_contributions {
  int micro_batches;
  int64_t count[OT_GRADIENT_CLASSES];   // elements; 0: there are none of this kind
  double *values[OT_GRADIENT_CLASSES];  // [count, micro_batches]
} ot_contributions;

typedef struct ot_contributions_request {
  ot_trainer *trainer;  // whose weights, data and batch.micro_batch_size are taken
  int micro_batches;    // >= 2
  int64_t elements;     // of a kind, at most
  uint64_t seed;        // of the choice
} ot_contributions_request;

// Steps of one rank, whatever the run's own layout; needs the memory for one of one micro-batch.
// `out` is the leader's, those of the others are empty. Collective over the world. Blocks.
ot_status ot_contributions_read(const ot_contributions_request *request, ot_arena *arena,
                                ot_contributions *out);

// What `ranks` ranks bring to element `index`: those that were read, and then draws of their mean
// and variance.
//   out  [ranks]
void ot_contributions_draw(const ot_contributions *contributions, ot_gradient_class class,
                           int64_t index, int64_t ranks, double *out);
