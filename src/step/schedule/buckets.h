// SPDX-License-Identifier: Apache-2.0
// Buckets: the parameters of a block as one flat padded vector, and the range of each copy
// (weights, gradients, moments, master) in this rank's arena. ZeRO shards a bucket into equal
// contiguous shards, one per rank of OT_GROUP_SHARD; rank i of the group owns shard i.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/choices.h"

typedef enum ot_bucket_copy {
  OT_BUCKET_WEIGHT,    // storage dtype
  OT_BUCKET_GRADIENT,  // accumulator dtype; reduced over all ranks after a step
  OT_BUCKET_MOMENT_1,
  OT_BUCKET_MOMENT_2,
  OT_BUCKET_MASTER,
  OT_BUCKET_COPIES,
} ot_bucket_copy;

// Elements [first, first + count) of the bucket, at `offset` bytes of the arena; count 0: empty.
typedef struct ot_bucket_range {
  int64_t offset, first, count;
} ot_bucket_range;

// A reduction that the gradient of elements [first, first + count) needs before use: the transpose
// of the broadcast of the parameter to ranks that use it on different values.
typedef struct ot_bucket_reduction {
  ot_group_kind group;
  int64_t first, count;
  bool each_micro_batch;  // after each micro-batch, not once
} ot_bucket_reduction;

typedef struct ot_bucket {
  int64_t elements;                     // padded: shards * shard_elements
  int64_t shard_first, shard_elements;  // this rank's shard
  bool counted;  // false for the copy of a tied embedding on the last stage: the first stage counts
                 // it in norms and saves it
  ot_bucket_range copy[OT_BUCKET_COPIES];
  int num_sums;
  ot_bucket_reduction *sums;  // [num_sums]
} ot_bucket;
