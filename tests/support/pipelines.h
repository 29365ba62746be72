// SPDX-License-Identifier: Apache-2.0
// Pipeline schedules for tests, chunks placed as each kind requires.
#pragma once

#include "host/heap.h"
#include "pipeline/pipeline_schedule.h"

enum { PIPELINE_MAX_CHUNKS = 256 };

typedef struct pipeline_case {
  ot_heap heap;
  ot_arena arena;
  int rank_of[PIPELINE_MAX_CHUNKS];
  ot_pipeline_schedule order;
} pipeline_case;

typedef struct pipeline_shape {
  ot_pipeline kind;
  int p, v, m;      // v: chunks per rank
  const char *csv;  // or null
} pipeline_shape;

// Builds the schedule in `out`; the caller destroys it even after an error.
ot_status pipeline_case_build(const pipeline_shape *shape, pipeline_case *out);
// The same; fails the test on an error.
void pipeline_case_create(const pipeline_shape *shape, pipeline_case *out);
void pipeline_case_destroy(pipeline_case *out);

// Chunks per rank that tests use for `kind`: 2 for interleaved, zb-v and dualpipe-v.
int pipeline_chunks(ot_pipeline kind);
