// SPDX-License-Identifier: Apache-2.0
// Configurations of other software, as far as they determine the cost of a step: flags of
// Megatron-LM and Megatron-DeepSpeed (a shell script, a file of flags or a YAML map of them),
// torchtitan's TOML, YAML of nanotron, NeMo, Megatron-Bridge and MaxText, DeepSpeed's JSON; also
// inside a script that writes them by a here-document (export/). The format is detected from the
// content. A key that changes time or memory is priced or refused by name; keys without effect are
// listed, and assumptions are reported as notes.
#pragma once

#include "base/arena.h"
#include "base/tree.h"
#include "describe/engine.h"
#include "describe/model.h"
#include "describe/run.h"
#include "files/config_file.h"

typedef struct ot_imported {
  const char *format;         // "Megatron-LM flags", "torchtitan TOML", "nanotron YAML"
  const char *engine;         // describe/engine.h
  ot_engine_options options;  // switches of the file, for `engine`
  const char *precision;      // plan/recipe.h; null: the engine's own
  bool has_model;             // otherwise --model gives it
  ot_model model;
  const char *model_name;  // a preset's name, or the file's
  ot_node *model_keys;     // HF keys of the same model; null: no HF family matches it
  // Degrees; 0 = not given.
  int tp, pp, vpp, cp, ep, etp;
  int dp, dp_replicate;  // dp = dp_replicate x dp_shard
  int shard_ranks;       // dp_shard, where the file gives it instead of dp_replicate; 0: not given
  int devices;
  int zero;  // [0, 3]
  ot_pipeline pipeline;
  ot_recompute recompute;
  const int *chunk_layers;     // [num_chunks] layers of each pipeline chunk in model order
  int num_chunks;              // 0: as the software divides them itself
  double gather_bytes;         // of a weight in an all-gather; 0: the precision's
  bool no_sequence_parallel;   // with tp, activations between its regions are replicated
  int64_t micro_batch_size;    // sequences
  int64_t global_batch_size;   // sequences; 0: local_batch_size on each rank of dp
  int64_t local_batch_size;    // sequences per step on one rank of dp; 0 when the other is given
  int64_t sequence_length;     // tokens
  const char *const *ignored;  // [num_ignored] keys of the file without effect
  int num_ignored;
  const char *const *notes;  // [num_notes] assumptions and omissions, one sentence each
  int num_notes;
} ot_imported;

// Parses the file at `path`; results are allocated in `arena`. Relative names of presets are looked
// up in `presets`. OT_ENVIRONMENT for an unreadable file, OT_USAGE naming file, line, key and the
// allowed values.
ot_status ot_import_read(const char *path, const ot_presets *presets, ot_arena *arena,
                         ot_imported *out);

// Fills in dp and the global batch for `devices` devices (0: those of the file). OT_USAGE when the
// degrees do not divide them, or when the number is unknown.
ot_status ot_imported_fit(ot_imported *imported, int devices);
