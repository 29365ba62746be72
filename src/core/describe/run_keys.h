// SPDX-License-Identifier: Apache-2.0
// The settings of a run from and to the keys of RUN.yaml. The table in run_keys.c is the only
// definition of spelling, type, range, default and help of each key.
#pragma once

#include "base/schema.h"
#include "describe/model_keys.h"
#include "describe/run.h"

// The object of the table: the run, and the keys of its model before conversion to run.model.
typedef struct ot_run_keys {
  ot_model_keys model;
  ot_run run;
} ot_run_keys;

extern const ot_schema ot_run_schema;

// Parses and checks the settings in `tree`, whose `model` is a map of HF keys. Fills in dependent
// defaults: precision.params from precision.compute, and so on.
//   settings  every key with its effective value, places as in `tree`; "default" or the key it
//             follows when not given. Parses to the same run.
ot_status ot_run_read(ot_node *tree, ot_arena *arena, ot_run *out, ot_node **settings);

// The settings of a RUN.yaml that gives `model` and precision.compute only, for programs that train
// without a file. Neither data nor a length is set. In `arena`, which the run refers to.
ot_status ot_run_defaults(const ot_model *model, ot_dtype compute, ot_arena *arena, ot_run *out);

// The section of `settings` that describes the teacher, or null.
ot_node *ot_run_teacher_section(const ot_node *settings);

// Adds "(FILE:LINE:COLUMN)" to the failure of a rule over several keys of a run: the place in
// `tree` (of its file, or `settings`) of the first key in the message that was written down, else
// of its section or file. Returns `status`; OT_OK adds nothing.
ot_status ot_run_place_failure(ot_status status, const ot_node *tree, ot_arena *arena);

// The settings as a tree, without places.
ot_node *ot_run_write(const ot_run *run, ot_arena *arena);

// Hash of all settings as text.
uint64_t ot_run_hash(const ot_run *run, ot_arena *arena);

// Appends to `out`, one "KEY: OLD -> NEW (PLACE)" per line, the changed settings that a resumed run
// must keep. Excluded are parallel, checkpoint, audit, evaluate, cluster, steps, output, log,
// on_spike, threads and batch.micro_batch_size, and settings given by --set in `new_settings` (by
// their places), which are listed after the others, since these may follow from them. Returns their
// number.
int ot_run_compare(const ot_node *old_settings, const ot_node *new_settings, ot_text_builder *out);

// The same for settings of two ranks (ot_run_write), none of which may differ: "KEY: VALUE on rank
// 0, VALUE here".
int ot_run_compare_ranks(const ot_node *first, const ot_node *own, ot_text_builder *out);
