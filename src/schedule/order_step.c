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
  int *receive_entry[2];  // [local chunk * micro_batches + m]: forward, backward; -1
  int *received[2];       // [num_chunks] micro-batches whose receive was started
  int sends[2];           // sent so far: forward, backward
  int *send_entry[2];     // [send_buffers] last that used each: forward, backward; -1
  int *reduced;           // [num_blocks] entry after which the block's gradient is complete, or -1
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

static int ring_place(const emission *e, ot_step_ring ring, int chunk, int micro_batch) {
  const int local = ot_step_local_chunk(e->s->b, chunk);
  return e->plan->ring[ring][local * e->plan->micro_batches + micro_batch].place;
}

static bool is_mine(const emission *e, int chunk) {
  const ot_stages *const stages = &e->s->b->stages;
  return chunk >= 0 && chunk < stages->num_chunks && stages->rank_of[chunk] == e->s->b->stage;
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

// Starts the receives of what enters `chunk` that are awaited from item `index` on.
static void add_chunk_receives(emission *e, int chunk, bool backward, int index) {
  const ot_stages *const stages = &e->s->b->stages;
  const ot_step_plan *const plan = e->plan;
  const ot_step_memory *const memory = &e->s->memory;
  const int from = backward ? chunk + 1 : chunk - 1;
  if (!is_mine(e, chunk) || is_mine(e, from) || from < 0 || from >= stages->num_chunks) return;
  const int block = backward ? stages->first_block[chunk + 1] - 1 : stages->first_block[chunk];
  const ot_step_buffers *const at = backward ? &memory->d_output[block] : &memory->input[block];
  const int local = ot_step_local_chunk(e->s->b, chunk) * plan->micro_batches;
  const ot_ring_use *const uses = &plan->ring[backward ? OT_RING_D_OUTPUT : OT_RING_INPUT][local];
  int *const next = &e->received[backward][chunk];
  for (; *next < plan->micro_batches && uses[*next].first == index; ++*next) {
    add_message(e, &(edge_message){.op = OT_OP_RECEIVE,
                                   .block = block,
                                   .micro_batch = *next,
                                   .peer_chunk = from,
                                   .backward = backward,
                                   .at = place(at, uses[*next].place)});
    e->receive_entry[backward][local + *next] = last_entry(e);
  }
}

static void add_receives(emission *e, int index) {
  for (int chunk = 0; chunk < e->s->b->stages.num_chunks; chunk++) {
    add_chunk_receives(e, chunk, false, index);
    add_chunk_receives(e, chunk, true, index);
  }
}

// ---- items ----

// Where the last block of a chunk puts what it makes: the next chunk's input when that is here, a
// message otherwise. The same backwards.
static int64_t chunk_output(emission *e, const ot_step_item *item, bool backward) {
  const ot_stages *const stages = &e->s->b->stages;
  const int other = backward ? item->chunk - 1 : item->chunk + 1;
  if (other < 0 || other >= stages->num_chunks) return -1;
  const ot_step_memory *const m = &e->s->memory;
  const ot_step_ring ring = backward ? OT_RING_D_OUTPUT : OT_RING_INPUT;
  if (is_mine(e, other)) {
    const int block = backward ? stages->first_block[other + 1] - 1 : stages->first_block[other];
    const ot_step_buffers *const at = backward ? &m->d_output[block] : &m->input[block];
    return place(at, ring_place(e, ring, other, item->micro_batch));
  }
  const int turn = e->sends[backward] % e->plan->send_buffers;
  return backward ? m->back[turn] : m->send[turn];
}

static int64_t d_output_of(const emission *e, const ot_step_item *item, int block) {
  const ot_step_memory *const m = &e->s->memory;
  if (m->d_output[block].offset >= 0) {
    return place(&m->d_output[block],
                 ring_place(e, m->d_output_ring[block], item->chunk, item->micro_batch));
  }
  return e->s->graph->programs[e->s->graph->blocks[block].program].d_output < 0
             ? -1
             : m->hand[ot_stages_hand(block)];
}

// Where the stack of the chunk lies, and its gradient: behind what enters the chunk. The block at
// an edge says also where it goes.
static void bind_stack(emission *e, const ot_step_item *item, ot_entry *entry) {
  const ot_step_memory *const m = &e->s->memory;
  const ot_stages *const stages = &e->s->b->stages;
  const ot_graph *const graph = e->s->graph;
  const int first = stages->first_block[item->chunk];
  const int last = stages->first_block[item->chunk + 1] - 1;
  const bool forward = item->phase == OT_PHASE_FORWARD;
  const int64_t ahead = ot_build_input_bytes(graph, first);
  const int64_t behind = ot_build_output_bytes(graph, last);
  if (ot_build_stack_end_bytes(graph, last) == 0) return;
  entry->base[OT_BASE_STACK] =
      place(&m->input[first], ring_place(e, OT_RING_INPUT, item->chunk, item->micro_batch)) + ahead;
  if (!forward) {
    entry->base[OT_BASE_D_STACK] =
        place(&m->d_output[last], ring_place(e, OT_RING_D_OUTPUT, item->chunk, item->micro_batch)) +
        behind;
  }
  if (item->phase == OT_PHASE_WEIGHT || item->block != (forward ? last : first)) return;
  const int64_t out = chunk_output(e, item, !forward);
  if (out < 0) return;
  entry->base[forward ? OT_BASE_STACK_OUT : OT_BASE_D_STACK_OUT] = out + (forward ? behind : ahead);
}

static void bind_activations(emission *e, const ot_step_item *item, ot_entry *entry) {
  static const ot_base bases[] = {OT_BASE_SLOT, OT_BASE_SLOT_LONG, OT_BASE_SLOT_WEIGHT};
  static const ot_step_ring rings[] = {OT_RING_SHORT, OT_RING_LONG, OT_RING_WEIGHT};
  const ot_step_memory *const m = &e->s->memory;
  const ot_stages *const stages = &e->s->b->stages;
  const int block = item->block;
  const bool first = block == stages->first_block[item->chunk];
  const bool last = block == stages->first_block[item->chunk + 1] - 1;
  bind_stack(e, item, entry);
  for (int i = 0; i < OT_SLOT_CLASSES; i++) {
    entry->base[bases[i]] =
        place(&m->slot[i][block], ring_place(e, rings[i], item->chunk, item->micro_batch));
  }
  entry->base[OT_BASE_INPUT] =
      place(&m->input[block], ring_place(e, m->input_ring[block], item->chunk, item->micro_batch));
  if (item->phase == OT_PHASE_FORWARD) {
    entry->base[OT_BASE_OUTPUT] =
        last ? chunk_output(e, item, false)
             : place(&m->input[block + 1],
                     ring_place(e, m->input_ring[block + 1], item->chunk, item->micro_batch));
    return;
  }
  entry->base[OT_BASE_D_OUTPUT] = d_output_of(e, item, block);
  if (item->phase == OT_PHASE_WEIGHT) return;
  entry->base[OT_BASE_D_INPUT] =
      first ? chunk_output(e, item, true) : d_output_of(e, item, block - 1);
}

static void bind_buckets(emission *e, const ot_step_item *item, ot_entry *entry) {
  const ot_build *const b = e->s->b;
  const ot_step_memory *const m = &e->s->memory;
  ot_build_bind_block(b, entry);
  if (item->gather >= 0) {
    entry->base[OT_BASE_WEIGHT] =
        place(&m->gathered[item->block], e->plan->gathers[item->gather].place);
    wait_for(entry, OT_LANE_GATHER, e->gather_entry[item->gather]);
  }
  if (item->tied_gather >= 0) {
    entry->base[OT_BASE_TIED] =
        place(&m->gathered[b->tied_block], e->plan->gathers[item->tied_gather].place);
    wait_for(entry, OT_LANE_GATHER, e->gather_entry[item->tied_gather]);
  }
  if (item->sum >= 0) {
    const ot_step_use *const use = &e->plan->sums[item->sum];
    entry->base[OT_BASE_GRADIENT] = place(&m->sums[item->block], use->place);
    if (use->previous >= 0) wait_for(entry, OT_LANE_REDUCE, e->sum_entry[use->previous]);
  }
  if (item->tied_sum >= 0) {
    const ot_step_use *const use = &e->plan->tied_sums[item->tied_sum];
    entry->base[OT_BASE_TIED_GRADIENT] = place(&m->tied_sums, use->place);
    if (use->previous >= 0) wait_for(entry, OT_LANE_REDUCE, e->tied_sum_entry[use->previous]);
  }
}

// The receive that the item reads, and the send whose buffer it writes again. Of an entry only one
// can be waited for on the pipeline lane; the other goes to an entry of its own before it.
static void find_messages(const emission *e, const ot_step_item *item, int *receive, int *send) {
  const ot_stages *const stages = &e->s->b->stages;
  const bool backward = item->phase != OT_PHASE_FORWARD;
  const bool enters = backward ? item->block == stages->first_block[item->chunk + 1] - 1
                               : item->block == stages->first_block[item->chunk];
  const bool leaves = backward ? item->block == stages->first_block[item->chunk]
                               : item->block == stages->first_block[item->chunk + 1] - 1;
  const int other = backward ? item->chunk - 1 : item->chunk + 1;
  const int local = ot_step_local_chunk(e->s->b, item->chunk) * e->plan->micro_batches;
  *receive = enters ? e->receive_entry[backward][local + item->micro_batch] : -1;
  *send = -1;
  if (item->phase == OT_PHASE_WEIGHT || !leaves || is_mine(e, other)) return;
  if (other < 0 || other >= stages->num_chunks) return;
  *send = e->send_entry[backward][e->sends[backward] % e->plan->send_buffers];
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
  for (; e->gathers < e->plan->num_gathers; e->gathers++) {
    const ot_step_use *const use = &e->plan->gathers[e->gathers];
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
  const int64_t whole = item->sum >= 0
                            ? place(&e->s->memory.sums[block], e->plan->sums[item->sum].place)
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
      item->tied_sum >= 0 ? place(&e->s->memory.tied_sums, e->plan->tied_sums[item->tied_sum].place)
                          : b->tied_gradients;
  const int entry = add_reduction(e, &(reduction){e->s->tied.reduce[adds][last], b->tied_block,
                                                  item->micro_batch, whole, b->tied_piece});
  if (item->tied_sum >= 0) e->tied_sum_entry[item->tied_sum] = entry;
  if (entry >= 0) e->tied_reduced = entry;
  if (entry >= 0 && !b->runs[b->tied_block]) e->reduced[b->tied_block] = entry;
}

// After the last writer of a bucket of gradients: in this micro-batch, or in the step.
static void add_reductions(emission *e, const ot_step_item *item) {
  const ot_phase end = e->plan->split ? OT_PHASE_WEIGHT : OT_PHASE_BACKWARD;
  if (item->phase != end) return;
  const bool last = item->micro_batch == e->plan->micro_batches - 1;
  if (!last && !ot_build_eachtime(e->s->b, item->block)) return;
  if (item->block == e->s->b->tied_user) reduce_tied(e, item, last);
  reduce_block(e, item, last);
}

// Behind the block at an edge: the stack goes with what it made, backwards its gradient.
static void add_hand_over(emission *e, const ot_step_item *item) {
  ot_build *const b = e->s->b;
  const bool backward = item->phase != OT_PHASE_FORWARD;
  const int first = b->stages.first_block[item->chunk];
  const int cut = backward ? first : b->stages.first_block[item->chunk + 1];
  const int edge = backward ? first : cut - 1;
  if (item->phase == OT_PHASE_WEIGHT || item->block != edge) return;
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
  const ot_stages *const stages = &e->s->b->stages;
  const bool backward = item->phase != OT_PHASE_FORWARD;
  const int edge =
      backward ? stages->first_block[item->chunk] : stages->first_block[item->chunk + 1] - 1;
  const int other = backward ? item->chunk - 1 : item->chunk + 1;
  if (item->phase == OT_PHASE_WEIGHT || item->block != edge || is_mine(e, other)) return;
  if (other < 0 || other >= stages->num_chunks) return;
  add_message(e, &(edge_message){.op = OT_OP_SEND,
                                 .block = item->block,
                                 .micro_batch = item->micro_batch,
                                 .peer_chunk = other,
                                 .backward = backward,
                                 .at = chunk_output(e, item, backward)});
  e->send_entry[backward][e->sends[backward]++ % e->plan->send_buffers] = last_entry(e);
}

static void add_item(emission *e, int index) {
  const ot_step_item *const item = &e->plan->items[index];
  const ot_block_segments *const made = &e->s->segments[item->block];
  const bool eachtime = ot_build_eachtime(e->s->b, item->block);
  const int later = !eachtime && item->micro_batch > 0 ? 1 : 0;
  add_gathers(e, index);
  add_receives(e, index);
  switch (item->phase) {
    case OT_PHASE_FORWARD:
      add_segment_entry(e, item, made->forward[later]);
      break;
    case OT_PHASE_WEIGHT:
      add_segment_entry(e, item, made->weight[later]);
      break;
    default:
      add_segment_entry(e, item, made->recompute);
      add_segment_entry(e, item, made->backward[later]);
      break;
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
  e.order = ot_build_add_order(b, OT_ORDER_STEP, plan->micro_batches);
  e.gather_entry = entries_of(&e, plan->num_gathers);
  e.sum_entry = entries_of(&e, plan->num_sums);
  e.tied_sum_entry = entries_of(&e, plan->num_tied_sums);
  e.reduced = entries_of(&e, s->graph->num_blocks);
  const int64_t kept = (int64_t)ot_step_local_chunk(b, b->stages.num_chunks) * plan->micro_batches;
  for (int i = 0; i < 2; i++) {
    e.receive_entry[i] = entries_of(&e, kept);
    e.send_entry[i] = entries_of(&e, plan->send_buffers);
    e.received[i] = ot_arena_array(b->arena, b->stages.num_chunks, sizeof(int));
  }
  add_step(&e, ot_build_add_segment(b, begin), -1);
  for (int i = 0; i < plan->num_items; i++) add_item(&e, i);
  add_update(&e);
}

ot_status ot_build_step_orders(ot_build *b) {
  const ot_graph *const graph = b->request->graphs[OT_MODE_TRAIN];
  ot_step_builder s = {.b = b, .graph = graph, .num_plans = b->request->num_micro_batches};
  s.plans = ot_arena_array(b->arena, s.num_plans + 1, sizeof *s.plans);
  for (int i = 0; i < s.num_plans; i++) {
    OT_TRY(ot_step_plan_build(b, b->request->micro_batches[i], &s.plans[i]));
  }
  ot_step_segments_build(&s);
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
                                          .scratch_bytes = s.scratch_bytes,
                                          .staging_bytes = s.staging_bytes};
  ot_step_memory_build(&request, &s.memory);
  for (int i = 0; i < s.num_plans; i++) add_order(&s, &s.plans[i], &begin);
  return OT_OK;
}
