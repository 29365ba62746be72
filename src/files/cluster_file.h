// SPDX-License-Identifier: Apache-2.0
// Cluster files: YAML (describe/cluster_keys.h), found as presets or paths; "this-machine" is what
// `orthant bench` wrote into the user's folder.
#pragma once

#include "describe/cluster.h"
#include "files/config_file.h"

// Reads the cluster called `name`: a path (with a slash or .yaml) or a preset; lives in `arena`.
// `found` is false, and nothing is read, when "this-machine" was never measured. Else OT_USAGE as
// of ot_cluster_read, OT_ENVIRONMENT when there is no such file.
ot_status ot_cluster_file_load(const char *name, const ot_presets *presets, ot_arena *arena,
                               ot_cluster *out, bool *found);

// Writes `cluster` to `path`, replacing what is there.
ot_status ot_cluster_file_save(const ot_cluster *cluster, const char *path);
