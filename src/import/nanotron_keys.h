// SPDX-License-Identifier: Apache-2.0
// The keys of nanotron's YAML that shape a step.
#pragma once

#include "base/schema.h"

typedef struct ot_nanotron_parallelism {
  int dp, pp, tp, cp, ep;
  int order;    // 0 1f1b, 1 all forward, all backward
  int tp_mode;  // 0 all-reduce, 1 reduce-scatter
  bool recompute;
} ot_nanotron_parallelism;

typedef struct ot_nanotron_tokens {
  int64_t sequence, micro_batch, micro_batches;
} ot_nanotron_tokens;

typedef struct ot_nanotron_optimizer {
  int zero;
  bool fp32_gradients;
} ot_nanotron_optimizer;

typedef struct ot_nanotron_model {
  int type;  // 0 bfloat16, 1 float32, 2 float16
  int64_t multiple;
} ot_nanotron_model;

typedef struct ot_nanotron_config {
  ot_nanotron_parallelism parallelism;
  ot_nanotron_tokens tokens;
  ot_nanotron_optimizer optimizer;
  ot_nanotron_model model;
} ot_nanotron_config;

extern const ot_schema ot_nanotron_schema;
