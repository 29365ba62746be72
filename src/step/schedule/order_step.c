// SPDX-License-Identifier: Apache-2.0
// The training step of one rank. The plan's items become entries on the compute lane. Gathers are
// added before first readers, messages at pipeline boundaries, reductions after last writers; then
// come tied reductions, norm, clipping, optimizer and the gathers of new weights.
//
// An entry waits only for other lanes; earlier entries of the compute lane are complete anyway.
#include "schedule/builder_state.h"
#include "schedule/frame.h"
#include "schedule/segment.h"
#include "schedule/step_events.h"
#include "schedule/step_segments.h"
#include "schedule/tasks.h"
#include "schedule/update.h"

// State of an order while its entries are added.
typedef struct emission {
  ot_step_builder *s;
  const ot_step_plan *plan;
  ot_order *order;
  int compute;                                     // last entry of the compute lane
  int *gather_entry, *sum_entry, *tied_sum_entry;  // entry per use, or -1
  int *receive_entry, *send_entry;                 // [messages] of the flow, or -1
  int *reduced;  // [num_blocks] entry that completes the block's gradient, or -1
  int tied_reduced;
  bool hashes;  // OT_ORDER_CHECKSUM: gradients are hashed where a step reduces them
} emission;

// ---- entries ----

static int64_t at(const emission *e, ot_region_kind kind, int block, int place) {
  return ot_build_at(e->s->b, kind, block, place);
}

static ot_entry *add_entry(emission *e, int segment, int block, ot_lane lane) {
  ot_entry *const entry = ot_build_add_entry(e->s->b, e->order, segment, block);
  entry->lane = lane;
  if (lane == OT_LANE_COMPUTE) {
    e->compute = e->order->num_entries - 1;
    entry->base[OT_BASE_SCRATCH] = at(e, OT_REGION_SCRATCH, 0, 0);
  } else {
    entry->wait[OT_LANE_COMPUTE] = e->compute;
    const int64_t staging = at(e, OT_REGION_STAGING, 0, 0);
    entry->base[OT_BASE_SCRATCH] = staging < 0 ? 0 : staging;
  }
  return entry;
}

static int last_entry(const emission *e) { return e->order->num_entries - 1; }

static void wait_for(ot_entry *entry, ot_lane lane, int other) {
  if (other > entry->wait[lane]) entry->wait[lane] = other;
}

// Index of the buffer of a chunk's micro-batch.
static int kept(const emission *e, ot_saved_kind kind, int chunk, int micro_batch) {
  const int local = ot_step_local_chunk(e->s->b, chunk);
  return e->plan->kept[kind][local * e->plan->flow.micro_batches + micro_batch].place;
}

// Offset of the buffer of a block for the item's micro-batch.
static int64_t kept_at(const emission *e, ot_region_kind kind, int block,
                       const ot_step_item *item) {
  const ot_placed *const placed = &e->s->b->placed[kind][block];
  if (placed->offset < 0) return -1;
  return at(e, kind, block, kept(e, placed->kept, item->chunk, item->micro_batch));
}

// Whether the output of the item is sent to another chunk.
static bool leaves(const emission *e, const ot_step_item *item) {
  const int *const first = &e->s->b->stages.first_block[item->chunk];
  if (item->work == OT_WORK_WEIGHT) return false;
  return item->block == (item->work == OT_WORK_FORWARD ? first[1] - 1 : first[0]);
}

// ---- messages ----

// Offset of a received message.
static int64_t arrival(const emission *e, int into, int micro_batch, bool backward) {
  const int *const first = &e->s->b->stages.first_block[into];
  return backward ? at(e, OT_REGION_D_OUTPUT, first[1] - 1,
                       kept(e, OT_SAVED_D_OUTPUT, into, micro_batch))
                  : at(e, OT_REGION_INPUT, first[0], kept(e, OT_SAVED_INPUT, into, micro_batch));
}

// Sends or receives a message at offset `lies`; returns its entry. Tag of the output of chunk c: 2c
// forward, 2c + 1 backward.
static int add_message(emission *e, ot_op_kind op, int32_t message, int64_t lies) {
  static const ot_base bases[2][2] = {{OT_BASE_INPUT, OT_BASE_D_OUTPUT},
                                      {OT_BASE_OUTPUT, OT_BASE_D_INPUT}};
  static const ot_base stacks[2][2] = {{OT_BASE_STACK, OT_BASE_D_STACK},
                                       {OT_BASE_STACK_OUT, OT_BASE_D_STACK_OUT}};
  ot_build *const b = e->s->b;
  const ot_flow_message m = ot_pipeline_flow_message(&e->plan->flow, message);
  const bool sends = op == OT_OP_SEND;
  const int edge = b->stages.first_block[m.boundary];
  const bool stack = ot_build_stack_bytes(e->s->graph, edge) > 0;
  const ot_message made = {
      .graph = e->s->graph,
      .op = op,
      .base = (stack ? stacks : bases)[sends][m.backward],
      .group = OT_GROUP_STAGES,
      .peer = b->stages.rank_of[sends ? m.into : m.from],
      .tag = 2 * m.from + m.backward,
      .elements =
          ot_build_edge_bytes(e->s->graph, edge) / ot_dtype_bytes(e->s->graph->request.storage),
  };
  ot_segment segment;
  ot_tasks_message(&made, b->schedule, b->arena, &segment);
  ot_entry *const entry = add_entry(e, ot_build_add_segment(b, &segment),
                                    sends == m.backward ? edge : edge - 1, OT_LANE_PIPELINE);
  entry->micro_batch = m.micro_batch;
  entry->base[made.base] = lies;
  return last_entry(e);
}

static void add_receive(emission *e, int32_t message) {
  const ot_flow_message m = ot_pipeline_flow_message(&e->plan->flow, message);
  e->receive_entry[message] =
      add_message(e, OT_OP_RECEIVE, message, arrival(e, m.into, m.micro_batch, m.backward));
}

// ---- items ----

// Offset of the output of a chunk's last block: the next chunk's input if it is on this rank, else
// a message. The same backward.
static int64_t chunk_output(emission *e, const ot_step_item *item, bool backward) {
  const int other = backward ? item->chunk - 1 : item->chunk + 1;
  const ot_flow_action *const a = ot_step_action(e->s->b, e->plan, item);
  if (other < 0 || other >= e->s->b->stages.num_chunks) return -1;
  if (a->out < 0) return arrival(e, other, item->micro_batch, backward);
  return at(e, backward ? OT_REGION_SEND_GRADIENT : OT_REGION_SEND, a->buffer, 0);
}

static int64_t d_output_of(const emission *e, const ot_step_item *item, int block) {
  const int64_t own = kept_at(e, OT_REGION_D_OUTPUT, block, item);
  if (own >= 0 || e->s->graph->programs[e->s->graph->blocks[block].program].d_output < 0)
    return own;
  return at(e, OT_REGION_PING_PONG, ot_stages_ping_pong(block), 0);
}

// Binds the stack of the chunk and its gradient, which follow the chunk's input. The block at an
// edge also binds their destination.
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
  static const ot_region_kind slots[] = {OT_REGION_SLOT_SHORT, OT_REGION_SLOT_LONG,
                                         OT_REGION_SLOT_WEIGHT};
  const ot_stages *const stages = &e->s->b->stages;
  const int block = item->block;
  const bool first = block == stages->first_block[item->chunk];
  const bool last = block == stages->first_block[item->chunk + 1] - 1;
  bind_stack(e, item, entry);
  for (int i = 0; i < OT_SLOT_CLASSES; i++) {
    entry->base[bases[i]] = kept_at(e, slots[i], block, item);
  }
  entry->base[OT_BASE_INPUT] = kept_at(e, OT_REGION_INPUT, block, item);
  if (item->work == OT_WORK_FORWARD) {
    entry->base[OT_BASE_OUTPUT] =
        last ? chunk_output(e, item, false) : kept_at(e, OT_REGION_INPUT, block + 1, item);
    return;
  }
  entry->base[OT_BASE_D_OUTPUT] = d_output_of(e, item, block);
  if (item->work == OT_WORK_WEIGHT) return;
  entry->base[OT_BASE_D_INPUT] =
      first ? chunk_output(e, item, true) : d_output_of(e, item, block - 1);
}

static void bind_buckets(emission *e, const ot_step_item *item, ot_entry *entry) {
  const ot_build *const b = e->s->b;
  const ot_step_outline *const plan = &e->plan->outline;
  ot_build_bind_block(b, entry);
  if (item->gather >= 0) {
    entry->base[OT_BASE_WEIGHT] =
        at(e, OT_REGION_GATHERED, item->block, plan->gathers.uses[item->gather].place);
    wait_for(entry, OT_LANE_GATHER, e->gather_entry[item->gather]);
  }
  if (item->tied_gather >= 0) {
    entry->base[OT_BASE_TIED] =
        at(e, OT_REGION_GATHERED, b->tied_block, plan->gathers.uses[item->tied_gather].place);
    wait_for(entry, OT_LANE_GATHER, e->gather_entry[item->tied_gather]);
  }
  if (item->sum >= 0) {
    const ot_bucket_use *const use = &plan->sums.uses[item->sum];
    entry->base[OT_BASE_GRADIENT] = at(e, OT_REGION_GRADIENT_PART, item->block, use->place);
    if (use->previous >= 0) wait_for(entry, OT_LANE_REDUCE, e->sum_entry[use->previous]);
  }
  if (item->tied_sum >= 0) {
    const ot_bucket_use *const use = &plan->tied_sums.uses[item->tied_sum];
    entry->base[OT_BASE_TIED_GRADIENT] = at(e, OT_REGION_TIED_PART, b->tied_block, use->place);
    if (use->previous >= 0) wait_for(entry, OT_LANE_REDUCE, e->tied_sum_entry[use->previous]);
  }
}

// Adds the segment of an event. An entry can wait for only one message: if it needs both a receive
// and the completion of a send, an extra entry waits for the send.
static void add_work(emission *e, const ot_step_event *event, int segment) {
  const ot_step_item *const item = &e->plan->outline.items[event->item];
  const int received = event->message < 0 ? -1 : e->receive_entry[event->message];
  const int sent = event->sent < 0 ? -1 : e->send_entry[event->sent];
  if (segment < 0) return;
  if (received >= 0 && sent >= 0) {
    ot_entry *const entry = add_entry(e, e->s->b->nothing, -1, OT_LANE_COMPUTE);
    entry->wait[OT_LANE_PIPELINE] = sent;
  }
  ot_entry *const entry = add_entry(e, segment, item->block, OT_LANE_COMPUTE);
  entry->micro_batch = item->micro_batch;
  entry->base[OT_BASE_BATCH] = at(e, OT_REGION_BATCH, 0, 0) + item->micro_batch * e->s->batch_bytes;
  bind_activations(e, item, entry);
  bind_buckets(e, item, entry);
  entry->wait[OT_LANE_PIPELINE] = received >= 0 ? received : sent;
}

static int segment_of(const emission *e, const ot_step_item *item) {
  const ot_block_segments *const made = &e->s->segments[item->block];
  const int later = !ot_build_reduces_each(e->s->b, item->block) && item->micro_batch > 0 ? 1 : 0;
  switch (item->work) {
    case OT_WORK_FORWARD:
      return made->forward[later];
    case OT_WORK_BACKWARD:
      return made->backward[later];
    case OT_WORK_WEIGHT:
      return made->weight[later];
    case OT_WORKS:
      break;
  }
  OT_UNREACHABLE();
}

static void add_gather(emission *e, int use) {
  const ot_bucket_use *const gather = &e->plan->outline.gathers.uses[use];
  ot_entry *const entry =
      add_entry(e, e->s->segments[gather->block].gather, gather->block, OT_LANE_GATHER);
  entry->base[OT_BASE_WEIGHT_PIECE] = e->s->b->pieces[gather->block];
  entry->base[OT_BASE_WEIGHT] = at(e, OT_REGION_GATHERED, gather->block, gather->place);
  e->gather_entry[use] = last_entry(e);
}

// ---- reductions ----

// Reduction of a bucket: right after the micro-batch that completes it, or (-1) at the end.
typedef struct reduction {
  int segment, block, micro_batch;
  int64_t whole, piece;  // offsets of the gradients
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

static void bind_parts(const emission *e, int block, ot_entry *entry) {
  const ot_build *const b = e->s->b;
  const int64_t first =
      block < 0 ? 0
                : (int64_t)ot_update_first_part(e->s->graph, block) * b->schedule->slots_per_part;
  entry->base[OT_BASE_SQUARES] = at(e, OT_REGION_SQUARES, 0, 0) + first * 8;
  entry->base[OT_BASE_UPDATES] = at(e, OT_REGION_UPDATES, 0, 0) + first * 16;
}

static void add_checksum(emission *e, const reduction *r) {
  if (r->segment < 0) return;
  ot_entry *const entry = add_entry(e, r->segment, r->block, OT_LANE_COMPUTE);
  entry->micro_batch = r->micro_batch;
  entry->base[OT_BASE_GRADIENT] = r->whole;
  bind_parts(e, r->block, entry);
}

// The block whose gradient is complete only after adding the other use of its parameter, or -1.
static int tied_owner(const ot_build *b) {
  const bool remote = b->schedule->group[OT_GROUP_TIED].size > 1;
  return remote ? 0 : b->tied_block;
}

static bool is_last(const emission *e, const ot_step_item *item) {
  return item->micro_batch == e->plan->flow.micro_batches - 1;
}

static void gather_gradient(emission *e, int block, int micro_batch) {
  const ot_build *const b = e->s->b;
  const int entry = add_reduction(e, &(reduction){.segment = e->s->segments[block].gather_gradient,
                                                  .block = block,
                                                  .micro_batch = micro_batch,
                                                  .whole = b->gradients[block],
                                                  .piece = b->gradient_pieces[block]});
  if (entry >= 0) e->reduced[block] = entry;
}

static void reduce_block(emission *e, const ot_step_item *item) {
  const ot_build *const b = e->s->b;
  const int block = item->block;
  const bool adds = ot_build_reduces_each(b, block) && item->micro_batch > 0;
  const int64_t whole = item->sum >= 0 ? at(e, OT_REGION_GRADIENT_PART, block,
                                            e->plan->outline.sums.uses[item->sum].place)
                                       : b->gradients[block];
  if (e->hashes) {
    add_checksum(e,
                 &(reduction){e->s->segments[block].checksum, block, item->micro_batch, whole, -1});
    return;
  }
  const int entry =
      add_reduction(e, &(reduction){e->s->segments[block].reduce[adds][is_last(e, item)], block,
                                    item->micro_batch, whole, b->gradient_pieces[block]});
  if (item->sum >= 0) e->sum_entry[item->sum] = entry;
  if (entry >= 0) e->reduced[block] = entry;
}

static void reduce_tied(emission *e, const ot_step_item *item) {
  const ot_build *const b = e->s->b;
  const bool adds = ot_build_reduces_each(b, b->tied_block) && item->micro_batch > 0;
  const int64_t whole = item->tied_sum >= 0
                            ? at(e, OT_REGION_TIED_PART, b->tied_block,
                                 e->plan->outline.tied_sums.uses[item->tied_sum].place)
                            : b->tied_gradients;
  if (e->hashes) {
    add_checksum(e, &(reduction){e->s->tied.checksum, b->tied_block, item->micro_batch, whole, -1});
    return;
  }
  const int entry =
      add_reduction(e, &(reduction){e->s->tied.reduce[adds][is_last(e, item)], b->tied_block,
                                    item->micro_batch, whole, b->tied_piece});
  if (item->tied_sum >= 0) e->tied_sum_entry[item->tied_sum] = entry;
  if (entry >= 0) e->tied_reduced = entry;
  if (entry >= 0 && !b->runs[b->tied_block]) e->reduced[b->tied_block] = entry;
}

// The output of a block at an edge is sent with the stack; backward, their gradients.
static void add_hand_over(emission *e, const ot_step_item *item) {
  ot_build *const b = e->s->b;
  const bool backward = item->work != OT_WORK_FORWARD;
  const int cut = b->stages.first_block[backward ? item->chunk : item->chunk + 1];
  if (cut == 0 || cut == e->s->graph->num_blocks) return;
  const int64_t bytes = ot_build_stack_bytes(e->s->graph, cut);
  if (bytes == 0) return;
  const ot_segment segment =
      ot_tasks_copy_stack(e->s->graph, backward ? OT_BASE_D_STACK : OT_BASE_STACK,
                          backward ? OT_BASE_D_STACK_OUT : OT_BASE_STACK_OUT, bytes, b->arena);
  ot_entry *const entry =
      add_entry(e, ot_build_add_segment(b, &segment), item->block, OT_LANE_COMPUTE);
  entry->micro_batch = item->micro_batch;
  bind_stack(e, item, entry);
}

static void add_send(emission *e, const ot_step_item *item, int32_t message) {
  const int64_t from = chunk_output(e, item, item->work != OT_WORK_FORWARD);
  e->send_entry[message] = add_message(e, OT_OP_SEND, message, from);
}

static void add_event(emission *e, const ot_step_event *event) {
  const ot_step_item *const item = event->item < 0 ? NULL : &e->plan->outline.items[event->item];
  switch (event->kind) {
    case OT_EVENT_RECEIVE:
      add_receive(e, event->message);
      return;
    case OT_EVENT_GATHER:
      add_gather(e, event->use);
      return;
    case OT_EVENT_RECOMPUTE:
      add_work(e, event, e->s->segments[event->block].recompute);
      return;
    case OT_EVENT_WORK:
      add_work(e, event, segment_of(e, item));
      return;
    case OT_EVENT_COPY_STACK:
      add_hand_over(e, item);
      return;
    case OT_EVENT_SEND:
      add_send(e, item, event->message);
      return;
    case OT_EVENT_REDUCE_TIED:
      reduce_tied(e, item);
      return;
    case OT_EVENT_REDUCE:
      reduce_block(e, item);
      return;
    case OT_EVENT_GATHER_GRADIENT:
      if (!e->hashes) gather_gradient(e, event->block, item->micro_batch);
      return;
  }
  OT_UNREACHABLE();
}

static void add_actions(emission *e, const ot_event_request *request) {
  const ot_build *const b = e->s->b;
  ot_step_event *const events =
      ot_arena_array(b->arena, ot_step_most_events(request), sizeof *events);
  ot_event_cursor cursor = {0};
  for (int i = 0; i < 2; i++) {
    const int32_t message = e->plan->flow.first_posts[2 * b->stage + i];
    if (message >= 0) add_receive(e, message);
  }
  while (cursor.action < e->plan->flow.num_of_rank[b->stage]) {
    const int count = ot_step_events(request, &cursor, events);
    for (int i = 0; i < count; i++) add_event(e, &events[i]);
  }
}

// ---- the end of the step ----

static ot_entry *add_step(emission *e, int segment, int block) {
  const ot_build *const b = e->s->b;
  ot_entry *const entry = add_entry(e, segment, block, OT_LANE_COMPUTE);
  bind_parts(e, block, entry);
  entry->base[OT_BASE_STATISTIC] = at(e, OT_REGION_STATISTICS, 0, 0);
  entry->base[OT_BASE_EXPERTS] = at(e, OT_REGION_EXPERT_SUMS, 0, 0);
  if (block < 0) return entry;
  entry->base[OT_BASE_WEIGHT_PIECE] =
      ot_build_shards_states(b, block) ? b->pieces[block] : b->weights[block];
  const bool piece = ot_build_shards_states(b, block) || entry->phase == OT_PHASE_NORM;
  entry->base[OT_BASE_GRADIENT_PIECE] = piece ? b->gradient_pieces[block] : b->gradients[block];
  entry->base[OT_BASE_MOMENT_1] = at(e, OT_REGION_MOMENT_1, block, 0);
  entry->base[OT_BASE_MOMENT_2] = at(e, OT_REGION_MOMENT_2, block, 0);
  entry->base[OT_BASE_MASTER] = at(e, OT_REGION_MASTER, block, 0);
  if (e->reduced[block] >= 0) wait_for(entry, OT_LANE_REDUCE, e->reduced[block]);
  return entry;
}

// Adds the gradients of a tied embedding, on the lane that completed them.
static void add_tied(emission *e, int owner) {
  const ot_build *const b = e->s->b;
  const bool remote = b->schedule->group[OT_GROUP_TIED].size > 1;
  const bool lane = remote || e->tied_reduced >= 0 || e->reduced[owner] >= 0;
  if (e->s->tie < 0) return;
  ot_entry *const entry = add_entry(e, e->s->tie, owner, lane ? OT_LANE_REDUCE : OT_LANE_COMPUTE);
  entry->base[OT_BASE_GRADIENT_PIECE] = b->gradient_pieces[owner];
  entry->base[OT_BASE_TIED_GRADIENT] = b->tied_piece;
  if (lane) e->reduced[owner] = last_entry(e);
}

static void add_clip(emission *e) {
  ot_build *const b = e->s->b;
  ot_segment clip;
  ot_frame_clip(e->s->graph, b->schedule, b->request->run->optimizer.clip, b->arena, &clip);
  ot_entry *const entry = add_step(e, ot_build_add_segment(b, &clip), -1);
  for (int i = 0; i < e->s->graph->num_blocks; i++) {
    if (b->held[i]) wait_for(entry, OT_LANE_REDUCE, e->reduced[i]);
  }
}

static void add_gather_after(emission *e, int block) {
  const ot_build *const b = e->s->b;
  const int segment = e->s->segments[block].gather;
  if (segment < 0) return;
  ot_entry *const gather = add_entry(e, segment, block, OT_LANE_GATHER);
  gather->base[OT_BASE_WEIGHT_PIECE] = b->pieces[block];
  gather->base[OT_BASE_WEIGHT] = b->weights[block];
}

static void add_end_event(emission *e, const ot_end_event *event) {
  const int block = event->block;
  switch (event->kind) {
    case OT_END_TIE:
      add_tied(e, block);
      return;
    case OT_END_GATHER_GRADIENT:
      gather_gradient(e, block, -1);
      return;
    case OT_END_NORM:
      if (e->s->segments[block].norm >= 0) add_step(e, e->s->segments[block].norm, block);
      return;
    case OT_END_CLIP:
      add_clip(e);
      return;
    case OT_END_UPDATE:
      if (e->s->segments[block].update >= 0) add_step(e, e->s->segments[block].update, block);
      return;
    case OT_END_GATHER:
      add_gather_after(e, block);
      return;
  }
  OT_UNREACHABLE();
}

static void add_end(emission *e, const ot_event_request *request) {
  ot_end_event *const events =
      ot_arena_array(e->s->b->arena, ot_step_most_end_events(request), sizeof *events);
  const int count = ot_step_end_events(request, events);
  for (int i = 0; i < count; i++) add_end_event(e, &events[i]);
}

// ---- orders ----

static int *entries_of(const emission *e, int64_t count) {
  int *const entries = ot_arena_array(e->s->b->arena, count + 1, sizeof(int));
  for (int64_t i = 0; i < count; i++) entries[i] = -1;
  return entries;
}

// The micro-batches of the run's steps, then of OT_ORDER_CHECKSUM: one, if the pipeline allows it.
static int micro_batches_of(const ot_step_builder *s, int plan) {
  const ot_schedule_request *const request = s->b->request;
  const ot_stages *const stages = &s->b->stages;
  if (plan < request->num_micro_batches) return request->micro_batches[plan];
  int fewest = request->micro_batches[0];
  if (!request->order_csv && stages->num_chunks == stages->num_ranks) return 1;
  for (int i = 1; i < request->num_micro_batches; i++) {
    if (request->micro_batches[i] < fewest) fewest = request->micro_batches[i];
  }
  return fewest;
}

static int zero_hashes(ot_step_builder *s) {
  ot_segment segment;
  ot_frame_zero_hashes(s->graph, s->b->schedule, s->b->arena, &segment);
  return ot_build_add_segment(s->b, &segment);
}

static void add_order(ot_step_builder *s, int index, const ot_outline_request *blocks,
                      const ot_segment *begin) {
  ot_build *const b = s->b;
  const ot_step_plan *const plan = &s->plans[index];
  emission e = {.s = s, .plan = plan, .compute = -1, .tied_reduced = -1};
  e.hashes = index == b->request->num_micro_batches;
  e.order =
      ot_build_add_order(b, e.hashes ? OT_ORDER_CHECKSUM : OT_ORDER_STEP, plan->flow.micro_batches);
  e.gather_entry = entries_of(&e, plan->outline.gathers.count);
  e.sum_entry = entries_of(&e, plan->outline.sums.count);
  e.tied_sum_entry = entries_of(&e, plan->outline.tied_sums.count);
  e.reduced = entries_of(&e, s->graph->num_blocks);
  e.receive_entry = entries_of(&e, plan->flow.num_messages);
  e.send_entry = entries_of(&e, plan->flow.num_messages);
  add_step(&e, ot_build_add_segment(b, begin), -1);
  const ot_event_request events = {.blocks = blocks,
                                   .flow = &plan->flow,
                                   .outline = &plan->outline,
                                   .tied_owner = tied_owner(b)};
  if (e.hashes) add_step(&e, zero_hashes(s), -1);
  add_actions(&e, &events);
  if (!e.hashes) add_end(&e, &events);
}

ot_status ot_build_step_orders(ot_build *b) {
  const ot_graph *const graph = b->request->graphs[OT_MODE_TRAIN];
  ot_step_builder s = {.b = b, .graph = graph, .hashes = ot_run_checks_compute(b->request->run)};
  s.num_plans = b->request->num_micro_batches + s.hashes;
  s.plans = ot_arena_array(b->arena, s.num_plans + 1, sizeof *s.plans);
  for (int i = 0; i < s.num_plans; i++) {
    OT_TRY(ot_step_plan_build(b, micro_batches_of(&s, i), &s.plans[i]));
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
  ot_planned_step *const steps = ot_arena_array(b->arena, s.num_plans + 1, sizeof *steps);
  for (int i = 0; i < s.num_plans; i++) {
    steps[i] = (ot_planned_step){.flow = &s.plans[i].flow, .outline = &s.plans[i].outline};
  }
  s.batch_bytes = ot_segment_batch_bytes(graph);
  ot_build_place_step(b, &(ot_step_needs){.graph = graph,
                                          .storage = s.storage,
                                          .blocks = &buckets,
                                          .steps = steps,
                                          .num_steps = s.num_plans,
                                          .scratch_bytes = s.scratch_bytes,
                                          .staging_bytes = s.staging_bytes});
  for (int i = 0; i < s.num_plans; i++) add_order(&s, i, &buckets, &begin);
  return OT_OK;
}
