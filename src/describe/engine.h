// SPDX-License-Identifier: Apache-2.0
// What software runs a step, as far as it shapes the step: which ops the builder chooses and how
// the host and the collectives behave. `orthant` is one value; the ones that describe other
// people's published runs will stand beside it. The simulator never sees this: what it decides is
// in the schedule.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

// How a collective is carried out.
typedef enum ot_collective_algorithm {
  OT_COLLECTIVE_EXCHANGE,      // everyone sends each block to its owner, who sums in rank order
  OT_COLLECTIVE_RING,          // blocks travel around
  OT_COLLECTIVE_TREE,          // sums go up a tree and results down
  OT_COLLECTIVE_HIERARCHICAL,  // first inside a node, then between nodes
} ot_collective_algorithm;

typedef struct ot_engine {
  const char *name;
  bool fused_attention;  // no T x T tensor; else scores are stored for the backward pass
  bool chunked_loss;     // logits exist for some rows at a time; else for the whole micro-batch
  bool fused_optimizer;  // one pass over a parameter and its state
  ot_collective_algorithm reduce;
  ot_collective_algorithm gather;
  bool overlap_dp, overlap_tp, overlap_pp;  // collectives of the axis run beside compute
  int64_t loss_rows;                        // rows of logits at once with chunked_loss
  int64_t bucket_bytes;                     // gradients per reduction; 0 = one block of the model
  double kernel_launch_s;                   // host time of one kernel
  double allocator_slack;  // share of memory lost to an allocator; 0 with a planned arena
} ot_engine;

// The engine called `name`, or null.
const ot_engine *ot_engine_find(const char *name);

// This program.
extern const ot_engine ot_engine_orthant;

ot_status ot_engine_check(const ot_engine *engine);
int64_t ot_engine_print(const ot_engine *engine, char *out, int64_t capacity);
uint64_t ot_engine_hash(const ot_engine *engine);
