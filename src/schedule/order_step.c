// SPDX-License-Identifier: Apache-2.0
// The training step of one rank: the plan's items become entries on the compute lane, and around
// them stand gathers before first readers, messages at the cuts of the pipeline, reductions behind
// last writers; then tied sums, the norm, clipping, the optimizer and the new weights.
//
// What an entry waits for is what other lanes must have done; everything earlier on the compute
// lane is done anyway.
#include "schedule/builder_state.h"
#include "schedule/frame.h"
#include "schedule/step_segments.h"
#include "schedule/tasks.h"
#include "schedule/update.h"

// Where an order stands while its entries are written.
typedef struct emission {
  ot_step_builder *s;
  const ot_step_plan *plan;
  ot_order *order;
  int compute;                                     // last entry of the compute lane
  int gathers;                                     // gathers issued so far
  int *gather_entry, *sum_entry, *tied_sum_entry;  // entry of each use, -1
  int *receive_entry, *send_entry;                 // [messages] of the flow, -1
  int *reduced;  // [num_blocks] entry after which the block's gradient is complete, or -1
  int tied_reduced;
} emission;

// ---- entries ----

static int64_t place(const ot_step_buffers *buffers, int index) {
  return buffers->offset < 0 ? -1 : buffers->offset + index * buffers->stride;
}

static ot_entry *add_entry(emission *e, int segment, int block, ot_lane lane) {
  ot_entry *const entry = ot_build_add_entry(e->s->b, e->order, segment, block);
  entry->lane = lane;
  if (lane == OT_LANE_COMPUTE) {
    e->compute = e->order->num_entries - 1;
    entry->base[OT_BASE_SCRATCH] = e->s->memory.scratch;
  } else {
    entry->wait[OT_LANE_COMPUTE] = e->compute;
    entry->base[OT_BASE_SCRATCH] = e->s->memory.staging;
  }
  return entry;
}

static int last_entry(const emission *e) { return e->order->num_entries - 1; }

static void wait_for(ot_entry *entry, ot_lane lane, int other) {
  if (other > entry->wait[lane]) entry->wait[lane] = other;
}

// Which buffer the micro-batch of a chunk has.
static int kept(const emission *e, ot_kept kind, int chunk, int micro_batch) {
  const int local = ot_step_local_chunk(e->s->b, chunk);
  return e->plan->kept[kind][local * e->plan->flow.micro_batches + micro_batch].place;
}

// Whether what the item makes leaves its chunk.
static bool leaves(const emission *e, const ot_step_item *item) {
  const int *const first = &e->s->b->stages.first_block[item->chunk];
  if (item->work == OT_WORK_WEIGHT) return false;
  return item->block == (item->work == OT_WORK_FORWARD ? first[1] - 1 : first[0]);
}

// ---- messages ----

// Messages of chunk c: its output is 2c, the gradient of its input 2c + 1.
static int tag_of(int chunk, bool backward) { return 2 * chunk + (backward ? 1 : 0); }

// A message at the edge of a chunk.
typedef struct edge_message {
  ot_op_kind op;
  int block, micro_batch;  // the block at the edge
  int peer_chunk;
  bool backward;
  int64_t at;
} edge_message;

static void add_message(emission *e, const edge_message *m) {
  static const ot_base bases[2][2] = {{OT_BASE_INPUT, OT_BASE_D_OUTPUT},
                                      {OT_BASE_OUTPUT, OT_BASE_D_INPUT}};
  static const ot_base stacks[2][2] = {{OT_BASE_STACK, OT_BASE_D_STACK},
                                       {OT_BASE_STACK_OUT, OT_BASE_D_STACK_OUT}};
  ot_build *const b = e->s->b;
  const bool sends = m->op == OT_OP_SEND;
  const int chunk = sends ? ot_stages_chunk(&b->stages, m->block) : m->peer_chunk;
  const int behind = m->block + (sends != m->backward ? 1 : 0);  // the cut
  const bool stack = ot_build_stack_bytes(e->s->graph, behind) > 0;
  const int64_t bytes = ot_build_edge_bytes(e->s->graph, behind);
  const ot_message message = {
      .graph = e->s->graph,
      .op = m->op,
      .base = (stack ? stacks : bases)[sends][m->backward],
      .peer = b->stages.rank_of[m->peer_chunk],
      .tag = tag_of(chunk, m->backward),
      .elements = bytes / ot_dtype_bytes(e->s->graph->request.storage),
  };
  ot_segment segment;
  ot_tasks_message(&message, b->schedule, b->arena, &segment);
  ot_entry *const entry =
      add_entry(e, ot_build_add_segment(b, &segment), m->block, OT_LANE_PIPELINE);
  entry->micro_batch = m->micro_batch;
  entry->base[message.base] = m->at;
}

// Where the message into a chunk, or back into it, arrives; `chunk` and `micro_batch` are its own.
static int64_t arrival(const emission *e, int chunk, int micro_batch, bool backward) {
  const ot_stages *const stages = &e->s->b->stages;
  const ot_step_memory *const m = &e->s->memory;
  const int block = backward ? stages->first_block[chunk + 1] - 1 : stages->first_block[chunk];
  return backward ? place(&m->d_output[block], kept(e, OT_KEPT_D_OUTPUT, chunk, micro_batch))
                  : place(&m->input[block], kept(e, OT_KEPT_INPUT, chunk, micro_batch));
}

// Starts the receive of what the rank's action `index` reads.
static void add_receive(emission *e, int index) {
  const ot_build *const b = e->s->b;
  const ot_pipeline_flow *const flow = &e->plan->flow;
  if (index >= flow->num_of_rank[b->stage]) return;
  const ot_flow_action *const a = &flow->actions[flow->of_rank[b->stage][index]];
  const bool backward = a->work != OT_WORK_FORWARD;
  const int *const first = &b->stages.first_block[a->chunk];
  if (a->in < 0) return;
  add_message(e, &(edge_message){.op = OT_OP_RECEIVE,
                                 .block = backward ? first[1] - 1 : first[0],
                                 .micro_batch = a->micro_batch,
                                 .peer_chunk = backward ? a->chunk + 1 : a->chunk - 1,
                                 .backward = backward,
                                 .at = arrival(e, a->chunk, a->micro_batch, backward)});
  e->receive_entry[a->in] = last_entry(e);
}

// A receive begins an action before its reader.
static void add_receives(emission *e, const ot_step_item *item, int index) {
  if (e->plan->outline.first_item[item->action] != index) return;
  if (item->action == 0) add_receive(e, 0);
  add_receive(e, item->action + 1);
}

// ---- items ----

// Where the last block of a chunk puts what it makes: the next chunk's input when that is here, a
// message otherwise. The same backwards.
static int64_t chunk_output(emission *e, const ot_step_item *item, bool backward) {
  const int other = backward ? item->chunk - 1 : item->chunk + 1;
  const ot_flow_action *const a = ot_step_action(e->s->b, e->plan, item);
  if (other < 0 || other >= e->s->b->stages.num_chunks) return -1;
  if (a->out < 0) return arrival(e, other, item->micro_batch, backward);
  return backward ? e->s->memory.back[a->buffer] : e->s->memory.send[a->buffer];
}

static int64_t d_output_of(const emission *e, const ot_step_item *item, int block) {
  const ot_step_memory *const m = &e->s->memory;
  if (m->d_output[block].offset >= 0) {
    return place(&m->d_output[block],
                 kept(e, m->d_output_kept[block], item->chunk, item->micro_batch));
  }
  return e->s->graph->programs[e->s->graph->blocks[block].program].d_output < 0
             ? -1
             : m->hand[ot_stages_hand(block)];
}

// Where the stack of the chunk lies, and its gradient: behind what enters the chunk. The block at
// an edge says also where it goes.
static void bind_stack(emission *e, const ot_step_item *item, ot_entry *entry) {
  const ot_stages *const stages = &e->s->b->stages;
  const ot_graph *const graph = e->s->graph;
  const int first = stages->first_block[item->chunk];
  const int last = stages->first_block[item->chunk + 1] - 1;
  const bool forward = item->work == OT_WORK_FORWARD;
  const int64_t ahead = ot_build_input_bytes(graph, first);
  const int64_t behind = ot_build_output_bytes(graph, last);
  if (ot_build_stack_end_bytes(graph, last) == 0) return;
  entry->base[OT_BASE_STACK] = arrival(e, item->chunk, item->micro_batch, false) + ahead;
  if (!forward) {
    entry->base[OT_BASE_D_STACK] = arrival(e, item->chunk, item->micro_batch, true) + behind;
  }
  if (!leaves(e, item)) return;
  const int64_t out = chunk_output(e, item, !forward);
  if (out < 0) return;
  entry->base[forward ? OT_BASE_STACK_OUT : OT_BASE_D_STACK_OUT] = out + (forward ? behind : ahead);
}

static void bind_activations(emission *e, const ot_step_item *item, ot_entry *entry) {
  static const ot_base bases[] = {OT_BASE_SLOT, OT_BASE_SLOT_LONG, OT_BASE_SLOT_WEIGHT};
  static const ot_kept kinds[] = {OT_KEPT_SHORT, OT_KEPT_LONG, OT_KEPT_WEIGHT};
  const ot_step_memory *const m = &e->s->memory;
  const ot_stages *const stages = &e->s->b->stages;
  const int block = item->block;
  const bool first = block == stages->first_block[item->chunk];
  const bool last = block == stages->first_block[item->chunk + 1] - 1;
  bind_stack(e, item, entry);
  for (int i = 0; i < OT_SLOT_CLASSES; i++) {
    entry->base[bases[i]] =
        place(&m->slot[i][block], kept(e, kinds[i], item->chunk, item->micro_batch));
  }
  entry->base[OT_BASE_INPUT] =
      place(&m->input[block], kept(e, m->input_kept[block], item->chunk, item->micro_batch));
  if (item->work == OT_WORK_FORWARD) {
    entry->base[OT_BASE_OUTPUT] =
        last ? chunk_output(e, item, false)
             : place(&m->input[block + 1],
                     kept(e, m->input_kept[block + 1], item->chunk, item->micro_batch));
    return;
  }
  entry->base[OT_BASE_D_OUTPUT] = d_output_of(e, item, block);
  if (item->work == OT_WORK_WEIGHT) return;
  entry->base[OT_BASE_D_INPUT] =
      first ? chunk_output(e, item, true) : d_output_of(e, item, block - 1);
}

static void bind_buckets(emission *e, const ot_step_item *item, ot_entry *entry) {
  const ot_build *const b = e->s->b;
  const ot_step_memory *const m = &e->s->memory;
  const ot_step_outline *const plan = &e->plan->outline;
  ot_build_bind_block(b, entry);
  if (item->gather >= 0) {
    entry->base[OT_BASE_WEIGHT] =
        place(&m->gathered[item->block], plan->gathers.uses[item->gather].place);
    wait_for(entry, OT_LANE_GATHER, e->gather_entry[item->gather]);
  }
  if (item->tied_gather >= 0) {
    entry->base[OT_BASE_TIED] =
        place(&m->gathered[b->tied_block], plan->gathers.uses[item->tied_gather].place);
    wait_for(entry, OT_LANE_GATHER, e->gather_entry[item->tied_gather]);
  }
  if (item->sum >= 0) {
    const ot_bucket_use *const use = &plan->sums.uses[item->sum];
    entry->base[OT_BASE_GRADIENT] = place(&m->sums[item->block], use->place);
    if (use->previous >= 0) wait_for(entry, OT_LANE_REDUCE, e->sum_entry[use->previous]);
  }
  if (item->tied_sum >= 0) {
    const ot_bucket_use *const use = &plan->tied_sums.uses[item->tied_sum];
    entry->base[OT_BASE_TIED_GRADIENT] = place(&m->tied_sums, use->place);
    if (use->previous >= 0) wait_for(entry, OT_LANE_REDUCE, e->tied_sum_entry[use->previous]);
  }
}

// The receive that the item reads, and the send whose buffer it writes again. Of an entry only one
// can be waited for on the pipeline lane; the other goes to an entry of its own before it.
static void find_messages(const emission *e, const ot_step_item *item, int *receive, int *send) {
  const ot_flow_action *const a = ot_step_action(e->s->b, e->plan, item);
  const int *const first = &e->s->b->stages.first_block[item->chunk];
  const bool forward = item->work == OT_WORK_FORWARD;
  const bool enters = item->block == (forward ? first[0] : first[1] - 1);
  *receive = enters && a->in >= 0 ? e->receive_entry[a->in] : -1;
  *send = leaves(e, item) && a->reuse >= 0 ? e->send_entry[a->reuse] : -1;
}

static void add_segment_entry(emission *e, const ot_step_item *item, int segment) {
  if (segment < 0) return;
  int receive = -1, send = -1;
  const bool again = e->s->b->schedule->segments[segment].phase == OT_PHASE_RECOMPUTE;
  if (!again) find_messages(e, item, &receive, &send);
  if (receive >= 0 && send >= 0) {
    ot_entry *const entry = add_entry(e, e->s->b->nothing, -1, OT_LANE_COMPUTE);
    entry->wait[OT_LANE_PIPELINE] = send;
    send = -1;
  }
  ot_entry *const entry = add_entry(e, segment, item->block, OT_LANE_COMPUTE);
  entry->micro_batch = item->micro_batch;
  entry->base[OT_BASE_BATCH] = e->s->memory.batch + item->micro_batch * e->s->memory.batch_bytes;
  bind_activations(e, item, entry);
  bind_buckets(e, item, entry);
  entry->wait[OT_LANE_PIPELINE] = receive >= 0 ? receive : send;
}

static void add_gathers(emission *e, int index) {
  const ot_build *const b = e->s->b;
  const ot_bucket_list *const list = &e->plan->outline.gathers;
  for (; e->gathers < list->count; e->gathers++) {
    const ot_bucket_use *const use = &list->uses[e->gathers];
    if (use->issue != index) return;
    ot_entry *const entry =
        add_entry(e, e->s->segments[use->block].gather, use->block, OT_LANE_GATHER);
    entry->base[OT_BASE_WEIGHT_PIECE] = b->pieces[use->block];
    entry->base[OT_BASE_WEIGHT] = place(&e->s->memory.gathered[use->block], use->place);
    e->gather_entry[e->gathers] = last_entry(e);
  }
}

// ---- reductions ----

// A reduction of a bucket, right after the micro-batch that completes it, or (-1) after all.
typedef struct reduction {
  int segment, block, micro_batch;
  int64_t whole, piece;  // where the gradients are
} reduction;

// Starts it; returns its entry, or -1.
static int add_reduction(emission *e, const reduction *r) {
  if (r->segment < 0) return -1;
  ot_entry *const entry = add_entry(e, r->segment, r->block, OT_LANE_REDUCE);
  entry->micro_batch = r->micro_batch;
  entry->base[OT_BASE_GRADIENT] = r->whole;
  entry->base[OT_BASE_GRADIENT_PIECE] = r->piece;
  return last_entry(e);
}

// True for the block whose gradient is complete only when the other use of its parameter is added.
static bool is_tied_owner(const ot_build *b, int block) {
  const bool remote = b->schedule->group[OT_GROUP_TIED].size > 1;
  return block == b->tied_block || (remote && block == 0);
}

static void spread(emission *e, int block, int micro_batch) {
  const ot_build *const b = e->s->b;
  const int entry = add_reduction(e, &(reduction){.segment = e->s->segments[block].spread,
                                                  .block = block,
                                                  .micro_batch = micro_batch,
                                                  .whole = b->gradients[block],
                                                  .piece = b->gradient_pieces[block]});
  if (entry >= 0) e->reduced[block] = entry;
}

static void reduce_block(emission *e, const ot_step_item *item, bool last) {
  const ot_build *const b = e->s->b;
  const int block = item->block;
  const bool adds = ot_build_eachtime(b, block) && item->micro_batch > 0;
  const int64_t whole =
      item->sum >= 0 ? place(&e->s->memory.sums[block], e->plan->outline.sums.uses[item->sum].place)
                     : b->gradients[block];
  const int entry =
      add_reduction(e, &(reduction){e->s->segments[block].reduce[adds][last], block,
                                    item->micro_batch, whole, b->gradient_pieces[block]});
  if (item->sum >= 0) e->sum_entry[item->sum] = entry;
  if (entry >= 0) e->reduced[block] = entry;
  if (last && !is_tied_owner(b, block)) spread(e, block, item->micro_batch);
}

static void reduce_tied(emission *e, const ot_step_item *item, bool last) {
  const ot_build *const b = e->s->b;
  const bool adds = ot_build_eachtime(b, b->tied_block) && item->micro_batch > 0;
  const int64_t whole =
      item->tied_sum >= 0
          ? place(&e->s->memory.tied_sums, e->plan->outline.tied_sums.uses[item->tied_sum].place)
          : b->tied_gradients;
  const int entry = add_reduction(e, &(reduction){e->s->tied.reduce[adds][last], b->tied_block,
                                                  item->micro_batch, whole, b->tied_piece});
  if (item->tied_sum >= 0) e->tied_sum_entry[item->tied_sum] = entry;
  if (entry >= 0) e->tied_reduced = entry;
  if (entry >= 0 && !b->runs[b->tied_block]) e->reduced[b->tied_block] = entry;
}

// After the last writer of a bucket of gradients: in this micro-batch, or in the step.
static void add_reductions(emission *e, const ot_step_item *item) {
  if (item->work != (e->plan->flow.split ? OT_WORK_WEIGHT : OT_WORK_BACKWARD)) return;
  const bool last = item->micro_batch == e->plan->flow.micro_batches - 1;
  if (!last && !ot_build_eachtime(e->s->b, item->block)) return;
  if (item->block == e->s->b->tied_user) reduce_tied(e, item, last);
  reduce_block(e, item, last);
}

// Behind the block at an edge: the stack goes with what it made, backwards its gradient.
static void add_hand_over(emission *e, const ot_step_item *item) {
  ot_build *const b = e->s->b;
  const bool backward = item->work != OT_WORK_FORWARD;
  const int cut = b->stages.first_block[backward ? item->chunk : item->chunk + 1];
  if (!leaves(e, item)) return;
  if (cut == 0 || cut == e->s->graph->num_blocks) return;
  const int64_t bytes = ot_build_stack_bytes(e->s->graph, cut);
  if (bytes == 0) return;
  const ot_segment segment =
      ot_tasks_hand_over(e->s->graph, backward ? OT_BASE_D_STACK : OT_BASE_STACK,
                         backward ? OT_BASE_D_STACK_OUT : OT_BASE_STACK_OUT, bytes, b->arena);
  ot_entry *const entry =
      add_entry(e, ot_build_add_segment(b, &segment), item->block, OT_LANE_COMPUTE);
  entry->micro_batch = item->micro_batch;
  bind_stack(e, item, entry);
}

static void add_send(emission *e, const ot_step_item *item) {
  const ot_flow_action *const a = ot_step_action(e->s->b, e->plan, item);
  const bool backward = item->work != OT_WORK_FORWARD;
  if (a->out < 0 || !leaves(e, item)) return;
  add_message(e, &(edge_message){.op = OT_OP_SEND,
                                 .block = item->block,
                                 .micro_batch = item->micro_batch,
                                 .peer_chunk = backward ? item->chunk - 1 : item->chunk + 1,
                                 .backward = backward,
                                 .at = chunk_output(e, item, backward)});
  e->send_entry[a->out] = last_entry(e);
}

static void add_item(emission *e, int index) {
  const ot_step_item *const item = &e->plan->outline.items[index];
  const ot_block_segments *const made = &e->s->segments[item->block];
  const bool eachtime = ot_build_eachtime(e->s->b, item->block);
  const int later = !eachtime && item->micro_batch > 0 ? 1 : 0;
  add_gathers(e, index);
  add_receives(e, item, index);
  switch (item->work) {
    case OT_WORK_FORWARD:
      add_segment_entry(e, item, made->forward[later]);
      break;
    case OT_WORK_WEIGHT:
      add_segment_entry(e, item, made->weight[later]);
      break;
    case OT_WORK_BACKWARD:
      add_segment_entry(e, item, made->recompute);
      add_segment_entry(e, item, made->backward[later]);
      break;
    case OT_WORKS:
      OT_UNREACHABLE();
  }
  add_hand_over(e, item);
  add_send(e, item);
  add_reductions(e, item);
}

// ---- the end of the step ----

static ot_entry *add_step(emission *e, int segment, int block) {
  const ot_build *const b = e->s->b;
  ot_entry *const entry = add_entry(e, segment, block, OT_LANE_COMPUTE);
  const int64_t first =
      block < 0 ? 0
                : (int64_t)ot_update_first_part(e->s->graph, block) * b->schedule->slots_per_part;
  entry->base[OT_BASE_SQUARES] = b->squares + first * 8;
  entry->base[OT_BASE_UPDATES] = b->updates + first * 16;
  entry->base[OT_BASE_STATISTIC] = b->statistics;
  entry->base[OT_BASE_EXPERTS] = b->experts;
  if (block < 0) return entry;
  entry->base[OT_BASE_WEIGHT_PIECE] =
      ot_build_shards(b, block) ? b->pieces[block] : b->weights[block];
  const bool piece = ot_build_shards(b, block) || entry->phase == OT_PHASE_NORM;
  entry->base[OT_BASE_GRADIENT_PIECE] = piece ? b->gradient_pieces[block] : b->gradients[block];
  entry->base[OT_BASE_MOMENT_1] = b->moment_1[block];
  entry->base[OT_BASE_MOMENT_2] = b->moment_2[block];
  entry->base[OT_BASE_MASTER] = b->master[block];
  if (e->reduced[block] >= 0) wait_for(entry, OT_LANE_REDUCE, e->reduced[block]);
  return entry;
}

// The two uses of a tied embedding: on the lane that completed them.
static void add_tied(emission *e) {
  const ot_build *const b = e->s->b;
  const int owner = b->tied_block >= 0 ? b->tied_block : 0;
  if (e->s->tie >= 0) {
    const bool remote = b->schedule->group[OT_GROUP_TIED].size > 1;
    const bool lane = remote || e->tied_reduced >= 0 || e->reduced[owner] >= 0;
    ot_entry *const entry = add_entry(e, e->s->tie, owner, lane ? OT_LANE_REDUCE : OT_LANE_COMPUTE);
    entry->base[OT_BASE_GRADIENT_PIECE] = b->gradient_pieces[owner];
    entry->base[OT_BASE_TIED_GRADIENT] = b->tied_piece;
    if (lane) e->reduced[owner] = last_entry(e);
  }
  if (is_tied_owner(b, owner)) spread(e, owner, -1);
}

static void add_update(emission *e) {
  ot_build *const b = e->s->b;
  const int n = e->s->graph->num_blocks;
  ot_segment clip;
  ot_frame_clip(e->s->graph, b->schedule, b->request->run->optimizer.clip, b->arena, &clip);
  add_tied(e);
  for (int i = n - 1; i >= 0; i--) {
    if (b->held[i] && e->s->segments[i].norm >= 0) add_step(e, e->s->segments[i].norm, i);
  }
  ot_entry *const entry = add_step(e, ot_build_add_segment(b, &clip), -1);
  for (int i = 0; i < n; i++) {
    if (b->held[i]) wait_for(entry, OT_LANE_REDUCE, e->reduced[i]);
  }
  for (int i = 0; i < n; i++) {
    if (!b->held[i] || e->s->segments[i].update < 0) continue;
    add_step(e, e->s->segments[i].update, i);
  }
  for (int i = 0; i < n; i++) {
    if (!b->held[i] || !ot_build_shards(b, i) || ot_build_gathers(b, i)) continue;
    ot_entry *const gather = add_entry(e, e->s->segments[i].gather, i, OT_LANE_GATHER);
    gather->base[OT_BASE_WEIGHT_PIECE] = b->pieces[i];
    gather->base[OT_BASE_WEIGHT] = b->weights[i];
  }
}

// ---- orders ----

static int *entries_of(const emission *e, int64_t count) {
  int *const entries = ot_arena_array(e->s->b->arena, count + 1, sizeof(int));
  for (int64_t i = 0; i < count; i++) entries[i] = -1;
  return entries;
}

static void add_order(ot_step_builder *s, const ot_step_plan *plan, const ot_segment *begin) {
  ot_build *const b = s->b;
  emission e = {.s = s, .plan = plan, .compute = -1, .tied_reduced = -1};
  e.order = ot_build_add_order(b, OT_ORDER_STEP, plan->flow.micro_batches);
  e.gather_entry = entries_of(&e, plan->outline.gathers.count);
  e.sum_entry = entries_of(&e, plan->outline.sums.count);
  e.tied_sum_entry = entries_of(&e, plan->outline.tied_sums.count);
  e.reduced = entries_of(&e, s->graph->num_blocks);
  e.receive_entry = entries_of(&e, plan->flow.num_messages);
  e.send_entry = entries_of(&e, plan->flow.num_messages);
  add_step(&e, ot_build_add_segment(b, begin), -1);
  for (int i = 0; i < plan->outline.num_items; i++) add_item(&e, i);
  add_update(&e);
}

ot_status ot_build_step_orders(ot_build *b) {
  const ot_graph *const graph = b->request->graphs[OT_MODE_TRAIN];
  ot_step_builder s = {.b = b, .graph = graph, .num_plans = b->request->num_micro_batches};
  s.plans = ot_arena_array(b->arena, s.num_plans + 1, sizeof *s.plans);
  for (int i = 0; i < s.num_plans; i++) {
    OT_TRY(ot_step_plan_build(b, b->request->micro_batches[i], &s.plans[i]));
  }
  s.split = s.num_plans > 0 && s.plans[0].flow.split;
  ot_step_segments_build(&s);
  const ot_outline_request buckets = ot_step_outline_request(b, s.buckets, graph->num_blocks);
  for (int i = 0; i < s.num_plans; i++) {
    ot_step_outline_build(&buckets, &s.plans[i].flow, b->arena, &s.plans[i].outline);
  }
  ot_segment begin;
  ot_frame_begin(graph, b->schedule, b->arena, &begin);
  ot_segment clip;
  ot_frame_clip(graph, b->schedule, b->request->run->optimizer.clip, b->arena, &clip);
  if (begin.scratch_bytes > s.scratch_bytes) s.scratch_bytes = begin.scratch_bytes;
  if (clip.scratch_bytes > s.scratch_bytes) s.scratch_bytes = clip.scratch_bytes;
  const ot_step_memory_request request = {.build = b,
                                          .graph = graph,
                                          .storage = s.storage,
                                          .plans = s.plans,
                                          .num_plans = s.num_plans,
                                          .buckets = &buckets,
                                          .scratch_bytes = s.scratch_bytes,
                                          .staging_bytes = s.staging_bytes};
  ot_step_memory_build(&request, &s.memory);
  for (int i = 0; i < s.num_plans; i++) add_order(&s, &s.plans[i], &begin);
  return OT_OK;
}
