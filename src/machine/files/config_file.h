// SPDX-License-Identifier: Apache-2.0
// RUN.yaml with its model file and --set, in increasing precedence: defaults, model file, run file,
// --set. Reads files; the table (describe/run_keys.h) defines all meaning. Also loads models and
// clusters alone, and presets.
#pragma once

#include "base/status.h"
#include "base/tree.h"
#include "describe/cluster.h"
#include "describe/engine.h"
#include "describe/run.h"

typedef enum ot_preset_kind {
  OT_PRESET_MODEL,    // models/NAME.json
  OT_PRESET_CLUSTER,  // clusters/NAME.yaml
  OT_PRESET_ENGINE,   // engines/NAME.yaml
} ot_preset_kind;

// Directories that hold the folders above, searched in order.
typedef struct ot_presets {
  const char *const *directories;  // [num_directories]
  int num_directories;
} ot_presets;

typedef struct ot_config_request {
  const char *path;         // RUN.yaml; null: no file, everything from `sets`
  const char *text;         // settings as JSON, as stored in a manifest, instead of the file at
                            // `path`, which is used in messages; null: read the file
  const char *const *sets;  // [num_sets] "KEY=VALUE" as given to --set
  int num_sets;
  ot_presets presets;
} ot_config_request;

// Notes for the user on the files of a model and of its initial weights, in whole lines.
typedef struct ot_config_notes {
  int count;
  const char *text[4];
} ot_config_notes;

typedef struct ot_config {
  ot_run run;
  ot_node *settings;  // every key with its effective value and its place (ot_run_read)
  ot_config_notes notes;
} ot_config;

// "KEY=VALUE" for `sets` whose value is `text`, whatever YAML makes of the same bytes.
const char *ot_config_setting(ot_arena *arena, const char *key, const char *text);

// Parses and checks a run. All results are allocated in `arena`.
ot_status ot_config_load(const ot_config_request *request, ot_arena *arena, ot_config *out);

// A model and its map of HF keys.
typedef struct ot_config_model {
  ot_model model;
  ot_node *keys;
  ot_config_notes notes;
} ot_config_model;

// Loads a model: a preset's name, a HF config.json, or a directory with one. Paths are relative to
// the current directory. Only `sets` (model.KEY=VALUE only) and `presets` of `request` are used.
ot_status ot_config_load_model(const char *source, const ot_config_request *request,
                               ot_arena *arena, ot_config_model *out);

// The path of a preset, or null.
const char *ot_presets_find(const ot_presets *presets, ot_preset_kind kind, const char *name,
                            ot_arena *arena);

// Adds a hint to the last failure with the presets similar to `name`: the nearest, or those of a
// family with that name. False when none is similar.
bool ot_presets_suggest(const ot_presets *presets, ot_preset_kind kind, const char *name,
                        ot_arena *arena);

// The names of the presets of a kind, sorted, without duplicates, in `arena`. Missing directories
// are skipped.
typedef struct ot_preset_names {
  const char **name;  // [count]
  int64_t count;
} ot_preset_names;
ot_preset_names ot_presets_list(const ot_presets *presets, ot_preset_kind kind, ot_arena *arena);

// ---- cluster files ----

// YAML (describe/cluster_keys.h), found as presets or paths; "this-machine" is the file that
// `orthant bench` wrote in the user's folder.

// Loads the cluster called `name`: a path (with a slash or .yaml) or a preset; allocated in
// `arena`. `found` is false, and nothing is loaded, when "this-machine" was never measured. A file
// may derive from another cluster (`base: h100`), as may its parts (ot_cluster_each_base): it has
// that one's keys unless it gives them itself. With rates of its own it is extrapolated, not
// fitted. Otherwise OT_USAGE as for ot_cluster_read, OT_ENVIRONMENT when the file does not exist.
ot_status ot_cluster_file_load(const char *name, const ot_presets *presets, ot_arena *arena,
                               ot_cluster *out, bool *found);

// Writes `cluster` to `path`, replacing an existing file.
ot_status ot_cluster_file_save(const ot_cluster *cluster, const char *path);

// ---- engine files ----

// YAML (software/engine_keys.h), found as presets or paths.

// The engine called `name`: Orthant, a path (with a slash or .yaml) or a preset; allocated in
// `arena`. OT_USAGE as for ot_engine_read, or with a list of all engines when it does not exist.
ot_status ot_engine_file_load(const char *name, const ot_presets *presets, ot_arena *arena,
                              const ot_engine **out);
