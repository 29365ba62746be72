// SPDX-License-Identifier: Apache-2.0
// Copies between host and arena around a training step: what the host gives the step is filled in
// one buffer and written by one write; what it needs afterwards comes by one read. The regions lie
// next to each other for that (schedule/step_regions.c):
//
//   arena   | squares | expert sums | scalars | batches |
//           |<------ one read ---------------->|
//                                   |<- one write ----->|
#pragma once

#include "runtime/model_runtime.h"

typedef struct ot_step_transfer ot_step_transfer;

// Allocates the buffers. `squares`: the squared gradient norms are read, too. Keeps `runtime`,
// which has OT_MODE_TRAIN, until destroy.
ot_status ot_step_transfer_create(ot_runtime *runtime, bool squares, ot_step_transfer **out);
void ot_step_transfer_destroy(ot_step_transfer **transfer);

// Fills the next write. `data` has the field's dtype.
void ot_step_transfer_set_field(ot_step_transfer *transfer, int micro_batch, ot_batch_field field,
                                const void *data);
void ot_step_transfer_set_scalar(ot_step_transfer *transfer, ot_step_scalar scalar, double value);

// Writes the scalars and the first `micro_batches` micro-batches.
void ot_step_transfer_write(ot_step_transfer *transfer, int micro_batches);

// Reads the results of the last step; the functions below return them.
void ot_step_transfer_read(ot_step_transfer *transfer);

double ot_step_transfer_scalar(const ot_step_transfer *transfer, ot_step_scalar scalar);
// The region "squares", float64; with `squares` only.
const double *ot_step_transfer_squares(const ot_step_transfer *transfer);
// Summed over blocks, for models with experts.
void ot_step_transfer_expert_sums(const ot_step_transfer *transfer, double sums[OT_EXPERT_SUMS]);
