// SPDX-License-Identifier: Apache-2.0
// The keys of torchtitan's TOML that shape a step.
#pragma once

#include "base/schema.h"

typedef struct ot_torchtitan_model {
  const char *name, *flavor;
  const char **converters;  // [num_converters]
  int64_t num_converters;
} ot_torchtitan_model;

typedef struct ot_torchtitan_training {
  int64_t local_batch, global_batch, sequence;
  int products;  // 0 bfloat16, 1 float32
} ot_torchtitan_training;

// Orders of the pipeline, as in the table.
enum {
  OT_TORCHTITAN_1F1B,
  OT_TORCHTITAN_GPIPE,
  OT_TORCHTITAN_INTERLEAVED,
  OT_TORCHTITAN_INTERLEAVED_ZB,
  OT_TORCHTITAN_ZB_V,
};

typedef struct ot_torchtitan_degrees {
  int replicate, shard, tp, pp, cp, ep, etp;
  int schedule;
  int64_t layers_per_stage, pipeline_micro_batch;
  int reshard;  // 0 default, 1 always, 2 never
} ot_torchtitan_degrees;

typedef struct ot_torchtitan_checkpointing {
  int mode;  // 0 none, 1 selective, 2 full
} ot_torchtitan_checkpointing;

typedef struct ot_torchtitan_config {
  ot_torchtitan_model model;
  ot_torchtitan_training training;
  ot_torchtitan_degrees degrees;
  ot_torchtitan_checkpointing checkpointing;
} ot_torchtitan_config;

extern const ot_schema ot_torchtitan_schema;
