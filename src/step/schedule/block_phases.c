// SPDX-License-Identifier: Apache-2.0
// Runs the step builder up to its segments, without planning a step.
#include "schedule/block_phases.h"

#include "describe/groups.h"
#include "schedule/builder_state.h"
#include "schedule/frame.h"
#include "schedule/step_segments.h"
#include "schedule/update.h"

static const ot_segment *segment_at(const ot_build *b, int index) {
  return index < 0 ? NULL : &b->schedule->segments[index];
}

static void keep_reductions(const ot_build *b, const ot_block_segments *made,
                            const ot_segment *reduce[2][2]) {
  for (int i = 0; i < 4; i++) reduce[i / 2][i % 2] = segment_at(b, made->reduce[i / 2][i % 2]);
}

static void keep_block(const ot_step_builder *s, int block, ot_block_phases *out) {
  const ot_build *const b = s->b;
  const ot_block_segments *const made = &s->segments[block];
  *out = (ot_block_phases){.bucket = &b->schedule->buckets[block],
                           .parts = ot_update_parts(s->graph, block),
                           .shards = ot_build_shards_states(b, block),
                           .second_moments = b->memory[block].second_moments,
                           .buckets = s->buckets[block]};
  if (!s->only_work) {
    out->norm = segment_at(b, made->norm);
    out->update = segment_at(b, made->update);
    out->gather = segment_at(b, made->gather);
    out->gather_gradient = segment_at(b, made->gather_gradient);
    keep_reductions(b, made, out->reduce);
  }
  if (s->only_sums) return;
  out->storage = &s->storage[block];
  out->recompute = segment_at(b, made->recompute);
  for (int later = 0; later < 2; later++) {
    out->forward[later] = segment_at(b, made->forward[later]);
    out->backward[later] = segment_at(b, made->backward[later]);
    out->weight[later] = segment_at(b, made->weight[later]);
  }
}

// The single-stage builder makes no group for a tied weight on two stages.
static void join_tied(ot_build *b) {
  const ot_mesh *const mesh = b->request->mesh;
  const ot_model *const model = b->shape->request.model;
  int *const ranks = ot_arena_array(b->arena, mesh->ranks, sizeof(int));
  const int size =
      ot_group_ranks(mesh, OT_GROUP_TIED, model->num_kv_heads, b->request->rank, ranks);
  b->schedule->group[OT_GROUP_TIED] = (ot_group){.size = size, .ranks = ranks};
}

static const ot_segment *update_tied(const ot_build *b) {
  const ot_bucket *const bucket = &b->schedule->buckets[b->tied_block];
  const bool shards = ot_build_shards_states(b, b->tied_block);
  const ot_update_view view = {.graph = b->shape,
                               .block = b->tied_block,
                               .first = shards ? bucket->shard_first : 0,
                               .count = shards ? bucket->shard_elements : bucket->elements,
                               .slots = b->schedule->slots_per_part,
                               .tied_only = true};
  ot_segment *const segment = ot_arena_array(b->arena, 1, sizeof *segment);
  ot_update_apply(&view, b->request->run, b->arena, segment);
  return segment;
}

void ot_step_phases_build(const ot_schedule_request *request, ot_step_shape shape, ot_arena *arena,
                          ot_step_phases *out) {
  const ot_graph *const graph = request->graphs[OT_MODE_TRAIN];
  OT_ASSERT(graph != NULL && request->run != NULL && request->stages == NULL);
  *out = (ot_step_phases){.graph = graph, .run = request->run, .split = shape.split};
  const bool sums = shape.part != OT_STEP_WORK;
  ot_build b = {.request = request, .arena = arena, .schedule = &out->schedule, .apart = true};
  ot_build_begin(&b);
  const bool remote = shape.tied_across_stages && b.tied_user >= 0;
  if (remote) join_tied(&b);
  ot_step_builder s = {.b = &b,
                       .graph = graph,
                       .only_sums = shape.part == OT_STEP_SUMS,
                       .only_work = !sums,
                       .split = shape.split};
  ot_step_segments_build(&s);
  out->blocks = ot_arena_array(arena, graph->num_blocks, sizeof *out->blocks);
  for (int i = 0; i < graph->num_blocks; i++) keep_block(&s, i, &out->blocks[i]);
  if (sums && b.tied_user >= 0) keep_reductions(&b, &s.tied, out->tied_reduce);
  if (sums) out->tie = segment_at(&b, s.tie);
  if (sums && remote) out->tied_update = update_tied(&b);
  out->scratch_bytes = s.scratch_bytes;
  out->staging_bytes = s.staging_bytes;
}

void ot_step_phases_frame(const ot_step_phases *phases, int num_blocks, int num_parts,
                          ot_arena *arena, ot_segment frame[2]) {
  ot_graph graph = *phases->graph;
  graph.num_blocks = num_blocks;
  ot_schedule schedule = phases->schedule;
  schedule.num_parts = num_parts;
  ot_frame_begin(&graph, &schedule, arena, &frame[0]);
  ot_frame_clip(&graph, &schedule, phases->run->optimizer.clip, arena, &frame[1]);
}
