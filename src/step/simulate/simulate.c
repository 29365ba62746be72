// SPDX-License-Identifier: Apache-2.0
// Walks orders and, in each entry, the tasks of its segment: the skeleton of execute/execute.c, but
// advances the clock of a lane instead of running a kernel. Prices are computed once, at create.
//
// A lane advances as far as possible. If it needs a time that is not known yet (the end of an entry
// on another lane, another side of a message, other stages), it is retried after the others. Times
// follow from the orders alone, so the sequence of retries does not matter.
//
// The delay of an entry beyond its tasks (price.h: host time, traffic concurrent with its kernels)
// stretches its kernels, each by the same factor.
#include "simulate/simulate.h"

#include "schedule/bodies.h"
#include "simulate/link_calendar.h"
#include "simulate/price.h"
#include "simulate/price_measured.h"
#include "simulate/stage_sync.h"

// The next task of a lane.
typedef struct lane_state {
  int entry;  // num_entries at the end
  int task;   // -1: the entry still waits
  double clock_s;
  ot_entry_work work;  // work of the tasks so far
} lane_state;

typedef struct simulator {
  const ot_simulation *simulation;
  ot_arena *arena;
  ot_stage_sync *meetings;
  int stage;
  const ot_schedule *schedule;
  const ot_order *order;
  ot_group_shape shapes[OT_GROUP_KINDS];
  ot_price **price;  // [num_segments][num_tasks]; null if the order does not use the segment
  int64_t *place;    // [num_entries] index of each entry's first task among all
  bool *known;       // [num_entries] the entry is complete, at end_s
  double *end_s;
  bool *begins;    // [num_entries] the entry is the first of its block and micro-batch
  double *load_s;  // [num_entries] set on the last one: load of work on other lanes
  double item_s;   // entries of the block and micro-batch so far
  lane_state lane[OT_LANES];
  double tensor_s;        // end of the last collective on the tensor lane
  double *tensor_end_s;   // [tasks] of a compute entry: tensor_s after each
  ot_link_calendar link;  // of this rank to other hosts
  bool moved;             // some lane has advanced
  ot_timeline *timeline;
} simulator;

// A task of the order.
typedef struct place {
  int entry, task;
} place;

// ---- create ----

// If the members are not equidistant, the shape keeps the first and the last.
static ot_group_shape shape_of(const ot_group *group) {
  if (group->size < 2) return (ot_group_shape){.size = group->size};
  const int first = group->ranks[0], last = group->ranks[group->size - 1];
  return (ot_group_shape){
      .size = group->size, .first = first, .stride = (last - first) / (group->size - 1)};
}

static ot_status check_group(const simulator *s, const ot_task *task) {
  const int size = s->shapes[task->attributes.group].size;
  OT_CHECK(task->kind != OT_TASK_COLLECTIVE || size == task->attributes.group_size, OT_BUG,
           "schedule: %s is among %d ranks, its group has %d", ot_task_name(task),
           task->attributes.group_size, size);
  return OT_OK;
}

static ot_status bind_segment(simulator *s, int index) {
  if (s->price[index]) return OT_OK;
  const ot_segment *const segment = &s->schedule->segments[index];
  OT_TRY(ot_segment_check_bodies(segment));
  ot_price *const price = ot_arena_array(s->arena, segment->num_tasks + 1, sizeof *price);
  for (int i = 0; i < segment->num_tasks; i++) {
    ot_task task = segment->tasks[i];
    OT_TRY(check_group(s, &task));
    ot_price_rows(s->simulation, segment, i, &task);
    OT_TRY(ot_price_task(s->simulation, s->shapes, &task, &price[i]));
    const double times = ot_price_times(s->simulation, segment, i);
    price[i] = (ot_price){.device_s = times * price[i].device_s,
                          .host_s = times * price[i].host_s,
                          .load_s = times * price[i].load_s};
  }
  s->price[index] = price;
  return OT_OK;
}

// Time of a task without ot_entry_delay.
static double task_s(const simulator *s, const ot_price *price) {
  return ot_price_host_ahead(s->simulation) ? price->device_s : price->device_s + price->host_s;
}

static void add_work(const simulator *s, const ot_task *task, const ot_price *price,
                     ot_entry_work *work) {
  *(task->kind == OT_TASK_COLLECTIVE ? &work->exposed_s : &work->compute_s) += task_s(s, price);
  work->host_s += price->host_s;
}

// The seconds by which an entry of the gather or reduce lane slows down concurrent kernels: its
// kernels, and the load of its collectives.
static double lane_load_s(const simulator *s, int index) {
  const int segment = s->order->entries[index].segment;
  const ot_segment *const tasks = &s->schedule->segments[segment];
  double load_s = 0;
  for (int i = 0; i < tasks->num_tasks; i++) {
    const ot_price *const price = &s->price[segment][i];
    load_s += tasks->tasks[i].kind == OT_TASK_COLLECTIVE ? price->load_s : task_s(s, price);
  }
  return load_s;
}

// Whether `entry` continues the block and micro-batch of `before`: a backward after its recompute,
// or a message with the results.
static bool continues(const ot_entry *before, const ot_entry *entry) {
  if (entry->block != before->block || entry->micro_batch != before->micro_batch) return false;
  return before->phase == OT_PHASE_RECOMPUTE || entry->phase == OT_PHASE_SEND;
}

// Whether `entry` reduces gradients that entry `index` completed.
static bool completed_by(const ot_order *order, int index, const ot_entry *entry) {
  if (entry->lane != OT_LANE_REDUCE || index < 0) return false;
  const ot_entry *const work = &order->entries[index];
  if (entry->block != work->block || entry->micro_batch != work->micro_batch) return false;
  return work->phase != OT_PHASE_INPUT;
}

// Finds the gathers and reductions concurrent with the kernels of each block and micro-batch: the
// gathers of weights that it is the first to wait for (they ran during a similar block), and the
// reductions of gradients that it completes.
static void find_load(simulator *s) {
  const ot_order *const order = s->order;
  s->begins = ot_arena_array(s->arena, order->num_entries + 1, sizeof *s->begins);
  s->load_s = ot_arena_array(s->arena, order->num_entries + 1, sizeof *s->load_s);
  int last = -1, kernels = -1, gathered = -1;
  for (int i = 0; i < order->num_entries; i++) {
    const ot_entry *const entry = &order->entries[i];
    if (entry->micro_batch < 0) continue;
    if (completed_by(order, kernels, entry)) s->load_s[last] += lane_load_s(s, i);
    if (entry->lane != OT_LANE_COMPUTE) continue;
    s->begins[i] = last < 0 || !continues(&order->entries[last], entry);
    if (!s->begins[i]) {
      s->load_s[i] = s->load_s[last];
      s->load_s[last] = 0;
    }
    for (; gathered < entry->wait[OT_LANE_GATHER]; gathered++) {
      const ot_entry *const gather = &order->entries[gathered + 1];
      const bool own = gather->lane == OT_LANE_GATHER && gather->block == entry->block;
      if (own) s->load_s[i] += lane_load_s(s, gathered + 1);
    }
    last = i;
    if (entry->phase != OT_PHASE_SEND) kernels = i;
  }
}

static ot_status check_entry(const simulator *s, int index) {
  const ot_entry *const entry = &s->order->entries[index];
  const ot_segment *const segment = &s->schedule->segments[entry->segment];
  for (int lane = 0; lane < OT_LANES; lane++) {
    OT_CHECK(entry->wait[lane] < index, OT_BUG,
             "schedule: entry %d waits for entry %d, which comes later", index, entry->wait[lane]);
  }
  for (int i = 0; i < segment->num_tasks; i++) {
    const ot_task_kind kind = segment->tasks[i].kind;
    const bool message = kind == OT_TASK_SEND || kind == OT_TASK_RECEIVE;
    OT_CHECK(!message || entry->lane == OT_LANE_PIPELINE, OT_BUG,
             "schedule: entry %d (%s): %s on lane %s", index, segment->name,
             ot_task_name(&segment->tasks[i]), ot_lane_name(entry->lane));
  }
  return OT_OK;
}

// First entry of `lane` from `from` on.
static int next_entry(const simulator *s, ot_lane lane, int from) {
  while (from < s->order->num_entries && s->order->entries[from].lane != lane) from++;
  return from;
}

static void create_timeline(simulator *s, int order) {
  int64_t tasks = 0;
  int longest = 0;
  s->place = ot_arena_array(s->arena, s->order->num_entries + 1, sizeof *s->place);
  for (int i = 0; i < s->order->num_entries; i++) {
    const int count = s->schedule->segments[s->order->entries[i].segment].num_tasks;
    s->place[i] = tasks;
    tasks += count;
    if (count > longest) longest = count;
  }
  s->tensor_end_s = ot_arena_array(s->arena, longest + 1, sizeof(double));
  *s->timeline = (ot_timeline){
      .order = order, .rank = s->schedule->rank, .num_spans = tasks, .capacity = tasks};
  s->timeline->spans = ot_arena_array(s->arena, tasks + 1, sizeof *s->timeline->spans);
}

static ot_status create(simulator *s, int order) {
  s->link.arena = s->arena;
  s->order = &s->schedule->orders[order];
  for (int i = 0; i < OT_GROUP_KINDS; i++) s->shapes[i] = shape_of(&s->schedule->group[i]);
  const int num_entries = s->order->num_entries;
  s->end_s = ot_arena_array(s->arena, num_entries + 1, sizeof *s->end_s);
  s->known = ot_arena_array(s->arena, num_entries + 1, sizeof *s->known);
  s->price = ot_arena_array(s->arena, s->schedule->num_segments + 1, sizeof *s->price);
  for (int i = 0; i < num_entries; i++) {
    OT_TRY(check_entry(s, i));
    OT_TRY(bind_segment(s, s->order->entries[i].segment));
  }
  find_load(s);
  for (int lane = 0; lane < OT_LANES; lane++) {
    s->lane[lane] = (lane_state){.entry = next_entry(s, (ot_lane)lane, 0), .task = -1};
  }
  create_timeline(s, order);
  return OT_OK;
}

// ---- run: tasks ----

static const ot_task *task_at(const simulator *s, place at) {
  return &s->schedule->segments[s->order->entries[at.entry].segment].tasks[at.task];
}

static const ot_price *price_at(const simulator *s, place at) {
  return &s->price[s->order->entries[at.entry].segment][at.task];
}

static double message_s(const simulator *s, place at) {
  return ot_price_total_s(s->simulation, *price_at(s, at));
}

static void record(const simulator *s, place at, double start_s, double end_s) {
  const ot_lane lane = ot_task_lane(&s->order->entries[at.entry], task_at(s, at));
  s->timeline->spans[s->place[at.entry] + at.task] = (ot_span){.entry = at.entry,
                                                               .task = at.task,
                                                               .start_s = start_s,
                                                               .end_s = end_s,
                                                               .lane = (int32_t)lane};
  if (end_s > s->timeline->total_s) s->timeline->total_s = end_s;
}

static void run_compute(simulator *s, place at, lane_state *state) {
  const double start_s = state->clock_s;
  state->clock_s += task_s(s, price_at(s, at));
  add_work(s, task_at(s, at), price_at(s, at), &state->work);
  record(s, at, start_s, state->clock_s);
}

// `*done` is false if other stages have not arrived.
static ot_status run_collective(simulator *s, place at, lane_state *state, bool *done) {
  const ot_task *const task = task_at(s, at);
  const ot_price *const price = price_at(s, at);
  const bool on_tensor_lane = ot_task_lane(&s->order->entries[at.entry], task) == OT_LANE_TENSOR;
  double start_s = on_tensor_lane && s->tensor_s > state->clock_s ? s->tensor_s : state->clock_s;
  *done = true;
  if (ot_stage_sync_spans(s->meetings, task)) {
    OT_TRY(ot_stage_sync_arrive(s->meetings, s->stage, task, &start_s, done));
    if (!*done) return OT_OK;
  }
  double *const lane_s = on_tensor_lane ? &s->tensor_s : &state->clock_s;
  *lane_s = ot_price_crosses_hosts(s->simulation->cluster, &s->shapes[task->attributes.group])
                ? ot_link_calendar_use(&s->link, start_s, task_s(s, price))
                : start_s + task_s(s, price);
  record(s, at, start_s, *lane_s);
  if (on_tensor_lane) {
    state->work.overlapped_s += task_s(s, price);
    state->work.load_s += price->load_s;
    state->work.host_s += price->host_s;
  } else {
    add_work(s, task, price, &state->work);
  }
  return OT_OK;
}

static void start_message(simulator *s, place at, double start_s) {
  record(s, at, start_s, start_s);
  const int index = s->meetings->message_of[s->stage][s->place[at.entry] + at.task];
  if (index < 0) {
    record(s, at, start_s, start_s + message_s(s, at));
    return;
  }
  ot_message_match *const message = &s->meetings->messages[index];
  message->sides++;
  if (start_s > message->started_s) message->started_s = start_s;
  if (task_at(s, at)->kind == OT_TASK_SEND) message->price_s = message_s(s, at);
}

static ot_status run_task(simulator *s, place at, lane_state *state, bool *done) {
  *done = true;
  switch (task_at(s, at)->kind) {
    case OT_TASK_COMPUTE:
      run_compute(s, at, state);
      return OT_OK;
    case OT_TASK_COLLECTIVE:
      return run_collective(s, at, state, done);
    case OT_TASK_SEND:
    case OT_TASK_RECEIVE:
      start_message(s, at, state->clock_s);
      return OT_OK;
    case OT_TASK_REPEAT:   // takes no time; its body is priced (ot_price_times)
    case OT_TASK_PUBLISH:  // as long on all ranks, which start it together
      run_compute(s, at, state);
      return OT_OK;
    case OT_TASK_KINDS:
      break;
  }
  OT_UNREACHABLE();
}

// ---- run: entries ----

static void later(double *clock_s, double than_s) {
  if (*clock_s < than_s) *clock_s = than_s;
}

static void know(simulator *s, int entry, double end_s) {
  s->end_s[entry] = end_s;
  s->known[entry] = true;
  s->moved = true;
}

// Completes the messages of a started pipeline entry if both sides have started all of them.
static void end_messages(simulator *s, int entry) {
  const int num_tasks = s->schedule->segments[s->order->entries[entry].segment].num_tasks;
  double end_s = 0;
  for (int i = 0; i < num_tasks; i++) {
    const int index = s->meetings->message_of[s->stage][s->place[entry] + i];
    const ot_span *const span = &s->timeline->spans[s->place[entry] + i];
    if (index >= 0) {
      const ot_message_match *const message = &s->meetings->messages[index];
      if (message->sides < 2) return;
      record(s, (place){entry, i}, span->start_s, message->started_s + message->price_s);
    }
    later(&end_s, span->end_s);
  }
  know(s, entry, end_s);
}

// An entry is complete with all earlier ones of its lane, except messages.
static bool is_waited(simulator *s, int entry, double *clock_s) {
  for (int lane = 0; lane < OT_LANES; lane++) {
    const int other = s->order->entries[entry].wait[lane];
    if (other < 0) continue;
    const bool message = s->order->entries[other].lane == OT_LANE_PIPELINE;
    const bool started = other < s->lane[OT_LANE_PIPELINE].entry;
    if (message && started && !s->known[other]) end_messages(s, other);
    if (!s->known[other]) return false;
  }
  for (int lane = 0; lane < OT_LANES; lane++) {
    const int other = s->order->entries[entry].wait[lane];
    if (other >= 0) later(clock_s, s->end_s[other]);
  }
  return true;
}

// The lane waits for a collective of its entry.
static void await_tensor(lane_state *state, double until_s) {
  if (state->clock_s < until_s) state->work.exposed_s += until_s - state->clock_s;
  later(&state->clock_s, until_s);
}

// After a task of a compute entry: when earlier collectives of the tensor lane are complete.
static void note_tensor(simulator *s, place at) {
  const bool tensor = ot_task_lane(&s->order->entries[at.entry], task_at(s, at)) == OT_LANE_TENSOR;
  const double before_s = at.task > 0 ? s->tensor_end_s[at.task - 1] : 0;
  s->tensor_end_s[at.task] = tensor ? s->tensor_s : before_s;
}

// ---- run: ends of entries ----

// Time of the entry's kernels up to `until_s`, as recorded.
static double kernels_until(const simulator *s, int entry, double until_s) {
  const int num_tasks = s->schedule->segments[s->order->entries[entry].segment].num_tasks;
  double sum_s = 0;
  for (int i = 0; i < num_tasks; i++) {
    const ot_span *const span = &s->timeline->spans[s->place[entry] + i];
    if (task_at(s, (place){entry, i})->kind == OT_TASK_COLLECTIVE) continue;
    if (span->start_s >= until_s) break;
    sum_s += (span->end_s < until_s ? span->end_s : until_s) - span->start_s;
  }
  return sum_s;
}

// Stretches the kernels of the entry by `share`; later starts and ends move accordingly.
static void stretch(simulator *s, int entry, double share) {
  const int num_tasks = s->schedule->segments[s->order->entries[entry].segment].num_tasks;
  double kernels_s = 0;
  for (int i = 0; i < num_tasks; i++) {
    ot_span *const span = &s->timeline->spans[s->place[entry] + i];
    if (task_at(s, (place){entry, i})->kind != OT_TASK_COLLECTIVE) continue;
    const double before_s = kernels_until(s, entry, span->start_s);
    const double end_s = span->end_s + share * kernels_until(s, entry, span->end_s);
    record(s, (place){entry, i}, span->start_s + share * before_s, end_s);
  }
  for (int i = 0; i < num_tasks; i++) {
    ot_span *const span = &s->timeline->spans[s->place[entry] + i];
    if (task_at(s, (place){entry, i})->kind == OT_TASK_COLLECTIVE) continue;
    const double length_s = span->end_s - span->start_s;
    const double start_s = span->start_s + share * kernels_s;
    kernels_s += length_s;
    record(s, (place){entry, i}, start_s, start_s + (1 + share) * length_s);
  }
}

// Adds the delay of the lane's entry.
static void end_entry(simulator *s, lane_state *state) {
  const int entry = state->entry;
  const ot_entry_work *const work = &state->work;
  const ot_entry_delay delay = ot_price_entry_delay(s->simulation, work);
  double delay_s = delay.slower_s + delay.host_s;
  if (s->order->entries[entry].lane == OT_LANE_COMPUTE) {
    if (s->begins[entry]) s->item_s = 0;
    s->item_s += work->compute_s + work->exposed_s + delay_s;
    delay_s += ot_price_overlap_slowdown_s(s->simulation, s->item_s, s->load_s[entry]);
  }
  if (delay_s > 0 && work->compute_s > 0) stretch(s, entry, delay_s / work->compute_s);
  state->clock_s += delay_s;
  state->work = (ot_entry_work){0};
  if (state->clock_s > s->timeline->total_s) s->timeline->total_s = state->clock_s;
}

// Runs the remaining tasks of the lane's entry; `*over` is false if it must wait.
static ot_status run_tasks(simulator *s, lane_state *state, bool *over) {
  const int entry = state->entry;
  const int num_tasks = s->schedule->segments[s->order->entries[entry].segment].num_tasks;
  const bool walks = s->order->entries[entry].lane == OT_LANE_COMPUTE;
  for (*over = false; state->task < num_tasks; state->task++) {
    const place at = {entry, state->task};
    const int wait = task_at(s, at)->wait;
    if (walks && wait >= 0 && wait < state->task) await_tensor(state, s->tensor_end_s[wait]);
    bool done;
    OT_TRY(run_task(s, at, state, &done));
    if (!done) return OT_OK;
    if (walks) note_tensor(s, at);
    s->moved = true;
  }
  if (walks && num_tasks > 0) await_tensor(state, s->tensor_end_s[num_tasks - 1]);
  end_entry(s, state);
  *over = true;
  return OT_OK;
}

// Advances the lane as far as possible.
static ot_status run_lane(simulator *s, ot_lane lane) {
  lane_state *const state = &s->lane[lane];
  while (state->entry < s->order->num_entries) {
    if (state->task < 0) {
      if (!is_waited(s, state->entry, &state->clock_s)) return OT_OK;
      state->task = 0;
    }
    bool over;
    OT_TRY(run_tasks(s, state, &over));
    if (!over) return OT_OK;
    const int entry = state->entry;
    state->entry = next_entry(s, lane, entry + 1);
    state->task = -1;
    if (lane == OT_LANE_PIPELINE) {
      end_messages(s, entry);
    } else {
      know(s, entry, state->clock_s);
    }
  }
  return OT_OK;
}

// ---- run: orders ----

// Position of the stage: that of its least advanced lane, for which the others wait.
static const char *describe_stand(const simulator *s) {
  const lane_state *state = &s->lane[OT_LANE_COMPUTE];
  for (int lane = 0; lane < OT_LANES; lane++) {
    if (s->lane[lane].entry < state->entry) state = &s->lane[lane];
  }
  if (state->entry == s->order->num_entries) return NULL;
  const ot_entry *const entry = &s->order->entries[state->entry];
  const char *what = "";
  if (state->task >= 0) {
    const ot_task *const task = task_at(s, (place){state->entry, state->task});
    what = ot_arena_format(s->arena, " for the others in %s of group %s", ot_task_name(task),
                           ot_group_name(task->attributes.group));
  }
  for (int lane = 0; state->task < 0 && lane < OT_LANES; lane++) {
    const int other = entry->wait[lane];
    if (other < 0 || s->known[other]) continue;
    const int segment = s->order->entries[other].segment;
    what =
        ot_arena_format(s->arena, " for entry %d (%s)", other, s->schedule->segments[segment].name);
  }
  return ot_arena_format(s->arena, "stage %d waits at entry %d (%s, micro-batch %d)%s", s->stage,
                         state->entry, s->schedule->segments[entry->segment].name,
                         entry->micro_batch, what);
}

static ot_status check_over(const simulator *stages, int num_stages) {
  const char *text = NULL;
  for (int i = 0; i < num_stages; i++) {
    const char *const stand = describe_stand(&stages[i]);
    if (!stand) continue;
    text = text ? ot_arena_format(stages->arena, "%s; %s", text, stand) : stand;
  }
  OT_CHECK(!text, OT_BUG, "simulate: deadlock: %s", text);
  return OT_OK;
}

static ot_status run_stages(simulator *stages, int num_stages) {
  for (bool moved = true; moved;) {
    moved = false;
    for (int i = 0; i < num_stages; i++) {
      stages[i].moved = false;
      for (int lane = 0; lane < OT_LANES; lane++) OT_TRY(run_lane(&stages[i], (ot_lane)lane));
      moved = moved || stages[i].moved;
    }
  }
  OT_TRY(check_over(stages, num_stages));
  for (int i = 0; i < num_stages; i++) {
    for (int e = 0; e < stages[i].order->num_entries; e++) {
      if (!stages[i].known[e]) end_messages(&stages[i], e);
    }
  }
  return OT_OK;
}

// Adds host time between steps, and waiting for the slowest device.
static void end_step(const simulator *stages, int num_stages) {
  double end_s = 0;
  for (int i = 0; i < num_stages; i++) later(&end_s, stages[i].timeline->total_s);
  if (stages->order->kind != OT_ORDER_STEP) return;
  const double step_s = ot_price_step_s(stages->simulation, stages->schedule->ranks, end_s);
  for (int i = 0; i < num_stages; i++) stages[i].timeline->total_s += step_s - end_s;
}

static ot_status replay_orders(const ot_pipeline_replay *replay, const int *orders,
                               const ot_simulation *simulation, ot_arena *arena,
                               ot_timeline *timelines) {
  OT_TRY(ot_price_check(simulation));
  ot_stage_sync meetings;
  OT_TRY(ot_stage_sync_build(replay, orders, arena, &meetings));
  simulator *const stages = ot_arena_array(arena, replay->num_stages, sizeof *stages);
  for (int i = 0; i < replay->num_stages; i++) {
    stages[i] = (simulator){.simulation = simulation,
                            .arena = arena,
                            .meetings = &meetings,
                            .stage = i,
                            .schedule = replay->schedules[i],
                            .timeline = &timelines[i]};
    OT_TRY(create(&stages[i], orders[i]));
  }
  OT_TRY(run_stages(stages, replay->num_stages));
  end_step(stages, replay->num_stages);
  return OT_OK;
}

ot_status ot_schedule_simulate(const ot_schedule *schedule, int order,
                               const ot_simulation *simulation, ot_arena *arena,
                               ot_timeline *timeline) {
  OT_ASSERT(order >= 0 && order < schedule->num_orders);
  const ot_pipeline_replay replay = {.schedules = &schedule, .num_stages = 1};
  return replay_orders(&replay, &order, simulation, arena, timeline);
}

ot_status ot_schedules_simulate(const ot_pipeline_replay *replay, const ot_simulation *simulation,
                                ot_arena *arena, ot_timeline *timelines) {
  int *const orders = ot_arena_array(arena, replay->num_stages + 1, sizeof *orders);
  for (int i = 0; i < replay->num_stages; i++) {
    orders[i] = ot_schedule_find_order(replay->schedules[i], replay->kind, replay->micro_batches);
    OT_CHECK(orders[i] >= 0, OT_BUG, "simulate: stage %d has no order with %d micro-batches", i,
             replay->micro_batches);
  }
  return replay_orders(replay, orders, simulation, arena, timelines);
}
