// SPDX-License-Identifier: Apache-2.0
// Lists the calls of each rank by group; then compares the members of each group, and both ends of
// each channel (sender, receiver, tag). The calls of a loop body are listed once: all members run
// the same number of iterations.
#include "schedule/schedule_match.h"

#include "base/text.h"
#include "ops/catalog.h"
#include "ops/collective.h"
#include "schedule/bodies.h"
#include "schedule/schedule_deadlock.h"

// A communication of a rank, with the properties that its partners must share.
typedef struct call {
  int entry, task;  // in the order
  ot_op_kind op;
  int64_t elements;  // sent; for a receive: received
  ot_dtype dtype, sum;
  bool accumulate, sum_on_wire;
  int turn;           // index in a body (ot_segment_collective_index)
  int from, to, tag;  // messages: indices in the group
  int micro_batch;
} call;

typedef struct call_list {
  call *calls;
  int64_t count, capacity;
} call_list;

typedef struct matching {
  const ot_schedule *const *schedules;  // [ranks]
  int ranks;
  ot_arena *arena;
  int order;         // index of the order, for all ranks
  call_list *lists;  // [ranks * OT_GROUP_KINDS]
} matching;

static call_list *list_of(const matching *m, int rank, int kind) {
  return &m->lists[rank * OT_GROUP_KINDS + kind];
}

static const ot_segment *segment_of(const matching *m, int rank, int entry) {
  const ot_schedule *const schedule = m->schedules[rank];
  return &schedule->segments[schedule->orders[m->order].entries[entry].segment];
}

static const char *name_of(const matching *m, int rank, const call *c) {
  if (!c) return ot_arena_format(m->arena, "rank %d has no further call", rank);
  return ot_arena_format(m->arena, "rank %d, entry %d (%s), task %d: %s of %lld elements of %s%s",
                         rank, c->entry, segment_of(m, rank, c->entry)->name, c->task,
                         ot_op_info_of(c->op)->name, (long long)c->elements,
                         ot_dtype_name(c->dtype), c->turn >= 0 ? ", in a loop body" : "");
}

// ---- listing ----

static bool is_message(ot_op_kind op) { return op == OT_OP_SEND || op == OT_OP_RECEIVE; }

static call call_of(const ot_entry *entry, const ot_task *task) {
  const bool takes = task->op == OT_OP_RECEIVE;
  const ot_tensor_type *const type =
      takes ? &task->out[0].type : &task->in[ot_op_sent_input(task->op)].type;
  const int me = task->attributes.group_index, peer = task->attributes.peer;
  return (call){.op = task->op,
                .elements = task->op == OT_OP_PUBLISH ? task->attributes.whole_elements
                                                      : ot_type_elements(type),
                .dtype = type->dtype,
                .sum = is_message(task->op) ? type->dtype : task->out[0].type.dtype,
                .accumulate = task->attributes.accumulate,
                .sum_on_wire = task->attributes.sum_on_wire,
                .from = takes ? peer : me,
                .to = takes ? me : peer,
                .tag = task->attributes.tag,
                .micro_batch = entry->micro_batch};
}

static ot_status check_group(const matching *m, int rank, const ot_task *task, const call *c) {
  const ot_op_attributes *const a = &task->attributes;
  OT_CHECK((int)a->group >= 0 && (int)a->group < OT_GROUP_KINDS, OT_BUG,
           "schedules: %s in unknown group %d", name_of(m, rank, c), (int)a->group);
  const ot_group *const group = &m->schedules[rank]->group[a->group];
  OT_CHECK(group->size == a->group_size && group->index == a->group_index, OT_BUG,
           "schedules: %s as rank %d of %d; in group %s it is rank %d of %d", name_of(m, rank, c),
           a->group_index, a->group_size, ot_group_name(a->group), group->index, group->size);
  OT_CHECK(!is_message(c->op) || (a->peer >= 0 && a->peer < group->size), OT_BUG,
           "schedules: %s with rank %d of a group of %d", name_of(m, rank, c), a->peer,
           group->size);
  return OT_OK;
}

static ot_status list_rank(matching *m, int rank) {
  const ot_schedule *const schedule = m->schedules[rank];
  const ot_order *const order = &schedule->orders[m->order];
  int lane[OT_GROUP_KINDS];
  for (int kind = 0; kind < OT_GROUP_KINDS; kind++) lane[kind] = -1;
  for (int i = 0; i < order->num_entries; i++) {
    const ot_entry *const entry = &order->entries[i];
    const ot_segment *const segment = &schedule->segments[entry->segment];
    for (int t = 0; t < segment->num_tasks; t++) {
      const ot_task *const task = &segment->tasks[t];
      if (!ot_op_communicates(task->op)) continue;
      call made = call_of(entry, task);
      made.entry = i;
      made.task = t;
      made.turn = ot_segment_collective_index(segment, t);
      OT_TRY(check_group(m, rank, task, &made));
      const int kind = task->attributes.group;
      OT_CHECK(lane[kind] < 0 || lane[kind] == (int)entry->lane, OT_BUG,
               "schedules: %s on the %s lane, after calls of the same group on the %s lane",
               name_of(m, rank, &made), ot_lane_name(entry->lane),
               ot_lane_name((ot_lane)lane[kind]));
      lane[kind] = (int)entry->lane;
      call_list *const list = list_of(m, rank, kind);
      list->calls =
          ot_arena_grow(m->arena, list->calls, list->count, &list->capacity, sizeof(call));
      list->calls[list->count++] = made;
    }
  }
  return OT_OK;
}

// ---- collectives ----

static const call *next_collective(const call_list *list, int64_t *at) {
  while (*at < list->count && is_message(list->calls[*at].op)) ++*at;
  return *at < list->count ? &list->calls[(*at)++] : NULL;
}

static bool fits(const call *a, const call *b) {
  if (!a || !b) return a == b;
  return a->op == b->op && a->elements == b->elements && a->dtype == b->dtype && a->sum == b->sum &&
         a->accumulate == b->accumulate && a->sum_on_wire == b->sum_on_wire && a->turn == b->turn;
}

static ot_status match_collectives(const matching *m, int kind, int rank, int other) {
  int64_t x = 0, y = 0;
  for (;;) {
    const call *const a = next_collective(list_of(m, rank, kind), &x);
    const call *const b = next_collective(list_of(m, other, kind), &y);
    OT_CHECK(fits(a, b), OT_BUG, "schedules: in group %s: %s, but %s",
             ot_group_name((ot_group_kind)kind), name_of(m, rank, a), name_of(m, other, b));
    if (!a) return OT_OK;
  }
}

// ---- messages ----

// Messages from one sender to one receiver under one tag; world ranks.
typedef struct channel {
  int kind, from, to;
  int from_index, to_index, tag;
} channel;

static const call *next_message(const matching *m, const channel *c, ot_op_kind op, int64_t *at) {
  const call_list *const list = list_of(m, op == OT_OP_SEND ? c->from : c->to, c->kind);
  while (*at < list->count) {
    const call *const next = &list->calls[(*at)++];
    const bool same = next->from == c->from_index && next->to == c->to_index;
    if (next->op == op && same && next->tag == c->tag) return next;
  }
  return NULL;
}

static ot_status match_channel(const matching *m, const channel *c) {
  int64_t x = 0, y = 0;
  for (;;) {
    const call *const sent = next_message(m, c, OT_OP_SEND, &x);
    const call *const received = next_message(m, c, OT_OP_RECEIVE, &y);
    const bool both = sent && received;
    OT_CHECK(both ? sent->elements == received->elements && sent->dtype == received->dtype
                  : sent == received,
             OT_BUG, "schedules: messages with tag %d: %s, but %s", c->tag,
             name_of(m, c->from, sent), name_of(m, c->to, received));
    if (!both) return OT_OK;
    OT_CHECK(sent->micro_batch == received->micro_batch, OT_BUG,
             "schedules: messages with tag %d: %s of micro-batch %d, but %s of micro-batch %d",
             c->tag, name_of(m, c->from, sent), sent->micro_batch, name_of(m, c->to, received),
             received->micro_batch);
  }
}

// Each channel is checked from both ends, which finds channels with receives only.
static ot_status match_messages(const matching *m, int kind, int rank) {
  const ot_group *const group = &m->schedules[rank]->group[kind];
  const call_list *const list = list_of(m, rank, kind);
  for (int64_t i = 0; i < list->count; i++) {
    const call *const c = &list->calls[i];
    if (!is_message(c->op)) continue;
    bool seen = false;
    for (int64_t k = 0; k < i && !seen; k++) {
      const call *const e = &list->calls[k];
      seen = e->op == c->op && e->from == c->from && e->to == c->to && e->tag == c->tag;
    }
    if (seen) continue;
    const channel made = {.kind = kind,
                          .from = group->ranks[c->from],
                          .to = group->ranks[c->to],
                          .from_index = c->from,
                          .to_index = c->to,
                          .tag = c->tag};
    OT_TRY(match_channel(m, &made));
  }
  return OT_OK;
}

// ---- all ranks ----

static ot_status check_members(const matching *m, int kind, int rank) {
  const ot_group *const group = &m->schedules[rank]->group[kind];
  if (group->size == 0) return OT_OK;
  for (int i = 0; i < group->size; i++) {
    const int other = group->ranks[i];
    OT_CHECK(other >= 0 && other < m->ranks, OT_BUG, "schedules: rank %d has rank %d in group %s",
             rank, other, ot_group_name((ot_group_kind)kind));
    const ot_group *const theirs = &m->schedules[other]->group[kind];
    bool same = theirs->size == group->size && theirs->index == i;
    for (int k = 0; same && k < group->size; k++) same = theirs->ranks[k] == group->ranks[k];
    OT_CHECK(same, OT_BUG, "schedules: ranks %d and %d do not agree on group %s", rank, other,
             ot_group_name((ot_group_kind)kind));
  }
  return OT_OK;
}

// Elements of a block that a rank publishes.
static int64_t published(const matching *m, int rank, int block) {
  const ot_order *const order = &m->schedules[rank]->orders[m->order];
  for (int i = 0; i < order->num_entries; i++) {
    if (order->entries[i].block != block) continue;
    const ot_task *const task = &segment_of(m, rank, i)->tasks[0];
    return task->in[0].base == OT_BASE_NONE ? 0 : ot_type_elements(&task->in[0].type);
  }
  return 0;
}

// Together ranks have each bucket, or more than once what replicas have.
static ot_status check_published(const matching *m) {
  const ot_order *const order = &m->schedules[0]->orders[m->order];
  for (int i = 0; order->kind == OT_ORDER_PUBLISH && i < order->num_entries; i++) {
    const int block = order->entries[i].block;
    const ot_task *const task = &segment_of(m, 0, i)->tasks[0];
    int64_t elements = 0;
    for (int rank = 0; rank < m->ranks; rank++) elements += published(m, rank, block);
    OT_CHECK(elements >= task->attributes.whole_elements, OT_BUG,
             "schedules: ranks publish %lld of the %lld elements of block %d", (long long)elements,
             (long long)task->attributes.whole_elements, block);
  }
  return OT_OK;
}

static ot_status match_order(matching *m) {
  m->lists = ot_arena_array(m->arena, (int64_t)m->ranks * OT_GROUP_KINDS, sizeof *m->lists);
  for (int rank = 0; rank < m->ranks; rank++) {
    const ot_order *const mine = &m->schedules[rank]->orders[m->order];
    const ot_order *const first = &m->schedules[0]->orders[m->order];
    OT_CHECK(mine->kind == first->kind && mine->micro_batches == first->micro_batches, OT_BUG,
             "schedules: order %d of rank %d differs from that of rank 0", m->order, rank);
    OT_TRY(list_rank(m, rank));
  }
  for (int rank = 0; rank < m->ranks; rank++) {
    for (int kind = 0; kind < OT_GROUP_KINDS; kind++) {
      const ot_group *const group = &m->schedules[rank]->group[kind];
      if (group->size == 0) continue;
      const int first = group->ranks[0];
      if (rank != first) OT_TRY(match_collectives(m, kind, first, rank));
      OT_TRY(match_messages(m, kind, rank));
    }
  }
  OT_TRY(check_published(m));
  return ot_schedules_check_deadlock(m->schedules, m->ranks, m->order, m->arena);
}

ot_status ot_schedules_match(const ot_schedule *const *schedules, int ranks, ot_arena *arena) {
  matching m = {.schedules = schedules, .ranks = ranks, .arena = arena};
  for (int rank = 0; rank < ranks; rank++) {
    const ot_schedule *const s = schedules[rank];
    OT_CHECK(s->rank == rank && s->ranks == ranks, OT_BUG,
             "schedules: rank %d of %d is at index %d of %d", s->rank, s->ranks, rank, ranks);
    OT_CHECK(s->num_orders == schedules[0]->num_orders, OT_BUG,
             "schedules: rank %d has %d orders, rank 0 has %d", rank, s->num_orders,
             schedules[0]->num_orders);
    for (int kind = 0; kind < OT_GROUP_KINDS; kind++) OT_TRY(check_members(&m, kind, rank));
  }
  for (m.order = 0; m.order < schedules[0]->num_orders; m.order++) OT_TRY(match_order(&m));
  return OT_OK;
}
