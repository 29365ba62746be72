// SPDX-License-Identifier: Apache-2.0
// A configuration of other software as a job (import.h reads its texts, megatron.h its flags), and
// what its readers share. A key that changes time or memory is priced or refused by name; keys
// without effect are listed, and assumptions are reported as notes. Pure.
#pragma once

#include "base/arena.h"
#include "base/schema.h"
#include "base/tree.h"
#include "describe/engine.h"
#include "describe/model.h"
#include "describe/run.h"

typedef struct ot_imported {
  const char *format;         // "Megatron-LM flags", "torchtitan TOML", "nanotron YAML"
  const char *engine;         // describe/engine.h
  ot_engine_options options;  // switches of the file, for `engine`
  const char *precision;      // describe/recipe.h; null: the engine's own
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
  ot_module_set modules;       // of selective recompute; empty: as the engine has it
  const int *chunk_layers;     // [num_chunks] layers of each pipeline chunk in model order
  int num_chunks;              // 0: as the software divides them itself
  double gather_bytes;         // of a weight in an all-gather; 0: the precision's
  double moment_bytes;         // of both moments of a parameter; 0: the precision's
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

// Parsers, presets and files, which readers need besides the text.
typedef struct ot_import_host {
  ot_tree_parser *parse_yaml, *parse_json;
  bool (*has_preset)(const void *context, const char *name, ot_arena *arena);
  // Fills model and model_keys of `out`.
  ot_status (*load_preset)(const void *context, const char *name, ot_arena *arena,
                           ot_imported *out);
  // The text of the file at `path`, which belongs to this user, in `arena`.
  ot_status (*read_beside)(const char *path, ot_arena *arena, const char **text);
  const void *context;
} ot_import_host;

// State of an import: the file and the result so far.
typedef struct ot_import {
  const char *path;  // for messages
  const char *text;  // [bytes], ends in zero
  int64_t bytes;
  const char *script;    // the script around `text`; null: `text` is the whole file
  const char *document;  // the body of the first here-document with an end, on its lines; or null
  const ot_import_host *host;  // null: the text names no presets and no files
  ot_arena *arena;
  ot_imported *out;
  int64_t note_capacity, ignored_capacity;
} ot_import;

// Adds a sentence to the notes; conversions as ot_text_format.
void ot_import_note(ot_import *import, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// Adds to the ignored keys, as "SECTION.KEY", the keys of `map` that are inert in `schema`, and
// recursively those of its objects.
void ot_import_ignored(ot_import *import, const ot_schema *schema, const ot_node *map,
                       const char *section);

// Rows of a vocabulary padded to a multiple of `multiple` (>= 1).
int64_t ot_import_padded(int64_t vocabulary, int64_t multiple);

// The end of an import: devices from degrees, where the file gives no others. OT_USAGE for a model
// that cannot be.
ot_status ot_import_end(ot_import *import);

// Fills in dp and the global batch for `devices` devices (0: those of the file). OT_USAGE when the
// degrees do not divide them, or when the number is unknown.
ot_status ot_imported_fit(ot_imported *imported, int devices);
