// SPDX-License-Identifier: Apache-2.0
// Buckets: the parameters of a block as one flat padded vector, and which part of each of its
// copies (weights, gradients, moments, master) this rank's arena holds. ZeRO cuts a bucket into as
// many equal contiguous pieces as there are ranks in OT_GROUP_SHARD; rank i of the group owns piece
// i.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/choices.h"

typedef enum ot_bucket_copy {
  OT_BUCKET_WEIGHT,    // in the storage type
  OT_BUCKET_GRADIENT,  // in the type of accumulators; sum over all ranks after a step
  OT_BUCKET_MOMENT_1,
  OT_BUCKET_MOMENT_2,
  OT_BUCKET_MASTER,
  OT_BUCKET_COPIES,
} ot_bucket_copy;

// Elements [first, first + count) of the bucket, at `offset` bytes of the arena; count 0: nothing.
typedef struct ot_bucket_range {
  int64_t offset, first, count;
} ot_bucket_range;

// A sum over ranks that the gradient of elements [first, first + count) needs before it is used:
// the transpose of what makes the parameter known to ranks that use it on different values.
typedef struct ot_bucket_sum {
  ot_group_kind group;
  int64_t first, count;
  bool each_micro_batch;  // made after each micro-batch, not once
} ot_bucket_sum;

typedef struct ot_bucket {
  int64_t elements;                     // padded: pieces * piece_elements
  int64_t piece_first, piece_elements;  // of this rank
  bool counted;  // false for the copy of a tied embedding on the last stage: the first stage counts
                 // and saves it
  ot_bucket_range copy[OT_BUCKET_COPIES];
  int num_sums;
  ot_bucket_sum *sums;  // [num_sums]
} ot_bucket;
