// SPDX-License-Identifier: Apache-2.0
// Gradient reductions and weight gathers of buckets, as segments. The order of a reduction is the
// same at every ZeRO stage: over OT_GROUP_SHARD, cp ranks, shard domains, then parts that tp
// replicates; so stages 0 to 3 agree bit for bit.
#pragma once

#include "describe/run.h"
#include "graph/graph.h"
#include "schedule/schedule.h"

typedef struct ot_reduce_request {
  const ot_graph *graph;
  const ot_schedule *schedule;  // groups and buckets
  const ot_run_precision *precision;
  int block;      // owner of the bucket
  bool tied_use;  // the bucket of the head's use of a tied embedding: only that part is valid
} ot_reduce_request;

// Whether the squares of a part are added to OT_SCALAR_LOCAL_SQUARES before the reduction over
// OT_GROUP_SHARD. False for parts that tp replicates (their gradients need another reduction), and
// for a parameter that a head is tied to (its two uses have two buckets).
bool ot_reduce_adds_local_squares(const ot_graph *graph, const ot_parameter *parameter, int part);

// Reduces OT_BASE_GRADIENT (the full bucket, of one micro-batch or of all) over OT_GROUP_SHARD into
// OT_BASE_GRADIENT_PIECE; accumulates if `adds`. With `last`, also reduces over all other groups,
// so the shard is complete. A segment without tasks if no reduction is needed.
void ot_reduce_build(const ot_reduce_request *request, bool adds, bool last, ot_arena *arena,
                     ot_segment *segment);

// Reduces elements [first, first + count) of OT_BASE_GRADIENT_PIECE over the first and the last
// stage, which have the two uses of a tied embedding.
void ot_reduce_tied(const ot_reduce_request *request, int64_t first, int64_t count, ot_arena *arena,
                    ot_segment *segment);

// All-gathers the gradient shards (OT_BASE_GRADIENT_PIECE, in place in OT_BASE_GRADIENT).
void ot_reduce_gather_gradient(const ot_reduce_request *request, ot_arena *arena,
                               ot_segment *segment);

// All-gathers the weight shards (OT_BASE_WEIGHT_PIECE) into OT_BASE_WEIGHT.
void ot_reduce_gather_weight(const ot_reduce_request *request, ot_arena *arena,
                             ot_segment *segment);
