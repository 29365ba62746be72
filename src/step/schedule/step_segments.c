// SPDX-License-Identifier: Apache-2.0
// Phases of programs, reductions, updates and the addition of tied gradients as segments; equal
// blocks share segments.
#include "schedule/step_segments.h"

#include "schedule/block_view.h"
#include "schedule/reduce.h"
#include "schedule/segment.h"
#include "schedule/update.h"

// ---- phases of programs ----

static ot_recompute_policy policy_of(const ot_step_builder *s, int block) {
  const ot_run_parallel *const parallel = &s->b->request->run->parallel;
  return (ot_recompute_policy){
      .mode = ot_run_recompute(parallel, s->graph->blocks[block].layer),
      .modules = ot_run_modules(parallel),
      .separate = s->b->request->separate_recompute,
  };
}

// Storage of a block: shared with an earlier block of the same program and policy, or its own.
static void build_storage(ot_step_builder *s, int block) {
  const ot_block *const blocks = s->graph->blocks;
  for (int i = 0; i < block; i++) {
    if (!s->b->runs[i] || blocks[i].program != blocks[block].program ||
        policy_of(s, i).mode != policy_of(s, block).mode) {
      continue;
    }
    s->storage[block] = s->storage[i];
    return;
  }
  const ot_storage_request request = {.program = &s->graph->programs[blocks[block].program],
                                      .recompute = policy_of(s, block),
                                      .split = s->split,
                                      .guard_bytes = s->b->request->guard_bytes};
  ot_storage_build(&request, s->b->arena, &s->storage[block]);
}

static int add(ot_step_builder *s, const ot_segment *segment, int64_t *scratch_bytes) {
  if (segment->num_tasks == 0) return -1;
  if (segment->scratch_bytes > *scratch_bytes) *scratch_bytes = segment->scratch_bytes;
  return ot_build_add_segment(s->b, segment);
}

static int phase_segment(ot_step_builder *s, int block, ot_phase phase, bool first) {
  const ot_segment_request request = {.graph = s->graph,
                                      .storage = &s->storage[block],
                                      .block = block,
                                      .phase = phase,
                                      .first = first};
  ot_segment segment;
  ot_segment_build(&request, s->b->arena, &segment);
  return add(s, &segment, &s->scratch_bytes);
}

static void build_phases(ot_step_builder *s, int block) {
  const ot_phase back = s->split ? OT_PHASE_INPUT : OT_PHASE_BACKWARD;
  ot_block_segments *const made = &s->segments[block];
  made->recompute = phase_segment(s, block, OT_PHASE_RECOMPUTE, false);
  for (int later = 0; later < 2; later++) {
    made->forward[later] = phase_segment(s, block, OT_PHASE_FORWARD, later == 0);
    made->backward[later] = phase_segment(s, block, back, later == 0);
    made->weight[later] = s->split ? phase_segment(s, block, OT_PHASE_WEIGHT, later == 0) : -1;
  }
}

static ot_reduce_request reduce_request(const ot_step_builder *s, int block, bool tied_use) {
  return (ot_reduce_request){.graph = s->graph,
                             .schedule = s->b->schedule,
                             .precision = &s->b->request->run->precision,
                             .block = block,
                             .tied_use = tied_use};
}

static void build_reductions(ot_step_builder *s, const ot_reduce_request *request,
                             ot_block_segments *made) {
  ot_segment segment;
  for (int i = 0; i < 4; i++) {
    ot_reduce_build(request, i / 2 == 1, i % 2 == 1, s->b->arena, &segment);
    made->reduce[i / 2][i % 2] = add(s, &segment, &s->staging_bytes);
  }
}

// Whether this is the first rank of those that hold the same shard of the same parts.
static bool counts_norms(const ot_build *b, int block) {
  const ot_block *const shape = &b->shape->blocks[block];
  return ot_view_group(b->schedule, shape, OT_GROUP_CONTEXT_SUM)->index == 0 &&
         ot_view_group(b->schedule, shape, OT_GROUP_REPLICATE)->index == 0;
}

// View of the elements that the rank updates (piece), or whose norms it counts.
static ot_update_view view_of(const ot_step_builder *s, int block, bool piece) {
  const ot_build *const b = s->b;
  const ot_bucket *const bucket = &b->schedule->buckets[block];
  const ot_block *const shape = &s->graph->blocks[block];
  const int pieces = ot_view_size(b->schedule, shape, OT_GROUP_SHARD);
  const int slot = ot_view_group(b->schedule, shape, OT_GROUP_TENSOR)->index * pieces +
                   ot_view_group(b->schedule, shape, OT_GROUP_SHARD)->index;
  return (ot_update_view){.graph = s->graph,
                          .block = block,
                          .first = piece ? bucket->shard_first : 0,
                          .count = piece ? bucket->shard_elements : bucket->elements,
                          .slots = b->schedule->slots_per_part,
                          .slot = slot,
                          .tied_only = !bucket->counted};
}

static void build_updates(ot_step_builder *s, int block) {
  ot_build *const b = s->b;
  ot_block_segments *const made = &s->segments[block];
  ot_segment segment;
  ot_update_view counted = view_of(s, block, true);
  counted.counted_only = true;
  made->norm = made->gather_gradient = made->gather = -1;
  if (b->runs[block] && counts_norms(b, block)) {
    ot_update_norm(&counted, b->arena, &segment);
    made->norm = add(s, &segment, &s->scratch_bytes);
  }
  const bool shards = ot_build_shards_states(b, block);
  const ot_update_view whole = view_of(s, block, shards);
  ot_update_apply(&whole, b->request->run, b->arena, &segment);
  made->update = add(s, &segment, &s->scratch_bytes);
  const ot_reduce_request request = reduce_request(s, block, false);
  const ot_block *const shape = &s->graph->blocks[block];
  if (ot_view_size(b->schedule, shape, OT_GROUP_SHARD) > 1 && !shards) {
    ot_reduce_gather_gradient(&request, b->arena, &segment);
    made->gather_gradient = add(s, &segment, &s->staging_bytes);
  }
  if (shards) {
    ot_reduce_gather_weight(&request, b->arena, &segment);
    made->gather = add(s, &segment, &s->staging_bytes);
  }
}

// The checksum of a bucket before its reduction; `tied_use`: of the head's use of a tied embedding.
static int checksum_segment(ot_step_builder *s, int block, bool tied_use) {
  if (!s->hashes) return -1;
  ot_update_view view = view_of(s, block, false);
  view.tied_only = tied_use;
  ot_segment segment;
  ot_update_checksum(&view, s->b->arena, &segment);
  return add(s, &segment, &s->scratch_bytes);
}

static void build_tie(ot_step_builder *s) {
  ot_build *const b = s->b;
  s->tie = -1;
  if (b->schedule->group[OT_GROUP_TIED].size > 1 && b->held[0]) {
    // The owner is a parameter of the first block; the last stage holds a copy of its bucket.
    const ot_reduce_request request = reduce_request(s, 0, true);
    const ot_update_view view = view_of(s, 0, true);
    int64_t first = 0, count = 0;
    for (int i = 0; i < s->graph->num_parameters; i++) {
      if (s->graph->parameters[i].tied_to < 0) continue;
      ot_update_tied_range(&view, s->graph->parameters[i].block, &first, &count);
    }
    ot_segment segment;
    ot_reduce_tied(&request, first, count, b->arena, &segment);
    s->tie = add(s, &segment, &s->staging_bytes);
    return;
  }
  if (b->tied_user < 0) return;
  const ot_update_view view = view_of(s, b->tied_block, true);
  ot_segment segment;
  ot_update_tie(&view, b->tied_user, b->arena, &segment);
  s->tie = add(s, &segment, &s->scratch_bytes);
}

// ---- buckets ----

static bool reads(const ot_step_builder *s, int segment, ot_base base) {
  return segment >= 0 && ot_segment_reads(&s->b->schedule->segments[segment], base);
}

static bool writes(const ot_step_builder *s, int segment, ot_base base) {
  return segment >= 0 && ot_segment_writes(&s->b->schedule->segments[segment], base);
}

static void find_buckets(ot_step_builder *s, int block) {
  const ot_block_segments *const made = &s->segments[block];
  const int works[OT_WORKS] = {made->forward[0], made->backward[0], made->weight[0]};
  ot_block_buckets *const out = &s->buckets[block];
  *out = s->b->buckets[block];
  if (!s->b->runs[block] || s->only_sums) return;
  for (int w = 0; w < OT_WORKS; w++) {
    const int before = w == OT_WORK_BACKWARD ? made->recompute : -1;
    out->reads[w] = reads(s, works[w], OT_BASE_WEIGHT) || reads(s, before, OT_BASE_WEIGHT);
    out->reads_tied[w] = reads(s, works[w], OT_BASE_TIED) || reads(s, before, OT_BASE_TIED);
  }
  out->writes_in_forward = writes(s, made->forward[0], OT_BASE_GRADIENT) ||
                           writes(s, made->forward[0], OT_BASE_TIED_GRADIENT);
}

void ot_step_segments_build(ot_step_builder *s) {
  ot_build *const b = s->b;
  const int n = s->graph->num_blocks;
  s->storage = ot_arena_array(b->arena, n, sizeof *s->storage);
  s->segments = ot_arena_array(b->arena, n, sizeof *s->segments);
  s->buckets = ot_arena_array(b->arena, n, sizeof *s->buckets);
  for (int i = 0; i < n; i++) {
    if (b->runs[i] && !s->only_sums) build_storage(s, i);
    if (b->runs[i] && !s->only_sums) build_phases(s, i);
    find_buckets(s, i);
    if (!b->held[i] || s->only_work) continue;
    const ot_reduce_request request = reduce_request(s, i, false);
    build_reductions(s, &request, &s->segments[i]);
    build_updates(s, i);
    s->segments[i].checksum = b->runs[i] ? checksum_segment(s, i, false) : -1;
  }
  if (s->only_work) return;
  if (b->tied_user >= 0) {
    const ot_reduce_request request = reduce_request(s, b->tied_block, true);
    build_reductions(s, &request, &s->tied);
    s->tied.checksum = checksum_segment(s, b->tied_block, true);
  }
  build_tie(s);
}
