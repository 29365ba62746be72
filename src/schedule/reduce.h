// SPDX-License-Identifier: Apache-2.0
// Gradients on their way to their owners, and weights on their way back, bucket by bucket, as
// segments. The order of a sum is the same at every ZeRO stage: over OT_GROUP_SHARD, then the ranks
// of cp, then shard domains, then what tp holds copies of; so stages 0 to 3 agree bit for bit.
#pragma once

#include "describe/run.h"
#include "graph/graph.h"
#include "schedule/schedule.h"

typedef struct ot_reduce_request {
  const ot_graph *graph;
  const ot_schedule *schedule;  // groups and buckets
  const ot_run_precision *precision;
  int block;      // whose bucket
  bool tied_use;  // the bucket of the head's use of a tied embedding: only that part means
                  // anything
} ot_reduce_request;

// True for the parts of parameters whose squares are added up in OT_SCALAR_LOCAL_SQUARES before the
// sum over OT_GROUP_SHARD: not those that tp holds copies of (their gradients are whole only after
// another sum), and not a parameter that a head is tied to (its two uses add up in two buckets).
bool ot_reduce_notes(const ot_graph *graph, const ot_parameter *parameter, int part);

// Sums OT_BASE_GRADIENT (the whole bucket, of one micro-batch or of all) over OT_GROUP_SHARD into
// OT_BASE_GRADIENT_PIECE, adding to it when `adds`. With `last` the piece is then complete: summed
// over all groups that hold parts of it. A segment without tasks when there is nothing to sum.
void ot_reduce_build(const ot_reduce_request *request, bool adds, bool last, ot_arena *arena,
                     ot_segment *segment);

// Sums the elements [first, first + count) of OT_BASE_GRADIENT_PIECE over the first and the last
// stage, which hold the two uses of a tied embedding.
void ot_reduce_tied(const ot_reduce_request *request, int64_t first, int64_t count, ot_arena *arena,
                    ot_segment *segment);

// Gathers the pieces of the gradient (OT_BASE_GRADIENT_PIECE, in place in OT_BASE_GRADIENT).
void ot_reduce_spread(const ot_reduce_request *request, ot_arena *arena, ot_segment *segment);

// Gathers the pieces of the weights (OT_BASE_WEIGHT_PIECE) into OT_BASE_WEIGHT.
void ot_reduce_gather(const ot_reduce_request *request, ot_arena *arena, ot_segment *segment);
