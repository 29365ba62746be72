// SPDX-License-Identifier: Apache-2.0
// The HF tensors of each parameter of a block, by family.
#pragma once

#include "base/arena.h"
#include "describe/family.h"
#include "graph/local_shape.h"
#include "graph/parameter.h"

// How a parameter is sharded over tp.
typedef enum ot_shard_axis {
  OT_SHARD_NOT,         // replicated, used on this rank's tokens or heads
  OT_SHARD_BY_ROWS,     // column-parallel: outputs of the ranks are concatenated
  OT_SHARD_BY_COLUMNS,  // row-parallel: outputs of the ranks are summed
  OT_SHARD_BY_EXPERTS,  // replicated over tp; sharded over ep
} ot_shard_axis;

// Which parameter.
typedef struct ot_hf_request {
  const ot_model *model;
  const ot_local_shape *share;
  ot_role role;
  int layer;           // -1 outside layers
  const char *suffix;  // "weight", "bias" or "sinks"
} ot_hf_request;

// How tp shards the weights (`vector` false) or the biases of `role`.
ot_shard_axis ot_role_shard_axis(ot_role role, bool vector);

// Fills `parts` and `num_parts` of `parameter`, whose rows, cols and rank are already set to this
// rank's.
void ot_hf_parts(const ot_hf_request *request, ot_arena *arena, ot_parameter *parameter);
