// SPDX-License-Identifier: Apache-2.0
// A gather starts before the item that it is issued for; a send and a reduction start after the
// block that completes their data; receives start between actions.
#include "schedule/step_events.h"

typedef struct lister {
  const ot_event_request *request;
  const ot_flow_action *action;
  ot_event_cursor *cursor;
  ot_step_event *events;
  int count;
  int block, item;  // for which events are added
} lister;

static ot_step_event *add(lister *l, ot_event_kind kind) {
  ot_step_event *const event = &l->events[l->count++];
  *event = (ot_step_event){
      .kind = kind, .block = l->block, .item = l->item, .use = -1, .message = -1, .sent = -1};
  return event;
}

// ---- a block ----

static void add_gathers(lister *l) {
  if (!l->request->outline) return;
  const ot_bucket_list *const list = &l->request->outline->gathers;
  int *const next = &l->cursor->gathers;
  for (; *next < list->count && list->uses[*next].issue == l->item; ++*next) {
    add(l, OT_EVENT_GATHER)->use = *next;
  }
}

// The message that an action needs. W may be the first to read the gradient if I has no work.
static int32_t message_into(const lister *l) {
  const ot_pipeline_flow *const flow = l->request->flow;
  const ot_flow_action *const a = l->action;
  if (a->work != OT_WORK_WEIGHT) return a->in;
  const int64_t cell = (int64_t)a->chunk * flow->micro_batches + a->micro_batch;
  const int32_t before = flow->of_rank[a->rank][flow->place[OT_WORK_BACKWARD][cell]];
  return flow->actions[before].in;
}

static void add_work(lister *l, bool enters, bool leaves) {
  const ot_flow_action *const a = l->action;
  if (a->work == OT_WORK_BACKWARD) add(l, OT_EVENT_RECOMPUTE);
  ot_step_event *const work = add(l, OT_EVENT_WORK);
  if (enters) work->message = message_into(l);
  if (!leaves || a->work == OT_WORK_WEIGHT) return;
  work->sent = a->reuse;
  add(l, OT_EVENT_COPY_STACK);
  if (a->out >= 0) add(l, OT_EVENT_SEND)->message = a->out;
}

// After the last writer of a gradient bucket: in this micro-batch, or in the step.
static void add_reductions(lister *l) {
  const ot_pipeline_flow *const flow = l->request->flow;
  const ot_outline_request *const r = l->request->blocks;
  const bool last = l->action->micro_batch == flow->micro_batches - 1;
  if (l->action->work != (flow->split ? OT_WORK_WEIGHT : OT_WORK_BACKWARD)) return;
  if (!last && !r->buckets[l->block]->each_micro_batch) return;
  if (l->block == r->tied_user) add(l, OT_EVENT_REDUCE_TIED);
  add(l, OT_EVENT_REDUCE);
  if (last && l->block != l->request->tied_owner) add(l, OT_EVENT_GATHER_GRADIENT);
}

// ---- an action ----

int ot_step_events(const ot_event_request *request, ot_event_cursor *cursor,
                   ot_step_event *events) {
  const ot_pipeline_flow *const flow = request->flow;
  const int stage = request->blocks->stage;
  lister l = {.request = request,
              .action = &flow->actions[flow->of_rank[stage][cursor->action]],
              .cursor = cursor,
              .events = events,
              .item = -1};
  const int *const first = &request->blocks->stages->first_block[l.action->chunk];
  const int blocks = first[1] - first[0];
  for (int i = 0; i < blocks; i++) {
    l.block = l.action->work == OT_WORK_FORWARD ? first[0] + i : first[1] - 1 - i;
    if (request->outline) l.item = request->outline->first_item[cursor->action] + i;
    add_gathers(&l);
    add_work(&l, i == 0, i == blocks - 1);
    add_reductions(&l);
  }
  if (l.action->posts >= 0) add(&l, OT_EVENT_RECEIVE)->message = l.action->posts;
  cursor->action++;
  return l.count;
}

int ot_step_most_events(const ot_event_request *request) {
  enum { OF_AN_ACTION = 1, OF_A_BLOCK = 7 };
  const int gathers = request->outline ? request->outline->gathers.count : 0;
  const ot_stages *const stages = request->blocks->stages;
  return OF_AN_ACTION + OF_A_BLOCK * stages->first_block[stages->num_chunks] + gathers;
}

// ---- the end of the step ----

static bool runs(const ot_outline_request *r, int block) {
  return block >= 0 && r->stages->rank_of[ot_stages_chunk(r->stages, block)] == r->stage;
}

// The block that the rank holds a copy of, or -1.
static int copied_block(const ot_outline_request *r) {
  return runs(r, r->tied_user) && !runs(r, r->tied_block) ? r->tied_block : -1;
}

// Norms of the blocks that the rank holds, last to first.
static int add_norms(const ot_outline_request *r, int copy, ot_end_event *events) {
  const ot_stages *const stages = r->stages;
  int count = 0;
  for (int c = stages->num_chunks - 1; c >= 0; c--) {
    if (stages->rank_of[c] != r->stage) continue;
    for (int i = stages->first_block[c + 1] - 1; i >= stages->first_block[c]; i--) {
      events[count++] = (ot_end_event){OT_END_NORM, i};
    }
  }
  if (copy >= 0) events[count++] = (ot_end_event){OT_END_NORM, copy};
  return count;
}

int ot_step_end_events(const ot_event_request *request, ot_end_event *events) {
  const ot_outline_request *const r = request->blocks;
  const int owner = request->tied_owner, copy = copied_block(r);
  int count = 0;
  if (owner >= 0 && (runs(r, owner) || owner == copy)) {
    events[count++] = (ot_end_event){OT_END_TIE, owner};
    events[count++] = (ot_end_event){OT_END_GATHER_GRADIENT, owner};
  }
  const ot_end_event *const norms = events + count;
  const int held = add_norms(r, copy, events + count);
  count += held;
  events[count++] = (ot_end_event){OT_END_CLIP, -1};
  for (int i = held - 1; i >= 0; i--) {
    events[count++] = (ot_end_event){OT_END_UPDATE, norms[i].block};
  }
  for (int i = held - 1; i >= 0; i--) {
    if (r->buckets[norms[i].block]->gathers) continue;
    events[count++] = (ot_end_event){OT_END_GATHER, norms[i].block};
  }
  return count;
}

int ot_step_most_end_events(const ot_event_request *request) {
  enum { OF_THE_STEP = 3, OF_A_BLOCK = 3 };
  const ot_stages *const stages = request->blocks->stages;
  return OF_THE_STEP + OF_A_BLOCK * (stages->first_block[stages->num_chunks] + 1);
}
