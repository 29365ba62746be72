// SPDX-License-Identifier: Apache-2.0
// Replays a step, stage by stage and action by action: the events that order_step.c turns into
// entries, with a clock for each lane. If no bucket is gathered or reduced in between, three
// numbers describe an action. Waiting time is counted on the stage that waits.
#include <string.h>

#include "base/extremes.h"
#include "estimate/replayer.h"

ot_stage_place ot_replay_place(const ot_replay_request *r, int stage) {
  if (r->places) return r->places[stage];
  return (ot_stage_place){r->estimator, r->prices,
                          stage * (r->prices->ranks / r->stages->num_ranks)};
}

// ---- costs ----

// The block whose stack a chunk sends with `work` to the next or previous chunk, or null.
static const ot_block_price *cut_of(const ot_replayer *p, ot_work work, int chunk) {
  const int cut = work == OT_WORK_FORWARD ? chunk + 1 : chunk;
  if (work == OT_WORK_WEIGHT || cut == 0 || cut == p->stages->num_chunks) return NULL;
  return ot_replayed_price(p, p->stages->first_block[cut]);
}

static double hand_over_s(const ot_replayer *p, ot_work work, int chunk) {
  const ot_block_price *const cut = cut_of(p, work, chunk);
  return cut ? cut->hand_over.total_s : 0;
}

// Between devices of different kinds: as slow as the slower side.
static ot_status price_crossing(const ot_stage_place *from, const ot_stage_place *to, double bytes,
                                ot_price *out) {
  const ot_stage_place *const sides[2] = {from, to};
  *out = (ot_price){0};
  for (int i = 0; i < 2; i++) {
    const ot_simulation *const simulation = &sides[i]->estimator->simulation;
    ot_price price;
    OT_TRY(ot_price_message(simulation, 0, simulation->cluster->num_devices - 1, bytes, &price));
    if (price.device_s > out->device_s) *out = price;
  }
  return OT_OK;
}

// If tp replicates activations, each tp rank may send a part, and the receivers gather the parts
// (Narayanan et al. 2021, sec. 4.1; DeepSpeed's partitioned pipes).
static ot_status price_hop(const ot_replayer *p, int chunk, double *hop_s) {
  const ot_stage_place *const from = &p->place[p->flow->rank_of[chunk - 1]];
  const ot_stage_place *const to = &p->place[p->flow->rank_of[chunk]];
  const ot_prices *const prices = to->prices;
  const ot_simulation *const simulation = &to->estimator->simulation;
  const bool scatters = to->estimator->job.engine->scattered_messages;
  const int parts = !prices->sequence_parallel && scatters ? prices->key.tp : 1;
  const double whole =
      ot_price_edge_bytes(prices, ot_replayed_price(p, p->stages->first_block[chunk]));
  const ot_collective gather = {
      .op = OT_OP_ALL_GATHER, .shape = prices->shape[OT_GROUP_TENSOR], .bytes = whole};
  ot_price price, gathered = {0};
  if (from->estimator == to->estimator) {
    OT_TRY(ot_price_message(simulation, from->first, to->first, whole / parts, &price));
  } else {
    OT_TRY(price_crossing(from, to, whole / parts, &price));
  }
  if (parts > 1) OT_TRY(ot_price_collective(simulation, &gather, &gathered));
  *hop_s = ot_price_total_s(simulation, price) + ot_price_total_s(simulation, gathered);
  return OT_OK;
}

static ot_status find_hops(ot_replayer *p) {
  for (int c = 1; c < p->flow->num_chunks; c++) {
    if (p->flow->rank_of[c - 1] != p->flow->rank_of[c]) OT_TRY(price_hop(p, c, &p->hop_s[c]));
  }
  return OT_OK;
}

static void create_stage(ot_replayer *p, int rank, ot_arena *arena) {
  ot_stage_clocks *const s = &p->stage[rank];
  const ot_step_outline *const outline = p->request->outlines ? &p->request->outlines[rank] : NULL;
  s->blocks = p->request->outline;
  s->blocks.stage = rank;
  s->embedded = ot_arena_array(arena, p->flow->micro_batches, sizeof *s->embedded);
  s->request = (ot_event_request){.blocks = &s->blocks,
                                  .flow = p->flow,
                                  .outline = outline,
                                  .tied_owner = p->prices->tied ? 0 : -1};
  if (outline) {
    s->gathered_s = ot_arena_array(arena, outline->gathers.count + 1, sizeof(double));
    s->summed_s = ot_arena_array(arena, outline->sums.count + 1, sizeof(double));
    s->tied_summed_s = ot_arena_array(arena, outline->tied_sums.count + 1, sizeof(double));
  }
  s->ends = ot_arena_array(arena, ot_step_most_end_events(&s->request), sizeof *s->ends);
  s->num_ends = ot_step_end_events(&s->request, s->ends);
  s->clock_s = s->reduce_s = s->gather_s = p->place[rank].prices->begin.total_s;
  for (int i = 0; i < 2; i++) {
    const int32_t message = p->flow->first_posts[2 * rank + i];
    if (message >= 0) p->posted_s[message] = s->clock_s;
  }
}

static ot_status create(ot_replayer *p, ot_arena *arena) {
  const ot_pipeline_flow *const flow = p->flow;
  const ot_engine *const engine = p->request->estimator->job.engine;
  p->overlap_gather = engine->overlap_gather;
  p->overlap_reduce = engine->overlap_reduce;
  // With one chunk a stage, the next action needs the message (Megatron-LM's schedules).
  const bool several = flow->num_chunks > flow->num_ranks || flow->split;
  p->overlap_pipeline =
      engine->overlap_pipeline >= (several ? OT_PIPELINE_OVERLAP_CHUNKS : OT_PIPELINE_OVERLAP_ALL);
  p->overlap_pairs = ot_engine_pairs(engine) && p->request->candidate->ep > 1;
  p->each_micro_batch = p->prices->each_micro_batch;
  p->stage = ot_arena_array(arena, flow->num_ranks, sizeof *p->stage);
  ot_stage_place *const place = ot_arena_array(arena, flow->num_ranks, sizeof *place);
  for (int r = 0; r < flow->num_ranks; r++) place[r] = ot_replay_place(p->request, r);
  p->place = place;
  p->hop_s = ot_arena_array(arena, flow->num_chunks, sizeof(double));
  p->sent_s = ot_arena_array(arena, flow->num_messages, sizeof(double));
  p->posted_s = ot_arena_array(arena, flow->num_messages, sizeof(double));
  p->reduced_s = ot_arena_array(arena, p->prices->blocks->num_blocks, sizeof(double));
  for (int i = 0; i < 4 * OT_WORKS; i++) {
    p->cost[i / 4][i / 2 % 2][i % 2] =
        ot_arena_array(arena, flow->num_chunks, sizeof(ot_chunk_cost));
  }
  int most = 0;
  for (int r = 0; r < flow->num_ranks; r++) {
    create_stage(p, r, arena);
    const int events = ot_step_most_events(&p->stage[r].request);
    if (events > most) most = events;
  }
  p->events = ot_arena_array(arena, most, sizeof *p->events);
  return find_hops(p);
}

// ---- messages ----

static double hop_of(const ot_replayer *p, int32_t message) {
  return p->hop_s[ot_pipeline_flow_message(p->flow, message).boundary];
}

// Arrival time of a message.
static double arrival_s(const ot_replayer *p, int32_t message) {
  if (!p->overlap_pipeline) return p->sent_s[message];
  return ot_larger(p->sent_s[message], p->posted_s[message]) + hop_of(p, message);
}

// Waits for a message: exposed communication while it is in flight, before that a bubble.
static void await_message(const ot_replayer *p, ot_stage_clocks *s, int32_t message) {
  const double until_s = arrival_s(p, message);
  if (until_s <= s->clock_s) return;
  const double hop_s = p->overlap_pipeline ? hop_of(p, message) : 0;
  const double travels_s = until_s - s->clock_s < hop_s ? until_s - s->clock_s : hop_s;
  s->exposed_pp_s += travels_s;
  s->bubble_s += until_s - s->clock_s - travels_s;
  s->clock_s = until_s;
}

// Waits for the first message of an action. Waiting before any work is not part of the action.
static void await_entry(const ot_replayer *p, ot_stage_clocks *s, int32_t message) {
  const bool begun = s->clock_s > s->start_s;
  if (message >= 0) await_message(p, s, message);
  if (!begun) s->start_s = s->clock_s;
}

// A chunk that is the embedding alone has no gradient of its input: if backwards are split and tp
// gathers nothing there, only the gradient of its weights waits for their message.
static void await_input(const ot_replayer *p, const ot_flow_action *a, int32_t message) {
  ot_stage_clocks *const s = &p->stage[a->rank];
  const bool embeds = p->flow->split && a->chunk == 0 && p->stages->first_block[1] == 1 &&
                      ot_replayed_price(p, 0)->work[OT_WORK_BACKWARD][0].total_s == 0;
  if (embeds && a->work == OT_WORK_BACKWARD) {
    s->embedded[a->micro_batch] = message;
    return;
  }
  await_entry(p, s, embeds && a->work == OT_WORK_WEIGHT ? s->embedded[a->micro_batch] : message);
}

static void send(const ot_replayer *p, ot_stage_clocks *s, int32_t message) {
  if (message < 0) return;
  if (s->in_pair) {
    s->held[s->num_held++] = message;
    return;
  }
  if (!p->overlap_pipeline) {
    s->clock_s += hop_of(p, message);
    s->exposed_pp_s += hop_of(p, message);
  }
  p->sent_s[message] = s->clock_s;
}

// ---- reductions ----

// Without overlap, reductions run after all work of the stage: other stages do not wait for them.
static void reduce(ot_replayer *p, ot_stage_clocks *s, double price_s, double *done_s) {
  if (price_s == 0) return;
  if (!p->overlap_reduce && !p->each_micro_batch) {
    s->after_s += price_s;
    return;
  }
  if (!p->overlap_reduce) {
    s->clock_s += price_s;
    s->exposed_dp_s += price_s;
    s->reduce_s = s->clock_s;
  } else {
    s->reduce_s = ot_larger(s->reduce_s, s->clock_s) + price_s;
  }
  *done_s = s->reduce_s;
}

static const ot_step_item *item_of(const ot_stage_clocks *s, const ot_step_event *event) {
  return event->item < 0 ? NULL : &s->request.outline->items[event->item];
}

static bool is_last(const ot_replayer *p, const ot_flow_action *a) {
  return a->micro_batch == p->flow->micro_batches - 1;
}

// Whether a reduction accumulates into the result of earlier micro-batches.
static bool adds(const ot_block_price *price, const ot_flow_action *a) {
  return price->buckets.each_micro_batch && a->micro_batch > 0;
}

static void reduce_tied(ot_replayer *p, const ot_flow_action *a, const ot_step_event *event) {
  ot_stage_clocks *const s = &p->stage[a->rank];
  const ot_step_item *const item = item_of(s, event);
  const ot_prices *const prices = p->place[a->rank].prices;
  reduce(p, s, prices->tied_reduce_s[adds(ot_replayed_price(p, event->block), a)][is_last(p, a)],
         &p->tied_reduced_s);
  if (item && item->tied_sum >= 0) s->tied_summed_s[item->tied_sum] = p->tied_reduced_s;
}

static void reduce_block(ot_replayer *p, const ot_flow_action *a, const ot_step_event *event) {
  ot_stage_clocks *const s = &p->stage[a->rank];
  const ot_step_item *const item = item_of(s, event);
  const ot_block_price *const price = ot_replayed_price(p, event->block);
  double *const done_s = &p->reduced_s[event->block];
  reduce(p, s, price->reduce_s[adds(price, a)][is_last(p, a)], done_s);
  if (item && item->sum >= 0) s->summed_s[item->sum] = *done_s;
}

// ---- buckets ----

static void start_gather(const ot_replayer *p, ot_stage_clocks *s, int use) {
  const int block = s->request.outline->gathers.uses[use].block;
  s->gather_s = ot_larger(s->gather_s, s->clock_s) + ot_replayed_price(p, block)->gather_s;
  s->gathered_s[use] = s->gather_s;
}

static void await_bucket(ot_stage_clocks *s, double until_s) {
  if (until_s <= s->clock_s) return;
  s->exposed_dp_s += until_s - s->clock_s;
  s->clock_s = until_s;
}

static void await_gather(const ot_replayer *p, ot_stage_clocks *s, int item, int use) {
  if (use < 0) return;
  const ot_bucket_use *const gather = &s->request.outline->gathers.uses[use];
  if (p->overlap_gather) {
    await_bucket(s, s->gathered_s[use]);
  } else if (gather->first == item) {
    await_bucket(s, s->clock_s + ot_replayed_price(p, gather->block)->gather_s);
  }
}

static void await_buckets(const ot_replayer *p, ot_stage_clocks *s, int index) {
  if (index < 0) return;
  const ot_step_outline *const outline = s->request.outline;
  const ot_step_item *const item = &outline->items[index];
  await_gather(p, s, index, item->gather);
  await_gather(p, s, index, item->tied_gather);
  const int before = item->sum < 0 ? -1 : outline->sums.uses[item->sum].previous;
  const int tied = item->tied_sum < 0 ? -1 : outline->tied_sums.uses[item->tied_sum].previous;
  if (before >= 0) await_bucket(s, s->summed_s[before]);
  if (tied >= 0) await_bucket(s, s->tied_summed_s[tied]);
}

// ---- actions ----

static void record_action(const ot_replayer *p, const ot_flow_action *a) {
  static const ot_replayed_kind kinds[] = {[OT_WORK_FORWARD] = OT_REPLAYED_FORWARD,
                                           [OT_WORK_BACKWARD] = OT_REPLAYED_BACKWARD,
                                           [OT_WORK_WEIGHT] = OT_REPLAYED_WEIGHT};
  ot_replayer_record(p, &(ot_replayed_action){.stage = a->rank,
                                              .chunk = a->chunk,
                                              .micro_batch = a->micro_batch,
                                              .kind = kinds[a->work],
                                              .start_s = p->stage[a->rank].start_s,
                                              .end_s = p->stage[a->rank].clock_s});
}

static bool ends_backward(const ot_replayer *p, ot_work work) {
  return work == (p->flow->split ? OT_WORK_WEIGHT : OT_WORK_BACKWARD);
}

// Index of the work's cost for this block: the first micro-batch overwrites, later ones accumulate.
static int later_of(const ot_block_price *price, const ot_flow_action *a) {
  return !price->buckets.each_micro_batch && a->micro_batch > 0;
}

// Seconds of the work of a block without its recompute.
static double work_s(const ot_replayer *p, const ot_flow_action *a, int block) {
  const ot_block_price *const price = ot_replayed_price(p, block);
  const double again_s = a->work == OT_WORK_BACKWARD ? price->recompute_total_s : 0;
  const double saved_s =
      p->stage[a->rank].in_pair ? price->hidden_s[a->work] - price->slower_s[a->work] : 0;
  const ot_phase_price *const of = price->work[a->work];
  if (p->least) return ot_smaller(of[0].total_s, of[1].total_s) - again_s - saved_s;
  return of[later_of(price, a)].total_s - again_s - saved_s;
}

// Blocks that run together with another chunk's.
static void count_pair(ot_stage_clocks *s, double hidden_s, double slower_s) {
  if (!s->in_pair) return;
  s->hidden_s += hidden_s;
  s->slower_s += slower_s;
}

// Seconds by which concurrent communication slows down a block: the gather of its weights, and the
// reductions that the following events start.
static void slow_down(const ot_replayer *p, const ot_flow_action *a, const ot_step_event *event) {
  const ot_block_price *const price = ot_replayed_price(p, event->block);
  ot_stage_clocks *const s = &p->stage[a->rank];
  const ot_step_item *const item = item_of(s, event);
  const bool gathers = p->overlap_gather && item && item->gather >= 0 &&
                       s->request.outline->gathers.uses[item->gather].first == event->item;
  double load_s = gathers ? price->gather_load_s : 0;
  double busy_s = price->work[a->work][later_of(price, a)].total_s;
  const ot_step_event *const end = p->events + p->num_events;
  for (const ot_step_event *e = event + 1; e < end && e->block == event->block; e++) {
    if (e->kind == OT_EVENT_COPY_STACK) busy_s += hand_over_s(p, a->work, a->chunk);
    if (!p->overlap_reduce) continue;
    if (e->kind == OT_EVENT_REDUCE) load_s += price->reduce_load_s[adds(price, a)][is_last(p, a)];
    if (e->kind == OT_EVENT_GATHER_GRADIENT) load_s += price->gradient_gather_load_s;
  }
  const double extra_s =
      ot_price_overlap_slowdown_s(&p->place[a->rank].estimator->simulation, busy_s, load_s);
  s->clock_s += extra_s;
  s->exposed_dp_s += extra_s;
}

static void run_event(ot_replayer *p, const ot_flow_action *a, const ot_step_event *event) {
  ot_stage_clocks *const s = &p->stage[a->rank];
  switch (event->kind) {
    case OT_EVENT_RECEIVE:
      p->posted_s[event->message] = s->clock_s;
      return;
    case OT_EVENT_GATHER:
      start_gather(p, s, event->use);
      return;
    case OT_EVENT_RECOMPUTE:
      await_buckets(p, s, event->item);
      s->clock_s += ot_replayed_price(p, event->block)->recompute_total_s;
      return;
    case OT_EVENT_WORK:
      await_buckets(p, s, event->item);
      await_input(p, a, event->message);
      if (event->sent >= 0 && p->overlap_pipeline) await_message(p, s, event->sent);
      s->clock_s += work_s(p, a, event->block);
      count_pair(s, ot_replayed_price(p, event->block)->hidden_s[a->work],
                 ot_replayed_price(p, event->block)->slower_s[a->work]);
      slow_down(p, a, event);
      return;
    case OT_EVENT_COPY_STACK:
      s->clock_s += hand_over_s(p, a->work, a->chunk);
      return;
    case OT_EVENT_SEND:
      send(p, s, event->message);
      return;
    case OT_EVENT_REDUCE_TIED:
      reduce_tied(p, a, event);
      return;
    case OT_EVENT_REDUCE:
      reduce_block(p, a, event);
      return;
    case OT_EVENT_GATHER_GRADIENT:
      reduce(p, s, ot_replayed_price(p, event->block)->gradient_gather_s,
             &p->reduced_s[event->block]);
      return;
  }
  OT_UNREACHABLE();
}

// Condenses the events of an action without collectives in between into three durations.
static void add_up(const ot_replayer *p, const ot_flow_action *a, int count, ot_chunk_cost *cost) {
  const ot_step_event *const events = p->events;
  int first = 0, last = count - 1;
  while (events[first].kind != OT_EVENT_WORK) first++;
  while (events[last].kind != OT_EVENT_WORK) last--;
  *cost = (ot_chunk_cost){.known = true};
  for (int i = 0; i < count; i++) {
    double *const s = i >= last ? &cost->edge_s : i >= first ? &cost->before_s : &cost->early_s;
    if (events[i].kind == OT_EVENT_RECOMPUTE)
      *s += ot_replayed_price(p, events[i].block)->recompute_total_s;
    if (events[i].kind == OT_EVENT_WORK) {
      *s += work_s(p, a, events[i].block);
      cost->hidden_s += ot_replayed_price(p, events[i].block)->hidden_s[a->work];
      cost->slower_s += ot_replayed_price(p, events[i].block)->slower_s[a->work];
    }
    if (events[i].kind == OT_EVENT_COPY_STACK) *s += hand_over_s(p, a->work, a->chunk);
  }
}

static void run_chunk(ot_replayer *p, const ot_flow_action *a) {
  ot_stage_clocks *const s = &p->stage[a->rank];
  ot_chunk_cost *const cost = &p->cost[a->work][a->micro_batch > 0][s->in_pair][a->chunk];
  if (cost->known) {
    s->cursor.action++;
  } else {
    add_up(p, a, ot_step_events(&s->request, &s->cursor, p->events), cost);
  }
  s->clock_s += cost->early_s;
  await_input(p, a, a->in);
  s->clock_s += cost->before_s;
  if (a->reuse >= 0 && p->overlap_pipeline) await_message(p, s, a->reuse);
  s->clock_s += cost->edge_s;
  count_pair(s, cost->hidden_s, cost->slower_s);
  send(p, s, a->out);
  if (a->posts >= 0) p->posted_s[a->posts] = s->clock_s;
}

static void run_events(ot_replayer *p, const ot_flow_action *a) {
  ot_stage_clocks *const s = &p->stage[a->rank];
  p->num_events = ot_step_events(&s->request, &s->cursor, p->events);
  for (int i = 0; i < p->num_events; i++) run_event(p, a, &p->events[i]);
}

// A pair (DeepSeek-AI 2024, sec. 3.2.1) starts when the inputs of both have arrived, and sends when
// both are complete. Its actions follow each other in the list.
static void begin_pair(const ot_replayer *p, const ot_flow_action *forward) {
  ot_stage_clocks *const s = &p->stage[forward->rank];
  if (!p->overlap_pairs || !forward->paired) return;
  if (forward->in >= 0) await_message(p, s, forward->in);
  if (forward[1].in >= 0) await_message(p, s, forward[1].in);
  s->in_pair = true;
  s->num_held = 0;
}

static void end_pair(const ot_replayer *p, const ot_flow_action *a) {
  ot_stage_clocks *const s = &p->stage[a->rank];
  if (!s->in_pair || !ends_backward(p, a->work)) return;
  s->in_pair = false;
  for (int i = 0; i < s->num_held; i++) send(p, s, s->held[i]);
}

static void run_action(ot_replayer *p, const ot_flow_action *a) {
  ot_stage_clocks *const s = &p->stage[a->rank];
  begin_pair(p, a);
  s->start_s = s->clock_s;
  if (s->request.outline || (is_last(p, a) && ends_backward(p, a->work))) {
    run_events(p, a);
  } else {
    run_chunk(p, a);
  }
  end_pair(p, a);
  record_action(p, a);
}

static void run_actions(ot_replayer *p) {
  for (int64_t i = 0; i < p->flow->num_actions; i++) run_action(p, &p->flow->actions[i]);
  for (int r = 0; r < p->flow->num_ranks; r++) {
    ot_stage_clocks *const s = &p->stage[r];
    s->clock_s += s->after_s;
    s->exposed_dp_s += s->after_s;
    s->reduce_s = ot_larger(s->reduce_s, s->clock_s);
  }
}

// ---- the whole step ----

static void count_work(const ot_replayer *p, int rank, ot_stage_replay *out) {
  ot_phase_price sum = {0};
  for (int block = 0; block < p->prices->blocks->num_blocks; block++) {
    if (p->request->cut->stage_of[block] != rank) continue;
    const ot_block_price *const price = ot_replayed_price(p, block);
    const double later = price->buckets.each_micro_batch ? 0 : p->flow->micro_batches - 1;
    const double times[2] = {p->flow->micro_batches - later, later};
    for (int w = 0; w < OT_WORKS; w++) {
      for (int i = 0; i < 2; i++) ot_phase_price_add(&sum, &price->work[w][i], times[i]);
    }
    out->recompute_s += price->recompute_s * p->flow->micro_batches;
  }
  for (int c = 0; c < p->stages->num_chunks; c++) {
    for (int w = 0; w < OT_WORKS && p->stages->rank_of[c] == rank; w++) {
      const ot_block_price *const cut = cut_of(p, (ot_work)w, c);
      if (cut) ot_phase_price_add(&sum, &cut->hand_over, p->flow->micro_batches);
    }
  }
  out->compute_s = sum.compute_s + p->stage[rank].slower_s;
  out->host_s = sum.host_s;
  for (int i = 0; i < OT_TIMELINE_AXES; i++) out->exposed_s[i] += sum.exposed_s[i];
  out->exposed_s[OT_TIMELINE_EP] -= p->stage[rank].hidden_s;
}

ot_status ot_step_replay(const ot_replay_request *request, ot_arena *arena, ot_stage_replay *out) {
  ot_replayer p = {.request = request,
                   .prices = request->prices,
                   .stages = request->stages,
                   .flow = request->flow};
  OT_TRY(create(&p, arena));
  run_actions(&p);
  memset(out, 0, (size_t)p.flow->num_ranks * sizeof *out);
  for (int r = 0; r < p.flow->num_ranks; r++) count_work(&p, r, &out[r]);
  ot_replay_end(&p, out);
  return OT_OK;
}

ot_status ot_step_replay_work(const ot_replay_request *request, ot_arena *arena, double *seconds) {
  ot_replayer p = {.request = request,
                   .prices = request->prices,
                   .stages = request->stages,
                   .flow = request->flow,
                   .least = true};
  OT_TRY(create(&p, arena));
  for (int64_t i = 0; i < p.flow->num_actions; i++) {
    begin_pair(&p, &p.flow->actions[i]);
    run_chunk(&p, &p.flow->actions[i]);
    end_pair(&p, &p.flow->actions[i]);
  }
  *seconds = 0;
  for (int r = 0; r < p.flow->num_ranks; r++) {
    *seconds = ot_larger(*seconds, p.stage[r].clock_s);
  }
  return OT_OK;
}
