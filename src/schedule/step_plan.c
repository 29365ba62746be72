// SPDX-License-Identifier: Apache-2.0
// From the pipeline's actions to items, and the colouring of what they use.
#include "schedule/step_plan.h"

#include "graph/recompute.h"
#include "pipeline/order_buffers.h"

int ot_step_local_chunk(const ot_build *b, int chunk) {
  int local = 0;
  for (int c = 0; c < chunk; c++) local += b->stages.rank_of[c] == b->stage;
  return local;
}

static int num_local(const ot_build *b) { return ot_step_local_chunk(b, b->stages.num_chunks); }

// ---- items ----

static void add_item(ot_step_plan *plan, ot_phase phase, const ot_action *action, int block) {
  plan->items[plan->num_items++] = (ot_step_item){.phase = phase,
                                                  .chunk = action->chunk,
                                                  .block = block,
                                                  .micro_batch = action->micro_batch,
                                                  .action = (int)(action - plan->actions),
                                                  .gather = -1,
                                                  .tied_gather = -1,
                                                  .sum = -1,
                                                  .tied_sum = -1};
}

static void add_action(const ot_build *b, ot_step_plan *plan, const ot_action *action) {
  static const ot_phase phases[] = {
      [OT_ACTION_FORWARD] = OT_PHASE_FORWARD,
      [OT_ACTION_INPUT] = OT_PHASE_INPUT,
      [OT_ACTION_WEIGHT] = OT_PHASE_WEIGHT,
      [OT_ACTION_BACKWARD] = OT_PHASE_BACKWARD,
  };
  const int first = b->stages.first_block[action->chunk];
  const int end = b->stages.first_block[action->chunk + 1];
  const bool forward = action->kind == OT_ACTION_FORWARD;
  for (int i = 0; i < end - first; i++) {
    add_item(plan, phases[action->kind], action, forward ? first + i : end - 1 - i);
  }
}

// I and W of their own in place of B, one after the other.
static void split_actions(ot_build *b, int rank, ot_pipeline_order *order) {
  const ot_action *const whole = order->actions[rank];
  ot_action *const actions =
      ot_arena_array(b->arena, 2 * (int64_t)order->num_actions[rank] + 1, sizeof *actions);
  int count = 0;
  for (int i = 0; i < order->num_actions[rank]; i++) {
    actions[count++] = whole[i];
    if (whole[i].kind != OT_ACTION_BACKWARD) continue;
    actions[count - 1].kind = OT_ACTION_INPUT;
    actions[count] = whole[i];
    actions[count++].kind = OT_ACTION_WEIGHT;
  }
  order->actions[rank] = actions;
  order->num_actions[rank] = count;
}

static ot_status list_actions(ot_build *b, ot_step_plan *plan) {
  enum { SEND_BUFFERS = 2 };  // one is filled while the other is on its way
  const ot_stages *const stages = &b->stages;
  const ot_pipeline_request request = {.kind = b->request->run->parallel.pipeline,
                                       .num_ranks = stages->num_ranks,
                                       .num_chunks = stages->num_chunks,
                                       .micro_batches = plan->micro_batches,
                                       .rank_of = stages->rank_of,
                                       .csv = b->request->order_csv};
  ot_pipeline_order order;
  OT_TRY(ot_pipeline_order_build(&request, b->arena, &order));
  if (b->request->split_backward && !order.split) {
    for (int rank = 0; rank < order.num_ranks; rank++) split_actions(b, rank, &order);
    order.split = true;
  }
  plan->split = order.split;
  plan->num_actions = order.num_actions[b->stage];
  plan->actions = order.actions[b->stage];
  plan->send_buffers = ot_order_send_buffers(&order, SEND_BUFFERS, b->arena);
  return OT_OK;
}

static ot_status list_items(ot_build *b, ot_step_plan *plan) {
  OT_TRY(list_actions(b, plan));
  plan->first_item = ot_arena_array(b->arena, plan->num_actions + 1, sizeof(int));
  const int64_t most = (int64_t)plan->num_actions * b->shape->num_blocks;
  plan->items = ot_arena_array(b->arena, most + 1, sizeof *plan->items);
  for (int i = 0; i < plan->num_actions; i++) {
    plan->first_item[i] = plan->num_items;
    add_action(b, plan, &plan->actions[i]);
  }
  plan->first_item[plan->num_actions] = plan->num_items;
  return OT_OK;
}

// ---- what a chunk's micro-batch keeps ----

// First and last item of the action of `kind` on (chunk, micro-batch); -1 when there is none.
typedef struct span {
  int first, last;
} span;

static span find_action(const ot_step_plan *plan, ot_action_kind kind, int chunk, int micro_batch) {
  for (int i = 0; i < plan->num_actions; i++) {
    const ot_action *const a = &plan->actions[i];
    if (a->kind != kind || a->chunk != chunk || a->micro_batch != micro_batch) continue;
    return (span){plan->first_item[i], plan->first_item[i + 1] - 1};
  }
  return (span){-1, -1};
}

// The item from which on a message is awaited that the item `reader` needs: the start of the action
// before it.
static int receive_from(const ot_step_plan *plan, int reader) {
  const int action = plan->items[reader].action;
  return action > 0 ? plan->first_item[action - 1] : 0;
}

static bool is_mine(const ot_build *b, int chunk) {
  return chunk >= 0 && chunk < b->stages.num_chunks && b->stages.rank_of[chunk] == b->stage;
}

static void plan_micro_batch(const ot_build *b, ot_step_plan *plan, int chunk, int micro_batch) {
  const int at = ot_step_local_chunk(b, chunk) * plan->micro_batches + micro_batch;
  const ot_action_kind back = plan->split ? OT_ACTION_INPUT : OT_ACTION_BACKWARD;
  const span f = find_action(plan, OT_ACTION_FORWARD, chunk, micro_batch);
  const span i = find_action(plan, back, chunk, micro_batch);
  const span w = plan->split ? find_action(plan, OT_ACTION_WEIGHT, chunk, micro_batch) : i;
  OT_ASSERT(f.first >= 0 && i.first > f.last && w.last >= i.last);
  int in = chunk == 0 ? f.first : receive_from(plan, f.first);
  if (is_mine(b, chunk - 1)) {
    in = find_action(plan, OT_ACTION_FORWARD, chunk - 1, micro_batch).first;
  }
  int back_in = chunk == b->stages.num_chunks - 1 ? i.first : receive_from(plan, i.first);
  if (is_mine(b, chunk + 1)) back_in = find_action(plan, back, chunk + 1, micro_batch).first;
  plan->ring[OT_RING_SHORT][at] = (ot_ring_use){.first = f.first, .last = i.last};
  plan->ring[OT_RING_LONG][at] = (ot_ring_use){.first = f.first, .last = w.last};
  plan->ring[OT_RING_WEIGHT][at] = (ot_ring_use){.first = i.first, .last = w.last};
  plan->ring[OT_RING_INPUT][at] = (ot_ring_use){.first = in, .last = w.last};
  plan->ring[OT_RING_D_OUTPUT][at] = (ot_ring_use){.first = back_in, .last = w.last};
}

static void plan_rings(ot_build *b, ot_step_plan *plan) {
  const int chunks = num_local(b);
  for (int r = 0; r < OT_RINGS; r++) {
    plan->ring[r] =
        ot_arena_array(b->arena, (int64_t)chunks * plan->micro_batches + 1, sizeof(ot_ring_use));
    plan->ring_size[r] = ot_arena_array(b->arena, chunks + 1, sizeof(int));
  }
  for (int chunk = 0; chunk < b->stages.num_chunks; chunk++) {
    if (!is_mine(b, chunk)) continue;
    for (int m = 0; m < plan->micro_batches; m++) plan_micro_batch(b, plan, chunk, m);
    const int local = ot_step_local_chunk(b, chunk);
    for (int r = 0; r < OT_RINGS; r++) {
      plan->ring_size[r][local] = ot_ring_assign(&plan->ring[r][local * plan->micro_batches],
                                                 plan->micro_batches, 1, b->arena);
    }
  }
}

// ---- buckets that are used in turn ----

static int64_t bucket_elements(const ot_build *b, const ot_step_use *use) {
  return b->schedule->buckets[use->block].elements;
}

// Places within each size of bucket. `uses` come by `issue`.
static void assign(ot_build *b, ot_step_use *uses, int count, int least) {
  ot_ring_use *const ring = ot_arena_array(b->arena, count + 1, sizeof *ring);
  int *const index = ot_arena_array(b->arena, count + 1, sizeof(int));
  bool *const done = ot_arena_array(b->arena, count + 1, sizeof(bool));
  for (int i = 0; i < count; i++) {
    if (done[i]) continue;
    int members = 0;
    for (int k = i; k < count; k++) {
      if (bucket_elements(b, &uses[k]) != bucket_elements(b, &uses[i])) continue;
      done[k] = true;
      index[members] = k;
      ring[members++] = (ot_ring_use){.first = uses[k].issue, .last = uses[k].last};
    }
    ot_ring_assign(ring, members, least, b->arena);
    for (int k = 0; k < members; k++) {
      uses[index[k]].place = ring[k].place;
      uses[index[k]].previous = ring[k].previous < 0 ? -1 : index[ring[k].previous];
    }
  }
}

int ot_step_places(const ot_build *b, const ot_step_use *uses, int count, int64_t elements) {
  int places = 0;
  for (int i = 0; i < count; i++) {
    const bool fits = bucket_elements(b, &uses[i]) == elements;
    if (fits && uses[i].place >= places) places = uses[i].place + 1;
  }
  return places;
}

// ---- gathers ----

// parallel.reshard speaks of the embedding, the layers and the head.
static bool reshards(const ot_build *b, int block) {
  const int layer = b->shape->blocks[block].layer;
  const int layers = (int)b->shape->request.model->num_layers;
  const int place = layer >= 0 ? layer + 1 : block == 0 ? 0 : layers + 1;
  return ot_run_reshard(b->request->run, place);
}

// The gather that already holds `block` for the item, or a new one. The bucket of a block that is
// resharded stays from one item to the next only.
static int gather_for(ot_build *b, ot_step_plan *plan, int item, int block) {
  const bool reshard = reshards(b, block);
  for (int i = plan->num_gathers - 1; i >= 0; i--) {
    ot_step_use *const use = &plan->gathers[i];
    if (use->block != block) continue;
    if (reshard && use->last < item - 1) break;
    use->last = item;
    return i;
  }
  plan->gathers[plan->num_gathers] =
      (ot_step_use){.block = block, .first = item, .last = item, .previous = -1};
  return plan->num_gathers++;
}

// Which buckets a phase of a block reads.
typedef struct bucket_reads {
  bool own, tied;
} bucket_reads;

static bool runs_in(const ot_recompute_set *set, const ot_program *program, int op,
                    ot_phase phase) {
  const ot_part part = program->ops[op].part;
  switch (phase) {
    case OT_PHASE_FORWARD:
      return part == OT_PART_FORWARD;
    case OT_PHASE_INPUT:
      return part == OT_PART_INPUT || set->emitted[op];
    case OT_PHASE_WEIGHT:
      return part == OT_PART_WEIGHT;
    default:
      return part != OT_PART_FORWARD || set->emitted[op];
  }
}

static bucket_reads reads_of(const ot_build *b, const ot_graph *graph, int block, ot_phase phase) {
  const ot_program *const program = &graph->programs[graph->blocks[block].program];
  const int layer = graph->blocks[block].layer;
  const ot_recompute policy =
      layer < 0 || !b->request->run ? OT_RECOMPUTE_NONE : ot_run_recompute(b->request->run, layer);
  ot_recompute_set set;
  ot_recompute_build(program, policy, b->arena, &set);
  bucket_reads reads = {0};
  for (int i = 0; i < program->num_ops; i++) {
    if (!runs_in(&set, program, i, phase)) continue;
    for (int k = 0; k < OT_MAX_INPUTS; k++) {
      const int value = program->ops[i].in[k];
      if (value < 0 || program->values[value].kind != OT_VALUE_PARAMETER) continue;
      const int index = graph->blocks[block].first_parameter + program->values[value].index;
      const bool tied = graph->parameters[index].tied_to >= 0;
      reads.own = reads.own || !tied;
      reads.tied = reads.tied || tied;
    }
  }
  return reads;
}

static void plan_gathers(ot_build *b, const ot_graph *graph, ot_step_plan *plan) {
  plan->gathers = ot_arena_array(b->arena, 2 * (int64_t)plan->num_items + 1, sizeof(ot_step_use));
  if (!b->cuts_states || b->request->run->parallel.zero != 3) return;
  bucket_reads *const reads =
      ot_arena_array(b->arena, (int64_t)graph->num_blocks * OT_PHASES, sizeof *reads);
  for (int i = 0; i < graph->num_blocks * OT_PHASES; i++) {
    if (b->runs[i / OT_PHASES]) reads[i] = reads_of(b, graph, i / OT_PHASES, i % OT_PHASES);
  }
  for (int i = 0; i < plan->num_items; i++) {
    ot_step_item *const item = &plan->items[i];
    const bucket_reads *const r = &reads[item->block * OT_PHASES + item->phase];
    if (r->own && ot_build_gathers(b, item->block))
      item->gather = gather_for(b, plan, i, item->block);
    if (r->tied && ot_build_gathers(b, b->tied_block))
      item->tied_gather = gather_for(b, plan, i, b->tied_block);
  }
  const int ahead = b->request->run->parallel.prefetch;
  for (int i = 0; i < plan->num_gathers; i++) {
    plan->gathers[i].issue = plan->gathers[i >= ahead ? i - ahead : 0].first;
  }
  assign(b, plan->gathers, plan->num_gathers, 1);
}

// ---- gradients that are summed after each micro-batch ----

// The bucket that (block, micro-batch) adds up in: from its first writer (the head writes in F) to
// its last.
static int sum_for(ot_step_use *uses, int *count, int item, const ot_step_item *what) {
  for (int i = *count - 1; i >= 0; i--) {
    if (uses[i].block != what->block || uses[i].micro_batch != what->micro_batch) continue;
    uses[i].last = item;
    return i;
  }
  uses[*count] = (ot_step_use){.block = what->block,
                               .micro_batch = what->micro_batch,
                               .issue = item,
                               .first = item,
                               .last = item,
                               .previous = -1};
  return (*count)++;
}

static bool writes_in_forward(const ot_build *b, int block) {
  const ot_graph *const graph = b->request->graphs[OT_MODE_TRAIN];
  const ot_program *const program = &graph->programs[graph->blocks[block].program];
  for (int i = 0; i < program->num_ops; i++) {
    for (int k = 0; program->ops[i].part == OT_PART_FORWARD && k < OT_MAX_OUTPUTS; k++) {
      const int value = program->ops[i].out[k];
      if (value >= 0 && program->values[value].kind == OT_VALUE_ACCUMULATOR) return true;
    }
  }
  return false;
}

static void plan_sums(ot_build *b, ot_step_plan *plan) {
  plan->sums = ot_arena_array(b->arena, (int64_t)plan->num_items + 1, sizeof(ot_step_use));
  plan->tied_sums = ot_arena_array(b->arena, (int64_t)plan->num_items + 1, sizeof(ot_step_use));
  if (!b->accumulates_sharded) return;
  for (int i = 0; i < plan->num_items; i++) {
    ot_step_item *const item = &plan->items[i];
    if (!ot_build_eachtime(b, item->block)) continue;
    if (item->phase == OT_PHASE_FORWARD && !writes_in_forward(b, item->block)) continue;
    item->sum = sum_for(plan->sums, &plan->num_sums, i, item);
    if (item->block != b->tied_user) continue;
    ot_step_item owner = *item;
    owner.block = b->tied_block;
    item->tied_sum = sum_for(plan->tied_sums, &plan->num_tied_sums, i, &owner);
  }
  // Two in turn: one is written while the other is on its way.
  assign(b, plan->sums, plan->num_sums, 2);
  assign(b, plan->tied_sums, plan->num_tied_sums, 2);
}

ot_status ot_step_plan_build(ot_build *b, int micro_batches, ot_step_plan *plan) {
  *plan = (ot_step_plan){.micro_batches = micro_batches};
  OT_TRY(list_items(b, plan));
  plan_rings(b, plan);
  plan_gathers(b, b->request->graphs[OT_MODE_TRAIN], plan);
  plan_sums(b, plan);
  return OT_OK;
}

void ot_step_plan_forward(ot_build *b, const ot_graph *graph, ot_step_plan *plan) {
  const ot_stages *const stages = &b->stages;
  *plan = (ot_step_plan){.micro_batches = 1};
  plan->items = ot_arena_array(b->arena, b->shape->num_blocks + 1, sizeof *plan->items);
  plan->actions = ot_arena_array(b->arena, stages->num_chunks, sizeof *plan->actions);
  for (int chunk = 0; chunk < stages->num_chunks; chunk++) {
    if (!is_mine(b, chunk)) continue;
    plan->actions[plan->num_actions] = (ot_action){OT_ACTION_FORWARD, chunk, 0};
    add_action(b, plan, &plan->actions[plan->num_actions++]);
  }
  while (plan->num_items > 0 && plan->items[plan->num_items - 1].block >= graph->num_blocks) {
    plan->num_items--;
  }
  plan_gathers(b, graph, plan);
}
