// SPDX-License-Identifier: Apache-2.0
// The planner's input for a row: model, cluster, framework, recipe and parallel configuration. One
// rule for all rows fills what the source leaves open (docs/published.md), never the measurement.
#pragma once

#include "advise/calibrate.h"
#include "base/tree.h"
#include "describe/job.h"
#include "published_row.h"

enum { OT_PUBLISHED_MAX_CLUSTERS = 64, OT_PUBLISHED_MAX_ENGINES = 64 };

// Presets, read once, and changes to the cluster presets.
typedef struct ot_published_setup {
  const char *clusters;               // directory of the presets
  const ot_node *constants;           // {NAME: {key: value}} overriding the presets, or null
  const ot_calibration *calibration;  // corrects every cluster; null: none
  bool unnamed;                       // the names of sources and of software are not read
  ot_arena *arena;                    // memory of the presets
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
  ot_step_correction correction;  // of ot_published_setup.calibration
  ot_job job;                     // points to the above
  ot_candidate candidate;
  bool recompute_open;              // not stated in the source: use the mildest that fits
  bool vpp_open, micro_batch_open;  // the same: as tuned, the fastest that fits
  bool unnamed;                     // no name tells the software
  bool every_other_layer;           // half of the layers with full recompute, half without
} ot_published_job;

// `out` must not move while out->job is used. OT_USAGE if the row lacks a value that no rule fills,
// or if its values contradict each other.
ot_status ot_published_job_build(ot_published_setup *setup, const ot_published_row *stated,
                                 ot_published_job *out);

// Its parts. The framework: one table from words of the stated software, or of the source, to a
// framework version; without a name, from the parallel configuration.
ot_status ot_published_engine_read(ot_published_setup *setup, const ot_published_row *row,
                                   ot_engine *out, bool *unnamed);
ot_status ot_published_model_build(const ot_published_row *row, ot_model *out);
// The preset of the row's device with the device and link figures of the row.
ot_status ot_published_cluster_build(ot_published_setup *setup, const ot_published_row *row,
                                     ot_cluster *out);
