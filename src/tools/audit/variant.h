// SPDX-License-Identifier: Apache-2.0
// A copy of a run with changes: on one rank, in other dtypes, on other tokens, or with fewer
// layers. Audits compare its results with those of the run or with known values. A training variant
// is a separate trainer (here); a forward-only one is a layout_probe on the layout of the run, or a
// probe on one rank. All copy the weights of the run, use a learning rate of zero so that weights
// stay fixed, and do not affect the run.
#pragma once

#include "train/trainer.h"

// The run of `of` at a learning rate of zero, without validation and audits, on its device. Borrows
// from the run.
ot_run ot_variant_fixed_weights(const ot_trainer *of);

// The same on one rank, with reductions in full precision and one micro-batch per step: all
// settings of the layout are reset. Borrows from the run.
ot_run ot_variant_one_rank(const ot_trainer *of);

// The threads of a computation on the leader while other ranks wait.
int ot_variant_threads(const ot_run *run);

typedef struct ot_variant {
  ot_trainer *of;                 // trainer of the run; provides the weights
  const ot_run *run;              // the changed settings; kept
  bool one_rank;                  // on the leader only; else on the layout of the run
  const ot_trainer_hooks *hooks;  // copied; or null
} ot_variant;

// Whether every rank can run a step of it within the 1 GiB that an audit may use in addition to the
// run. Collective over the world, as all functions below. Blocks.
ot_status ot_variant_fits(const ot_variant *variant, bool *fits);

// Its trainer, with the run's weights, at the first step; null on ranks that do not participate.
ot_status ot_variant_create(const ot_variant *variant, ot_trainer **out);

// Copies the weights of `from` (master weights if present) into `to`, rounded to its dtype, and
// zeroes its moments. `to` may be null on all ranks but one, which then has the same parameters;
// else it may have fewer layers, or an untied head where `from` has a tied one.
ot_status ot_variant_copy_weights(ot_runtime *from, ot_runtime *to);

// The same, but layers from `layers` on act as identity; `silenced`: also the MLP or the experts of
// the layer before.
ot_status ot_variant_keep_layers(ot_runtime *from, ot_runtime *to, int64_t layers, bool silenced);

// Rows of a parameter as float64, [range.rows * cols].
ot_status ot_variant_read(ot_runtime *runtime, ot_parameter_rows range, double *values);
