// SPDX-License-Identifier: Apache-2.0
// What the planner is asked for a row: model, cluster, engine, recipe and split. What the source
// leaves open is filled by one rule for all rows (docs/published.md), never by looking at what was
// measured.
#pragma once

#include "base/tree.h"
#include "plan/job.h"
#include "published_row.h"

enum { OT_PUBLISHED_MAX_CLUSTERS = 64, OT_PUBLISHED_MAX_ENGINES = 64 };

// Presets, read once, and what to change in those of clusters.
typedef struct ot_published_setup {
  const char *clusters;      // directory of the presets
  const ot_node *constants;  // {NAME: {key: value}} over the presets, or null
  ot_arena *arena;           // where presets live
  int num_read;
  struct {
    const char *name;
    ot_cluster cluster;
  } read[OT_PUBLISHED_MAX_CLUSTERS];
  int num_engines;
  const ot_engine *engines[OT_PUBLISHED_MAX_ENGINES];
} ot_published_setup;

typedef struct ot_published_job {
  ot_model model;
  ot_cluster cluster;
  ot_engine engine;
  ot_job job;  // points to the three above
  ot_candidate candidate;
  bool recompute_open;     // the source does not say: the mildest that fits
  bool every_other_layer;  // half of the layers in full, half not at all
} ot_published_job;

// `out` must stay where it is while out->job is used. OT_USAGE when the row lacks something that no
// rule fills, or when its values do not go together.
ot_status ot_published_job_build(ot_published_setup *setup, const ot_published_row *stated,
                                 ot_published_job *out);

// The parts of it. The engine: one table from words of the source to software at a version.
ot_status ot_published_engine_read(ot_published_setup *setup, const ot_published_row *row,
                                   ot_engine *out);
ot_status ot_published_model_build(const ot_published_row *row, ot_model *out);
// The preset of the row's device, with the figures of devices and links that the row states.
ot_status ot_published_cluster_build(ot_published_setup *setup, const ot_published_row *row,
                                     ot_cluster *out);
