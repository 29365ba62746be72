// SPDX-License-Identifier: Apache-2.0
// Configurations of other software, as far as they say what a step takes: Megatron-LM's flags (a
// shell script, a file of flags or a YAML map of them), torchtitan's TOML and nanotron's YAML. The
// format is told by the content. A key that is not known is an error, one that changes nothing in
// the price of a step is listed, and what is assumed is said in words.
#pragma once

#include "base/arena.h"
#include "base/tree.h"
#include "describe/model.h"
#include "describe/run.h"
#include "files/config_file.h"

typedef struct ot_imported {
  const char *format;     // "Megatron-LM flags", "torchtitan TOML", "nanotron YAML"
  const char *engine;     // describe/engine.h
  const char *precision;  // plan/recipe.h; null: the engine's own
  ot_model model;
  const char *model_name;  // a preset's name, or the file's
  ot_node *model_keys;     // HF keys of the same model; null: no family of HF is like it
  // Degrees; 0 = the file does not say.
  int tp, pp, vpp, cp, ep, etp;
  int dp, dp_replicate;  // dp = dp_replicate x dp_shard
  int devices;
  int zero;  // [0, 3]
  ot_pipeline pipeline;
  ot_recompute recompute;
  bool no_sequence_parallel;   // with tp, activations between its regions are whole
  int64_t micro_batch_size;    // sequences
  int64_t global_batch_size;   // sequences; 0: as many as local_batch_size on each rank of dp
  int64_t local_batch_size;    // sequences of a step on one rank of dp; 0 when the other is given
  int64_t sequence_length;     // tokens
  const char *const *ignored;  // [num_ignored] keys of the file that change nothing here
  int num_ignored;
  const char *const *notes;  // [num_notes] what was assumed or left out, one sentence each
  int num_notes;
} ot_imported;

// Reads the file at `path`; everything lives in `arena`. Relative names of presets are looked up in
// `presets`. OT_ENVIRONMENT for a file that cannot be read, OT_USAGE naming file, line, key and
// what is allowed.
ot_status ot_import_read(const char *path, const ot_presets *presets, ot_arena *arena,
                         ot_imported *out);

// Fills in dp and the global batch for so many devices (0: those of the file). OT_USAGE when the
// degrees do not divide them, or when nothing says how many there are.
ot_status ot_imported_fit(ot_imported *imported, int devices);
