// SPDX-License-Identifier: Apache-2.0
// The i-th send with a tag from one stage to another matches the i-th receive.
#include "simulate/stage_sync.h"

#include "base/sort.h"

// One side of a message.
typedef struct side {
  int sender, receiver, tag;
  bool receives;
  int stage, entry, task, place;  // place: index among the tasks of the order
  int64_t bytes;
} side;

typedef struct side_list {
  side *sides;
  int64_t count, capacity;
} side_list;

static const ot_order *order_of(const ot_stage_sync *m, int stage) {
  return &m->replay->schedules[stage]->orders[m->orders[stage]];
}

static void add_side(side_list *list, ot_arena *arena, side added, const ot_task *task) {
  const int peer = task->attributes.peer;
  added.receives = task->kind == OT_TASK_RECEIVE;
  added.sender = added.receives ? peer : added.stage;
  added.receiver = added.receives ? added.stage : peer;
  added.tag = task->attributes.tag;
  added.bytes = ot_type_bytes(added.receives ? &task->out[0].type : &task->in[0].type);
  list->sides =
      ot_arena_grow(arena, list->sides, list->count, &list->capacity, sizeof *list->sides);
  list->sides[list->count++] = added;
}

static void list_stage(ot_stage_sync *m, int stage, ot_arena *arena, side_list *list) {
  const ot_order *const order = order_of(m, stage);
  const ot_schedule *const schedule = m->replay->schedules[stage];
  int place = 0;
  for (int i = 0; i < order->num_entries; i++) {
    const ot_segment *const segment = &schedule->segments[order->entries[i].segment];
    for (int k = 0; k < segment->num_tasks; k++, place++) {
      const ot_task_kind kind = segment->tasks[k].kind;
      if (kind != OT_TASK_SEND && kind != OT_TASK_RECEIVE) continue;
      add_side(list, arena, (side){.stage = stage, .entry = i, .task = k, .place = place},
               &segment->tasks[k]);
    }
  }
  m->message_of[stage] = ot_arena_array(arena, place + 1, sizeof(int));
  for (int i = 0; i < place; i++) m->message_of[stage][i] = -1;
}

static int compare_sides(const void *a, const void *b, const void *context) {
  (void)context;
  const side *const x = a, *const y = b;
  if (x->sender != y->sender) return x->sender < y->sender ? -1 : 1;
  if (x->receiver != y->receiver) return x->receiver < y->receiver ? -1 : 1;
  if (x->tag != y->tag) return x->tag < y->tag ? -1 : 1;
  return (int)x->receives - (int)y->receives;
}

static bool is_alike(const side *a, const side *b) {
  return a->sender == b->sender && a->receiver == b->receiver && a->tag == b->tag;
}

static const char *name_of(const ot_stage_sync *m, const side *s) {
  const ot_entry *const entry = &order_of(m, s->stage)->entries[s->entry];
  return m->replay->schedules[s->stage]->segments[entry->segment].name;
}

static ot_status fail_alone(const ot_stage_sync *m, const side *s) {
  const int other = s->receives ? s->sender : s->receiver;
  return ot_fail(OT_BUG, "stage %d, entry %d (%s): %s tag %d %s stage %d, which has no %s for it",
                 s->stage, s->entry, name_of(m, s), s->receives ? "receives" : "sends", s->tag,
                 s->receives ? "from" : "to", other, s->receives ? "send" : "receive");
}

// Matches the sides [0, count) of one sender, receiver and tag; sends come before receives.
static ot_status pair_alike(ot_stage_sync *m, const side *sides, int64_t count, int *next) {
  int64_t sends = 0;
  while (sends < count && !sides[sends].receives) sends++;
  const int64_t receives = count - sends;
  if (sends > receives) return fail_alone(m, &sides[receives]);
  if (receives > sends) return fail_alone(m, &sides[2 * sends]);
  for (int64_t i = 0; i < sends; i++) {
    const side *const sent = &sides[i], *const received = &sides[sends + i];
    OT_CHECK(sent->bytes == received->bytes, OT_BUG,
             "stage %d, entry %d (%s) sends %lld bytes, stage %d, entry %d (%s) receives %lld",
             sent->stage, sent->entry, name_of(m, sent), (long long)sent->bytes, received->stage,
             received->entry, name_of(m, received), (long long)received->bytes);
    m->message_of[sent->stage][sent->place] = *next;
    m->message_of[received->stage][received->place] = (*next)++;
  }
  return OT_OK;
}

static ot_status pair_messages(ot_stage_sync *m, ot_arena *arena) {
  side_list list = {0};
  for (int stage = 0; stage < m->replay->num_stages; stage++) list_stage(m, stage, arena, &list);
  if (m->replay->num_stages == 1) return OT_OK;
  ot_sort(list.sides, list.count, sizeof *list.sides, (ot_ordering){compare_sides, NULL}, arena);
  int next = 0;
  for (int64_t i = 0, end; i < list.count; i = end) {
    for (end = i; end < list.count && is_alike(&list.sides[i], &list.sides[end]);) end++;
    OT_TRY(pair_alike(m, &list.sides[i], end - i, &next));
  }
  m->messages = ot_arena_array(arena, next + 1, sizeof *m->messages);
  return OT_OK;
}

static ot_status check_stages(const ot_pipeline_replay *replay) {
  for (int i = 0; replay->num_stages > 1 && i < replay->num_stages; i++) {
    const ot_group *const group = &replay->schedules[i]->group[OT_GROUP_STAGES];
    OT_CHECK(group->size == replay->num_stages && group->index == i, OT_BUG,
             "simulate: schedule %d of %d belongs to stage %d of %d", i, replay->num_stages,
             group->index, group->size);
  }
  return OT_OK;
}

ot_status ot_stage_sync_build(const ot_pipeline_replay *replay, const int *orders, ot_arena *arena,
                              ot_stage_sync *meetings) {
  static const ot_group_kind over_stages[] = {OT_GROUP_WORLD, OT_GROUP_STAGES, OT_GROUP_TIED};
  *meetings = (ot_stage_sync){.replay = replay, .orders = orders};
  OT_TRY(check_stages(replay));
  meetings->message_of = ot_arena_array(arena, replay->num_stages, sizeof(int *));
  for (int i = 0; replay->num_stages > 1 && i < OT_COUNT(over_stages); i++) {
    meetings->arrivals[over_stages[i]] =
        ot_arena_array(arena, replay->num_stages, sizeof(ot_arrival));
  }
  return pair_messages(meetings, arena);
}

// ---- collectives ----

bool ot_stage_sync_spans(const ot_stage_sync *meetings, const ot_task *task) {
  return meetings->arrivals[task->attributes.group] != NULL;
}

static bool is_member(const ot_stage_sync *m, int stage, ot_group_kind kind) {
  return m->replay->schedules[stage]->group[kind].size > 1;
}

static bool all_wait(const ot_stage_sync *m, ot_group_kind kind, double *last_s) {
  *last_s = 0;
  for (int i = 0; i < m->replay->num_stages; i++) {
    const ot_arrival *const arrival = &m->arrivals[kind][i];
    if (!is_member(m, i, kind)) continue;
    if (arrival->state != OT_ARRIVAL_WAITS) return false;
    if (arrival->ready_s > *last_s) *last_s = arrival->ready_s;
  }
  return true;
}

static ot_status check_alike(const ot_stage_sync *m, int stage, const ot_task *task) {
  const ot_group_kind kind = task->attributes.group;
  for (int i = 0; i < m->replay->num_stages; i++) {
    const ot_task *const other = m->arrivals[kind][i].task;
    if (!is_member(m, i, kind) || m->arrivals[kind][i].state != OT_ARRIVAL_WAITS) continue;
    const int64_t mine = ot_type_bytes(&task->in[0].type);
    const int64_t theirs = ot_type_bytes(&other->in[0].type);
    OT_CHECK(other->op == task->op && theirs == mine, OT_BUG,
             "stage %d reaches %s of %lld bytes in group %s, stage %d reaches %s of %lld", stage,
             ot_task_name(task), (long long)mine, ot_group_name(kind), i, ot_task_name(other),
             (long long)theirs);
  }
  return OT_OK;
}

ot_status ot_stage_sync_arrive(ot_stage_sync *meetings, int stage, const ot_task *task,
                               double *ready_s, bool *all) {
  const ot_group_kind kind = task->attributes.group;
  ot_arrival *const arrivals = meetings->arrivals[kind];
  if (arrivals[stage].state == OT_ARRIVAL_NONE) {
    OT_TRY(check_alike(meetings, stage, task));
    arrivals[stage] = (ot_arrival){OT_ARRIVAL_WAITS, *ready_s, task};
    double last_s;
    if (all_wait(meetings, kind, &last_s)) {
      for (int i = 0; i < meetings->replay->num_stages; i++) {
        if (!is_member(meetings, i, kind)) continue;
        arrivals[i].state = OT_ARRIVAL_GOES;
        arrivals[i].ready_s = last_s;
      }
    }
  }
  OT_CHECK(arrivals[stage].task == task, OT_BUG,
           "stage %d is in two collectives of group %s at once", stage, ot_group_name(kind));
  *all = arrivals[stage].state == OT_ARRIVAL_GOES;
  if (!*all) return OT_OK;
  *ready_s = arrivals[stage].ready_s;
  arrivals[stage].state = OT_ARRIVAL_NONE;
  return OT_OK;
}
