// SPDX-License-Identifier: Apache-2.0
// Each rank has three threads: the main thread, which walks the entries, and the gather and reduce
// lanes, which run their entries in order. A collective is identified by its index in the group,
// since all members call the same ones in the same order; a message by its index under its tag. A
// loop body is replayed once: if one iteration completes, so does the next from the same state.
#include "schedule/schedule_deadlock.h"

#include "base/text.h"
#include "ops/collective.h"

enum { WALK, GATHER, REDUCE, THREADS };

static const ot_lane lane_of[THREADS] = {OT_LANE_COMPUTE, OT_LANE_GATHER, OT_LANE_REDUCE};

// A thread of a rank: its next entry and task.
typedef struct thread {
  int entry, task;
  int open;  // index of the tensor lane's collective in flight, from 1; 0: none
  ot_group_kind open_group;
  int open_task;
} thread;

// Messages from one rank to another under one tag: numbers started at each end.
typedef struct channel {
  int to, tag;
  int sent, received;
} channel;

typedef struct replayer {
  const ot_schedule *schedule;
  const ot_order *order;
  thread threads[THREADS];
  int walked;                 // entries that the main thread has started
  int calls[OT_GROUP_KINDS];  // collectives started
  int done[THREADS];          // entries of the thread's lane before this one are complete
  int *number;                // [num_entries] index in its channel, from 1; 0: not started
  channel *channels;          // on which this rank sends
  int num_channels;
  int64_t capacity;
} replayer;

typedef struct progress {
  replayer *replayers;  // [ranks]
  int ranks;
  bool serial;
  ot_arena *arena;
} progress;

// ---- messages ----

static const ot_task *message_task(const replayer *p, int entry) {
  return &p->schedule->segments[p->order->entries[entry].segment].tasks[0];
}

// The channel of a message of `rank`; adds a new one.
static channel *channel_of(const progress *g, int rank, int entry) {
  const replayer *const p = &g->replayers[rank];
  const ot_task *const task = message_task(p, entry);
  const int other = p->schedule->group[task->attributes.group].ranks[task->attributes.peer];
  const bool sends = task->op == OT_OP_SEND;
  replayer *const sender = &g->replayers[sends ? rank : other];
  const int to = sends ? other : rank;
  for (int i = 0; i < sender->num_channels; i++) {
    channel *const c = &sender->channels[i];
    if (c->to == to && c->tag == task->attributes.tag) return c;
  }
  sender->channels = ot_arena_grow(g->arena, sender->channels, sender->num_channels,
                                   &sender->capacity, sizeof(channel));
  sender->channels[sender->num_channels] = (channel){.to = to, .tag = task->attributes.tag};
  return &sender->channels[sender->num_channels++];
}

static void start_message(const progress *g, int rank, int entry) {
  replayer *const p = &g->replayers[rank];
  channel *const c = channel_of(g, rank, entry);
  const bool sends = message_task(p, entry)->op == OT_OP_SEND;
  p->number[entry] = sends ? ++c->sent : ++c->received;
}

static bool message_done(const progress *g, int rank, int entry) {
  const channel *const c = channel_of(g, rank, entry);
  const int number = g->replayers[rank].number[entry];
  return number > 0 && c->sent >= number && c->received >= number;
}

// ---- collectives ----

static bool call_done(const progress *g, int rank, ot_group_kind kind, int number) {
  const ot_group *const group = &g->replayers[rank].schedule->group[kind];
  for (int i = 0; i < group->size; i++) {
    if (g->replayers[group->ranks[i]].calls[kind] < number) return false;
  }
  return true;
}

// Completes the open collective of the tensor lane; false if it cannot complete yet.
static bool end_open(const progress *g, int rank, thread *t) {
  if (t->open > 0 && !call_done(g, rank, t->open_group, t->open)) return false;
  t->open = 0;
  return true;
}

// Continues the entry of a thread; false if it blocks before the end.
static bool run_tasks(const progress *g, int rank, thread *t, bool *moved) {
  replayer *const p = &g->replayers[rank];
  const ot_entry *const entry = &p->order->entries[t->entry];
  const ot_segment *const segment = &p->schedule->segments[entry->segment];
  for (; t->task < segment->num_tasks; t->task++) {
    const ot_task *const task = &segment->tasks[t->task];
    const bool talks = ot_op_communicates(task->op);
    const bool waits = t->open > 0 && (talks || task->wait >= t->open_task);
    if (waits && !end_open(g, rank, t)) return false;
    if (!talks) continue;
    *moved = true;
    t->open = ++p->calls[task->attributes.group];
    t->open_group = task->attributes.group;
    t->open_task = t->task;
    // Only a collective on the tensor lane lets the thread continue.
    const bool beside = task->lane == OT_LANE_TENSOR && !g->serial;
    if (beside) continue;
    t->task++;
    if (!end_open(g, rank, t)) return false;
    t->task--;
  }
  return end_open(g, rank, t);
}

// ---- threads ----

// True if the other threads and messages that the entry waits for are complete.
static bool may_start(const progress *g, int rank, int thread_index, const ot_entry *entry) {
  const replayer *const p = &g->replayers[rank];
  const int message = entry->wait[OT_LANE_PIPELINE];
  if (thread_index == WALK && message >= 0 && !message_done(g, rank, message)) return false;
  for (int i = GATHER; i < THREADS; i++) {
    const int other = entry->wait[lane_of[i]];
    const bool pushed = entry->lane == OT_LANE_GATHER || entry->lane == OT_LANE_REDUCE;
    if (i == thread_index || (thread_index == WALK && pushed)) continue;
    if (other >= p->done[i]) return false;
  }
  return true;
}

static bool advance_walk(const progress *g, int rank, bool *moved) {
  replayer *const p = &g->replayers[rank];
  thread *const t = &p->threads[WALK];
  if (t->entry >= p->order->num_entries) return false;
  const ot_entry *const entry = &p->order->entries[t->entry];
  const bool begun = p->walked > t->entry;
  if (!begun && !may_start(g, rank, WALK, entry)) return false;
  if (!begun) *moved = true;
  p->walked = t->entry + 1;
  if (entry->lane == OT_LANE_PIPELINE) {
    start_message(g, rank, t->entry);
  } else if (entry->lane == OT_LANE_COMPUTE) {
    if (!run_tasks(g, rank, t, moved)) return false;
  } else if (g->serial) {
    const int lane = entry->lane == OT_LANE_GATHER ? GATHER : REDUCE;
    if (p->done[lane] <= t->entry) return false;
  }
  t->entry++;
  t->task = 0;
  *moved = true;
  return true;
}

// Starts the lane's next entry that the main thread has reached.
static bool advance_lane(const progress *g, int rank, int index, bool *moved) {
  replayer *const p = &g->replayers[rank];
  thread *const t = &p->threads[index];
  while (t->entry < p->walked && p->order->entries[t->entry].lane != lane_of[index]) t->entry++;
  if (t->task == 0 && t->open == 0) p->done[index] = t->entry;
  if (t->entry >= p->walked) return false;
  const ot_entry *const entry = &p->order->entries[t->entry];
  if (t->task == 0 && !may_start(g, rank, index, entry)) return false;
  if (!run_tasks(g, rank, t, moved)) return false;
  t->entry++;
  t->task = 0;
  p->done[index] = t->entry;
  *moved = true;
  return true;
}

static bool advance_rank(const progress *g, int rank) {
  bool moved = false;
  while (advance_walk(g, rank, &moved)) continue;
  for (int i = GATHER; i < THREADS; i++) {
    while (advance_lane(g, rank, i, &moved)) continue;
  }
  return moved;
}

// ---- all ranks ----

static bool ended(const replayer *p) {
  if (p->threads[WALK].entry < p->order->num_entries) return false;
  return p->done[GATHER] >= p->order->num_entries && p->done[REDUCE] >= p->order->num_entries;
}

// Where a rank is blocked.
static const char *place_of(const progress *g, int rank) {
  const replayer *const p = &g->replayers[rank];
  int index = WALK;
  while (index < REDUCE && p->threads[index].entry >= p->order->num_entries) index++;
  const thread *const t = &p->threads[index];
  const ot_entry *const entry = &p->order->entries[t->entry];
  return ot_arena_format(
      g->arena, "rank %d before entry %d (%s, block %d, micro-batch %d), task %d", rank, t->entry,
      p->schedule->segments[entry->segment].name, entry->block, entry->micro_batch, t->task);
}

static ot_status refuse(const progress *g) {
  const char *places = "";
  for (int rank = 0; rank < g->ranks; rank++) {
    if (ended(&g->replayers[rank])) continue;
    places = ot_arena_format(g->arena, "%s%s%s", places, places[0] ? "; " : "", place_of(g, rank));
  }
  return ot_fail(OT_BUG, "schedules: deadlock with %s lanes: %s",
                 g->serial ? "serial" : "concurrent", places);
}

static void begin(const progress *g, int rank, const ot_schedule *schedule, int order) {
  replayer *const p = &g->replayers[rank];
  *p = (replayer){.schedule = schedule, .order = &schedule->orders[order]};
  p->number = ot_arena_array(g->arena, p->order->num_entries + 1, sizeof(int));
}

static ot_status replay(const progress *g) {
  for (bool moved = true; moved;) {
    moved = false;
    for (int rank = 0; rank < g->ranks; rank++) moved = advance_rank(g, rank) || moved;
  }
  for (int rank = 0; rank < g->ranks; rank++) {
    if (!ended(&g->replayers[rank])) return refuse(g);
  }
  return OT_OK;
}

ot_status ot_schedules_check_deadlock(const ot_schedule *const *schedules, int ranks, int order,
                                      ot_arena *arena) {
  for (int serial = 0; serial < 2; serial++) {
    progress g = {.ranks = ranks, .serial = serial == 1, .arena = arena};
    g.replayers = ot_arena_array(arena, ranks, sizeof *g.replayers);
    for (int rank = 0; rank < ranks; rank++) begin(&g, rank, schedules[rank], order);
    OT_TRY(replay(&g));
  }
  return OT_OK;
}
