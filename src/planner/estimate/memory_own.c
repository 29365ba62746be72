// SPDX-License-Identifier: Apache-2.0
// Memory of engine orthant: adds up the regions that its schedules allocate. Bytes per parameter
// are the recipe's; with the recipe of Orthant's own training, the total equals the arena to the
// byte.
#include "base/extremes.h"
#include "estimate/memory.h"
#include "schedule/layout.h"
#include "schedule/step_regions.h"

typedef struct adder {
  ot_memory_estimate *out;
  int64_t top, end;  // as ot_region_map: offset of the next region, end of the last
} adder;

static int64_t *class_of(ot_memory_estimate *out, ot_memory_class class) {
  switch (class) {
    case OT_MEMORY_WEIGHTS:
      return &out->weights;
    case OT_MEMORY_GRADIENTS:
      return &out->gradients;
    case OT_MEMORY_OPTIMIZER:
      return &out->optimizer;
    case OT_MEMORY_ACTIVATIONS:
      return &out->activations;
    case OT_MEMORY_GATHERED:
      return &out->gathered;
    case OT_MEMORY_BUFFERS:
      return &out->buffers;
    case OT_MEMORY_CLASSES:
      break;
  }
  OT_UNREACHABLE();
}

static void add(void *to, const ot_region_need *need) {
  adder *const a = to;
  const int64_t bytes = (need->count - 1) * ot_align(need->bytes) + need->bytes;
  if (a->top + bytes > a->end) a->end = a->top + bytes;
  a->top += ot_align(bytes);
  *class_of(a->out, need->class) += ot_align(bytes);
}

// Scratch of kernels and of collectives.
static void find_scratch(const ot_replay_request *r, int stage, ot_region_request *out) {
  const ot_prices *const prices = r->prices;
  const ot_block_list *const blocks = prices->blocks;
  const int head = blocks->num_blocks - 1;
  const bool has_head = r->cut->stage_of[head] == stage, has_first = r->cut->stage_of[0] == stage;
  int64_t scratch = prices->frame_scratch, staging = 0;
  for (int i = 0; i < blocks->num_blocks; i++) {
    const ot_block_price *const price = &prices->kind[blocks->kind_of[i]];
    const bool runs = r->cut->stage_of[i] == stage;
    if (!runs && !(i == 0 && prices->tied && has_head)) continue;
    if (runs) scratch = ot_larger_whole(scratch, price->work_scratch);
    scratch = ot_larger_whole(scratch, price->update_scratch);
    staging = ot_larger_whole(staging, price->staging);
  }
  if (prices->tied && has_head) staging = ot_larger_whole(staging, prices->tied_staging);
  if (prices->tied && (has_first || has_head)) {
    scratch = ot_larger_whole(scratch, prices->tie_scratch);
    staging = ot_larger_whole(staging, prices->tie_staging);
  }
  out->scratch_bytes = scratch;
  out->staging_bytes = staging;
}

static const ot_block_memory **list_blocks(const ot_prices *prices, ot_arena *arena) {
  const ot_block_list *const blocks = prices->blocks;
  const ot_block_memory **const memory = ot_arena_array(arena, blocks->num_blocks, sizeof *memory);
  for (int i = 0; i < blocks->num_blocks; i++) memory[i] = &prices->kind[blocks->kind_of[i]].memory;
  return memory;
}

void ot_memory_own_build(const ot_replay_request *request, int stage, ot_arena *arena,
                         ot_memory_estimate *out) {
  const ot_prices *const prices = request->prices;
  const ot_job *const job = &request->estimator->job;
  const ot_recipe *const recipe = &job->recipe;
  ot_outline_request blocks = request->outline;
  blocks.stage = stage;
  // The flow may be that of a step with fewer micro-batches.
  ot_pipeline_flow flow = *request->flow;
  flow.micro_batches = (int)request->candidate->micro_batches;
  const ot_planned_step step = {.flow = &flow,
                                .outline = request->outlines ? &request->outlines[stage] : NULL};
  ot_region_request regions = {.blocks = &blocks,
                               .memory = list_blocks(prices, arena),
                               .bytes = {.weight = recipe->weight_bytes,
                                         .gathered = recipe->gather_bytes,
                                         .gradient = recipe->gradient_bytes,
                                         .moment_1 = recipe->moment_bytes / 2,
                                         .moment_2 = recipe->moment_bytes / 2,
                                         .master = recipe->master_bytes},
                               .train = true,
                               .experts = job->model->moe.num_experts > 0,
                               .norm_slots = prices->norm_slots,
                               .constant_bytes = prices->constant_bytes,
                               .steps = &step,
                               .num_steps = 1,
                               .hidden_bytes = prices->hidden_bytes,
                               .batch_bytes = prices->batch_bytes};
  adder a = {.out = out};
  find_scratch(request, stage, &regions);
  ot_regions_persistent(&regions, arena, add, &a);
  ot_regions_step(&regions, arena, add, &a);
  out->peak = a.end;
}
