// SPDX-License-Identifier: Apache-2.0
// Places chunks for tests of pipeline schedules.
#include "support/pipelines.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "describe/pipeline_rules.h"

int pipeline_chunks(ot_pipeline kind) { return ot_pipeline_rules_of(kind)->min_chunks; }

ot_status pipeline_case_build(const pipeline_shape *shape, pipeline_case *out) {
  *out = (pipeline_case){0};
  out->arena = ot_heap_arena_create(&out->heap);
  for (int c = 0; c < shape->p * shape->v; c++) {
    out->rank_of[c] = ot_pipeline_stage(shape->kind, shape->p, c);
  }
  const ot_pipeline_request request = {
      .kind = shape->kind,
      .num_ranks = shape->p,
      .num_chunks = shape->p * shape->v,
      .micro_batches = shape->m,
      .rank_of = out->rank_of,
      .csv = shape->csv,
  };
  return ot_pipeline_schedule_build(&request, &out->arena, &out->order);
}

void pipeline_case_create(const pipeline_shape *shape, pipeline_case *out) {
  if (pipeline_case_build(shape, out) == OT_OK) return;
  fail_msg("%s, p=%d, m=%d: %s", ot_pipeline_name(shape->kind), shape->p, shape->m,
           ot_fail_message());
}

void pipeline_case_destroy(pipeline_case *out) { ot_heap_release(&out->heap); }
