// SPDX-License-Identifier: Apache-2.0
// RUN.yaml with its model file and --set, in order of precedence: defaults, model file, run file,
// --set. Reads files and leaves all meaning to the table (describe/run_keys.h). Also models and
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

// Where presets are: directories that hold the folders above, tried in order.
typedef struct ot_presets {
  const char *const *directories;  // [num_directories]
  int num_directories;
} ot_presets;

typedef struct ot_config_request {
  const char *path;         // RUN.yaml; null: no file, everything from `sets`
  const char *text;         // settings as JSON, as a manifest keeps them, in place of the file at
                            // `path`, which names them; null: read the file
  const char *const *sets;  // [num_sets] "KEY=VALUE" as given to --set
  int num_sets;
  ot_presets presets;
} ot_config_request;

// What a user should know of the files of a model and of its initial weights, in whole lines.
typedef struct ot_config_notes {
  int count;
  const char *text[4];
} ot_config_notes;

typedef struct ot_config {
  ot_run run;
  ot_node *settings;  // every key with its value in force and its place (ot_run_read)
  ot_config_notes notes;
} ot_config;

// Reads and checks a run. Everything lives in `arena`.
ot_status ot_config_load(const ot_config_request *request, ot_arena *arena, ot_config *out);

// A model and the map of HF keys that it was read from.
typedef struct ot_config_model {
  ot_model model;
  ot_node *keys;
  ot_config_notes notes;
} ot_config_model;

// Reads a model: a preset's name, a HF config.json, or a directory that holds one. Paths are
// relative to the current directory. Of `request`, `sets` (model.KEY=VALUE only) and `presets`
// count.
ot_status ot_config_load_model(const char *source, const ot_config_request *request,
                               ot_arena *arena, ot_config_model *out);

// The path of a preset, or null.
const char *ot_presets_find(const ot_presets *presets, ot_preset_kind kind, const char *name,
                            ot_arena *arena);

// Adds to the failure recorded last which preset may have been meant by `name`: the nearest, or
// those of a family that is called alike. False where none is near.
bool ot_presets_suggest(const ot_presets *presets, ot_preset_kind kind, const char *name,
                        ot_arena *arena);

// The names of the presets of a kind, sorted, each once, in `arena`. Directories that do not exist
// are skipped.
typedef struct ot_preset_names {
  const char **name;  // [count]
  int64_t count;
} ot_preset_names;
ot_preset_names ot_presets_list(const ot_presets *presets, ot_preset_kind kind, ot_arena *arena);

// ---- cluster files ----

// YAML (describe/cluster_keys.h), found as presets or paths; "this-machine" is what `orthant bench`
// wrote into the user's folder.

// Reads the cluster called `name`: a path (with a slash or .yaml) or a preset; lives in `arena`.
// `found` is false, and nothing is read, when "this-machine" was never measured. Else OT_USAGE as
// of ot_cluster_read, OT_ENVIRONMENT when there is no such file.
ot_status ot_cluster_file_load(const char *name, const ot_presets *presets, ot_arena *arena,
                               ot_cluster *out, bool *found);

// Writes `cluster` to `path`, replacing what is there.
ot_status ot_cluster_file_save(const ot_cluster *cluster, const char *path);

// ---- engine files ----

// YAML (describe/engine_keys.h), found as presets or paths.

// The engine called `name`: this program, a path (with a slash or .yaml) or a preset; lives in
// `arena`. OT_USAGE as of ot_engine_read, or naming all engines when there is none called so.
ot_status ot_engine_file_load(const char *name, const ot_presets *presets, ot_arena *arena,
                              const ot_engine **out);
