// SPDX-License-Identifier: Apache-2.0
// Which buckets a stage gathers and sums, and when: what step_plan.c plans for a schedule, from the
// list of a stage's actions. An item is one block of one action. Private to plan/.
#pragma once

#include "plan/estimator.h"

// A bucket of weights gathered for some items, or of gradients that are summed when the last of its
// items is done.
typedef struct ot_bucket_use {
  int block, micro_batch;
  int issue;        // item before which a gather begins
  int first, last;  // items that read or write it
  int place;        // among the buckets of its size
  int previous;     // use that had the place before, or -1
} ot_bucket_use;

typedef struct ot_bucket_list {
  int count;
  ot_bucket_use *uses;  // [count] by first item
} ot_bucket_list;

typedef struct ot_bucket_plan {
  int num_items;
  // [num_items] use that the item reads or writes, or -1.
  int *gather, *tied_gather, *sum, *tied_sum;
  ot_bucket_list gathers, sums, tied_sums;
} ot_bucket_plan;

// That of request->plans, where they are made.
void ot_bucket_plan_build(const ot_play_request *request, int stage, ot_arena *arena,
                          ot_bucket_plan *out);

// Buckets of `elements` that `list` takes at once.
int ot_bucket_places(const ot_play_request *request, const ot_bucket_list *list, int64_t elements);
