// SPDX-License-Identifier: Apache-2.0
// The settings of a run from and to the keys of RUN.yaml. The table in run_keys.c is the one place
// where a key has its spelling, type, range, default and help.
#pragma once

#include "base/schema.h"
#include "describe/model_keys.h"
#include "describe/run.h"

// What the table describes: the run, and the keys of its model before they become run.model.
typedef struct ot_run_keys {
  ot_model_keys model;
  ot_run run;
} ot_run_keys;

extern const ot_schema ot_run_schema;

// Reads and checks the settings in `tree`, whose `model` is a map of HF keys. Values that follow
// from others where they were not given are filled in: precision.params from precision.compute, and
// so on.
//   settings  every key with its value in force, places as in `tree`; "default" or what it follows
//             where nothing was given. Reads back as the same run.
ot_status ot_run_read(ot_node *tree, ot_arena *arena, ot_run *out, ot_node **settings);

// The settings as a tree, without places.
ot_node *ot_run_write(const ot_run *run, ot_arena *arena);

// Hash of all settings as text.
uint64_t ot_run_hash(const ot_run *run, ot_arena *arena);

// Lists in `out`, one "KEY: OLD -> NEW (PLACE)" a line, the settings that differ although a resumed
// run must keep them: not parallel, checkpoint, audit, cluster, steps, output, log, threads and
// batch.micro_batch_size, and not what --set gave to `new_settings` (its places tell), which is
// listed behind them: they may follow from it. Returns their number.
int ot_run_compare(const ot_node *old_settings, const ot_node *new_settings, ot_text_builder *out);
