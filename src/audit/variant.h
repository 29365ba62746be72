// SPDX-License-Identifier: Apache-2.0
// A run made once more with something changed: on one rank, in other types, on other rows, with
// fewer layers. Audits compare what it gives with what the run gives, or with what it must be. A
// variant that trains is a trainer of its own (here); one that only goes forward is a layout_probe
// on the layout of the run, or a probe on one rank. All take the weights of the run, step at a
// learning rate of zero, so that weights stay what they are, and leave the run alone.
#pragma once

#include "train/trainer.h"

// `run` at a learning rate of zero, without validation and audits. Borrows from `run`.
ot_run ot_variant_still(const ot_run *run);

// The same on one rank, with sums in full precision and one micro-batch a step: what says how work
// is split is gone. Borrows from `run`.
ot_run ot_variant_one_rank(const ot_run *run);

typedef struct ot_variant {
  ot_trainer *of;                 // of the run, whose weights are taken
  const ot_run *run;              // the settings, changed; kept
  bool one_rank;                  // on the leader, as one rank; else on the layout of the run
  const ot_trainer_hooks *hooks;  // copied; or null
} ot_variant;

// Whether no rank needs more memory for a step of it than an audit may take in addition to the run:
// 1 GiB. Collective over the world, as all of the below. Blocks.
ot_status ot_variant_fits(const ot_variant *variant, bool *fits);

// Its trainer, at the run's weights and at the first step; null on ranks that have no part in it.
ot_status ot_variant_create(const ot_variant *variant, ot_trainer **out);

// Copies the weights of `from` (full-precision copies where it has them) into `to`, rounded to its
// type, and zeroes its moments. `to` may be null on all ranks but one, which then has the same
// parameters; else it may have fewer layers, or a head of its own where that of `from` is tied.
ot_status ot_variant_copy_weights(ot_instance *from, ot_instance *to);

// The same, but layers from `layers` on hand on what they get; `silenced`: and the MLP or the
// experts of the layer before those do.
ot_status ot_variant_keep_layers(ot_instance *from, ot_instance *to, int64_t layers, bool silenced);

// Rows of a parameter as float64, [range.rows * cols].
ot_status ot_variant_read(ot_instance *instance, ot_parameter_rows range, double *values);
