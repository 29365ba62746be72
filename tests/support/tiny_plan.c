// SPDX-License-Identifier: Apache-2.0
// Planning for tests.
#include "support/tiny_plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

void tiny_plan_create(const ot_model *model, const tiny_request *request, tiny_plan *plan) {
  *plan = (tiny_plan){.model = *model, .recompute = request->recompute};
  plan->arena = ot_heap_arena_create(&plan->heap);
  plan->run = tiny_run(model);
  plan->run.parallel.recompute = &plan->recompute;
  const ot_rank_request wanted = {.modes = 1u << OT_MODE_TRAIN | 1u << OT_MODE_EVALUATE,
                                  .graph = {.model = &plan->model,
                                            .micro_batch_size = 2,
                                            .sequence_length = 7,
                                            .compute = OT_F32,
                                            .storage = OT_F32,
                                            .threads = 1,
                                            .backend = request->backend,
                                            .head_chunk_rows = 5},
                                  .schedule = {.run = &plan->run,
                                               .micro_batches = &request->micro_batches,
                                               .num_micro_batches = 1,
                                               .split_backward = request->split_backward,
                                               .guard_bytes = request->guard_bytes}};
  const ot_status status = ot_runtime_plan(&wanted, &plan->arena, plan->graphs, &plan->schedule);
  if (status != OT_OK) fail_msg("%s", ot_fail_message());
}

void tiny_plan_destroy(tiny_plan *plan) { ot_heap_release(&plan->heap); }
