// SPDX-License-Identifier: Apache-2.0
// Pipeline orders for tests, with their chunks placed as each kind wants them.
#pragma once

#include "host/heap.h"
#include "pipeline/pipeline_order.h"

enum { PIPELINE_MAX_CHUNKS = 256 };

typedef struct pipeline_case {
  ot_heap heap;
  ot_arena arena;
  int rank_of[PIPELINE_MAX_CHUNKS];
  ot_pipeline_order order;
} pipeline_case;

typedef struct pipeline_shape {
  ot_pipeline kind;
  int p, v, m;      // v: chunks a rank
  const char *csv;  // or null
} pipeline_shape;

// Builds the order in `out`, which is to be destroyed whatever comes back.
ot_status pipeline_case_build(const pipeline_shape *shape, pipeline_case *out);
// The same; fails the test on an error.
void pipeline_case_create(const pipeline_shape *shape, pipeline_case *out);
void pipeline_case_destroy(pipeline_case *out);

// Chunks a rank that `kind` runs in tests: 2 for interleaved and zb-v.
int pipeline_chunks(ot_pipeline kind);
