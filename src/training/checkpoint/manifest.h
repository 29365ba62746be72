// SPDX-License-Identifier: Apache-2.0
// manifest.json of a checkpoint: contents, step, and size and hash of every file, so that a file of
// another step or a damaged one is detected. Text to struct and back; no files. The last key,
// "checksum", is the XXH3-128 of the text before it.
#pragma once

#include "base/arena.h"
#include "base/json_writer.h"
#include "files/content_hash.h"

enum { OT_MANIFEST_FORMAT = 1, OT_MANIFEST_BYTES_MAX = 1 << 26 };

// Degrees of the mesh that saved it, for information only: a checkpoint loads on any mesh.
typedef struct ot_manifest_mesh {
  int pp, vpp, dp_replicate, dp_shard, cp, ep, tp, ranks;  // each >= 1
} ot_manifest_mesh;

typedef struct ot_manifest {
  int64_t step;        // completed steps
  const char *config;  // resolved configuration, one JSON object
  ot_manifest_mesh mesh;
  int64_t next_sample;  // index of the first sample not yet trained on
  int64_t tokens;       // trained on so far
  const char *record;   // of the data (data/data_record.h), a JSON object; null: none
  const char *state;    // further state of the loop, a JSON object; null: none
  int num_files;
  const ot_content_record *files;  // [num_files], except the manifest
} ot_manifest;

// The text of manifest.json. `config`, `record` and `state` must be valid JSON.
const char *ot_manifest_print(ot_arena *arena, const ot_manifest *manifest);

// Writes the object "mesh".
void ot_manifest_write_mesh(ot_json_writer *json, const ot_manifest_mesh *mesh);

// Reads `text` [bytes], named `path` in messages. OT_ENVIRONMENT if it is not a complete manifest
// of this format, its checksum is missing or wrong, or a file name contains a path.
ot_status ot_manifest_build(ot_arena *arena, const char *path, const char *text, int64_t bytes,
                            ot_manifest *manifest);

// The record of file `name`, or null.
const ot_content_record *ot_manifest_find(const ot_manifest *manifest, const char *name);
