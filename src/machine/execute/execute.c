// SPDX-License-Identifier: Apache-2.0
// Runs the entries of an order and the tasks of their segments. Kernels are looked up at create;
// operands are the entry's base offsets plus the arena. lanes.c runs the gather and reduce lanes.
#include "execute/execute.h"

#include <stdlib.h>

#include "base/backend_rules.h"
#include "execute/executor.h"
#include "execute/launch.h"
#include "kernels/kernels.h"
#include "ops/repeat.h"

typedef struct place {
  int entry, task;
  bool repeated;  // in a loop body: its repeat is recorded, not the task
} place;

static const ot_order *order_of(const ot_executor *executor) {
  return &executor->schedule->orders[executor->order];
}

static const ot_entry *entry_at(const ot_executor *executor, place at) {
  return &order_of(executor)->entries[at.entry];
}

static const ot_task *task_at(const ot_executor *executor, place at) {
  return &executor->schedule->segments[entry_at(executor, at)->segment].tasks[at.task];
}

static const ot_bound_task *bound_at(const ot_executor *executor, place at) {
  return &executor->bound[entry_at(executor, at)->segment][at.task];
}

// ---- run: tasks ----

static int64_t open_span(ot_executor *executor, ot_lane lane, place at) {
  if (at.repeated) return -1;
  ot_stream *const stream = lane == OT_LANE_TENSOR
                                ? executor->streams.lane[lane]
                                : ot_streams_of(&executor->streams, entry_at(executor, at));
  return ot_recorder_open(&executor->recorder, stream, lane, at.entry, at.task);
}

// Runs the task and those that join it; returns how many.
static int run_compute(ot_executor *executor, place at) {
  const ot_entry *const entry = entry_at(executor, at);
  const ot_task *const task = task_at(executor, at);
  const ot_bound_task *const bound = bound_at(executor, at);
  if (ot_leave_skips(&executor->leave, entry, task)) return bound->count;
  const ot_launch launch = {.entry = entry,
                            .tasks = task,
                            .bound = bound,
                            .memory = executor->memory,
                            .context = executor->streams.context[entry->lane],
                            .progress = ot_leave_progress(&executor->leave, entry->lane)};
  const int64_t span = open_span(executor, entry->lane, at);
  ot_launch_run(&launch);
  ot_recorder_close(&executor->recorder, entry->lane, span);
  return bound->count;
}

// Prepends the entry and the task to the message of a failed communication.
static ot_status add_location(const ot_executor *executor, place at, ot_status status) {
  if (status == OT_OK) return OT_OK;
  const ot_entry *const entry = entry_at(executor, at);
  ot_failure failure = {.status = OT_OK};
  ot_failure_take(&failure, status);
  ot_fail(status, "entry %d (%s, block %d, micro-batch %d), task %d (%s): %s", at.entry,
          executor->schedule->segments[entry->segment].name, entry->block, entry->micro_batch,
          at.task, ot_task_name(task_at(executor, at)), failure.message);
  return failure.hint[0] != '\0' ? ot_fail_hint(status, "%s", failure.hint) : status;
}

// Kernels write splits of an all-to-all-v to the arena; the communicator reads them on the host.
static ot_status fetch_splits(ot_executor *executor, int64_t workspace_bytes, ot_comm_call *call) {
  if (call->kind != OT_COMM_ALL_TO_ALL_V) return OT_OK;
  const int ranks = ot_comm_group_size(executor->options.comm, call->group);
  OT_TRY(ot_streams_wait(&executor->streams));
  OT_TRY(ot_bind_read_splits(executor->device, executor->memory, ranks, executor->splits,
                             &call->sends));
  int32_t *const second = executor->splits + (int64_t)ranks * call->sends.runs * 2;
  OT_TRY(ot_bind_read_splits(executor->device, executor->memory, ranks, second, &call->receives));
  const int64_t needed = ot_comm_workspace(call, ranks);
  OT_CHECK(needed <= workspace_bytes, OT_BUG, "schedule: %s needs %lld bytes, it has %lld",
           call->name, (long long)needed, (long long)workspace_bytes);
  return OT_OK;
}

// `event`: of the call, if it is queued on `stream`.
static ot_status make_call(ot_executor *executor, place at, ot_stream *stream, ot_event *event,
                           ot_comm_call *call) {
  *call = ot_bind_call(entry_at(executor, at), task_at(executor, at), executor->memory,
                       bound_at(executor, at)->name);
  call->discarded = ot_leave_discards(&executor->leave, at.entry);
  if (!executor->streams.queued) return OT_OK;
  call->stream = stream;
  call->event = event;
  return fetch_splits(executor, task_at(executor, at)->workspace_bytes, call);
}

// Waits for the collective of the tensor lane, if one is in flight.
static ot_status end_tensor(ot_executor *executor) {
  ot_tensor_call *const t = &executor->tensor;
  if (!t->under_way) return OT_OK;
  t->under_way = false;
  const ot_status status = ot_comm_wait(executor->options.comm, &t->request);
  ot_recorder_close(&executor->recorder, OT_LANE_TENSOR, t->span);
  OT_TRY(add_location(executor, (place){.entry = t->entry, .task = t->task}, status));
  return ot_streams_join(&executor->streams);
}

static ot_status start_tensor(ot_executor *executor, place at) {
  ot_tensor_call *const t = &executor->tensor;
  const ot_streams *const streams = &executor->streams;
  ot_comm_call call;
  OT_TRY(end_tensor(executor));
  OT_TRY(ot_streams_fork(streams));
  OT_TRY(
      make_call(executor, at, streams->lane[OT_LANE_TENSOR], streams->call[OT_LANE_TENSOR], &call));
  t->under_way = true;
  t->entry = at.entry;
  t->task = at.task;
  t->span = open_span(executor, OT_LANE_TENSOR, at);
  ot_comm_start(executor->options.comm, &call, &t->request);
  return executor->options.overlap ? OT_OK : end_tensor(executor);
}

static ot_status run_collective(ot_executor *executor, place at) {
  const ot_lane lane = ot_task_lane(entry_at(executor, at), task_at(executor, at));
  if (lane == OT_LANE_TENSOR) return start_tensor(executor, at);
  const ot_streams *const streams = &executor->streams;
  ot_comm_call call;
  OT_TRY(make_call(executor, at, streams->lane[lane], streams->call[lane], &call));
  const int64_t span = open_span(executor, lane, at);
  const ot_status status = ot_comm_run(executor->options.comm, &call);
  ot_recorder_close(&executor->recorder, lane, span);
  return add_location(executor, at, status);
}

static ot_status start_message(ot_executor *executor, place at) {
  const ot_streams *const streams = &executor->streams;
  ot_event *const event =
      streams->queued ? ot_streams_message(streams, executor->order, at.entry, at.task) : NULL;
  ot_comm_call call;
  OT_TRY(make_call(executor, at, ot_streams_of(streams, entry_at(executor, at)), event, &call));
  ot_mailbox_start(&executor->mailbox, at.entry, at.task, &call);
  return OT_OK;
}

static ot_status run_publish(ot_executor *executor, place at) {
  const ot_executor_publish *const to = executor->options.publish;
  const int64_t span = open_span(executor, OT_LANE_GATHER, at);
  const ot_status status = to->call(to->context, entry_at(executor, at)->block);
  ot_recorder_close(&executor->recorder, OT_LANE_GATHER, span);
  return status;
}

static ot_status run_task(ot_executor *executor, place at) {
  switch (task_at(executor, at)->kind) {
    case OT_TASK_COMPUTE:
      run_compute(executor, at);
      return OT_OK;
    case OT_TASK_COLLECTIVE:
      return run_collective(executor, at);
    case OT_TASK_SEND:
    case OT_TASK_RECEIVE:
      return start_message(executor, at);
    case OT_TASK_PUBLISH:
      return run_publish(executor, at);
    case OT_TASK_REPEAT:  // handled by run_entry; bodies do not nest
    case OT_TASK_KINDS:
      break;
  }
  OT_UNREACHABLE();
}

// The list order satisfies all waits between tasks except those for the tensor lane.
static ot_status wait_for_task(ot_executor *executor, place at) {
  const ot_tensor_call *const t = &executor->tensor;
  const bool walks = entry_at(executor, at)->lane == OT_LANE_COMPUTE;
  const bool waits = walks && t->under_way && t->task <= task_at(executor, at)->wait;
  return waits ? end_tensor(executor) : OT_OK;
}

// One iteration; ends with its tensor-lane collective complete.
static ot_status run_body(ot_executor *executor, place repeat) {
  const int last = repeat.task + task_at(executor, repeat)->attributes.repeated;
  for (int i = repeat.task + 1; i <= last; i++) {
    const place at = {.entry = repeat.entry, .task = i, .repeated = true};
    OT_TRY(wait_for_task(executor, at));
    OT_TRY(run_task(executor, at));
  }
  return end_tensor(executor);
}

static int64_t place_of(const ot_executor *executor, place at, const ot_operand *operand) {
  return entry_at(executor, at)->base[operand->base] + operand->offset;
}

static ot_status run_rounds(ot_executor *executor, place at) {
  enum { MOST_ROUNDS = 1 << 20 };
  const ot_task *const task = task_at(executor, at);
  int32_t rounds = 0;
  OT_TRY(ot_streams_wait(&executor->streams));
  ot_executor_read(executor, place_of(executor, at, &task->in[OT_REPEAT_COUNT]), &rounds,
                   sizeof rounds);
  if (rounds < 0 || rounds > MOST_ROUNDS) {
    return add_location(executor, at,
                        ot_fail(OT_BUG, "%d iterations, at most %d", rounds, MOST_ROUNDS));
  }
  const int64_t counter = place_of(executor, at, &task->out[OT_REPEAT_INDEX]);
  for (int32_t round = 1; round < rounds; round++) {
    OT_TRY(ot_streams_wait(&executor->streams));
    ot_executor_write(executor, counter, &round, sizeof round);
    OT_TRY(run_body(executor, at));
  }
  return OT_OK;
}

static ot_status run_repeat(ot_executor *executor, place at) {
  const int64_t span = open_span(executor, OT_LANE_COMPUTE, at);
  const ot_status status = run_rounds(executor, at);
  ot_recorder_close(&executor->recorder, OT_LANE_COMPUTE, span);
  return status;
}

static void run_kernels(ot_executor *executor, place at, int count) {
  for (const int end = at.task + count; at.task < end;) at.task += run_compute(executor, at);
}

// `length` kernels as one graph, or kernel by kernel where there is none.
static ot_status run_piece(ot_executor *executor, place at, ot_piece *piece, int length) {
  ot_stream *const stream = ot_streams_of(&executor->streams, entry_at(executor, at));
  if (piece->has_run && !piece->captured && !piece->refused) {
    OT_TRY(ot_stream_begin_capture(stream));
    run_kernels(executor, at, length);
    OT_TRY(ot_stream_end_capture(stream, &piece->captured));
    piece->refused = !piece->captured;
  }
  piece->has_run = true;
  if (piece->captured) return ot_stream_launch(stream, piece->captured);
  run_kernels(executor, at, length);
  return OT_OK;
}

// Runs the task and those that go with it; returns in *count how many.
static ot_status run_tasks(ot_executor *executor, place at, int *count) {
  const ot_task *const task = task_at(executor, at);
  ot_piece *const piece =
      ot_pieces_at(&executor->pieces, executor->order, at.entry, at.task, count);
  if (piece && !executor->recorder.on && !executor->leave.left)
    return run_piece(executor, at, piece, *count);
  const bool repeats = task->kind == OT_TASK_REPEAT;
  *count = repeats ? 1 + (int)task->attributes.repeated : bound_at(executor, at)->count;
  return repeats ? run_repeat(executor, at) : run_task(executor, at);
}

static ot_status run_entry(ot_executor *executor, int entry) {
  const ot_segment *const segment =
      &executor->schedule->segments[order_of(executor)->entries[entry].segment];
  for (int i = 0, count = 0; i < segment->num_tasks; i += count) {
    const place at = {.entry = entry, .task = i};
    OT_TRY(wait_for_task(executor, at));
    OT_TRY(run_tasks(executor, at, &count));
  }
  const bool walks = order_of(executor)->entries[entry].lane == OT_LANE_COMPUTE;
  return walks ? end_tensor(executor) : OT_OK;
}

// ---- run: entries ----

static ot_status wait_for_message(ot_executor *executor, int entry) {
  const ot_status status = ot_mailbox_wait(&executor->mailbox, entry);
  OT_TRY(add_location(executor, (place){.entry = entry}, status));
  const bool held = executor->guard && ot_guard_holds(executor->guard, entry);
  return held ? ot_guard_after(executor->guard, entry) : OT_OK;
}

// Waits on lane `self` for the dependencies of `entry` on lanes that have threads.
static ot_status wait_for_lanes(ot_executor *executor, ot_lane self, const ot_entry *entry) {
  static const ot_lane concurrent[] = {OT_LANE_GATHER, OT_LANE_REDUCE};
  for (int i = 0; i < OT_COUNT(concurrent); i++) {
    const int other = entry->wait[concurrent[i]];
    if (other < 0 || concurrent[i] == self) continue;
    OT_TRY(ot_lanes_wait(executor->lanes, self, concurrent[i], other));
  }
  return OT_OK;
}

// Between what it waits for on other lanes and what waits for it.
static ot_status queue_entry(ot_executor *executor, int entry) {
  OT_TRY(ot_streams_enter(&executor->streams, executor->order, entry));
  OT_TRY(run_entry(executor, entry));
  return ot_streams_leave(&executor->streams, executor->order, entry);
}

static ot_status run_on_lane(void *context, ot_lane lane, int entry) {
  ot_executor *const executor = context;
  OT_TRY(ot_device_bind(executor->device));
  OT_TRY(wait_for_lanes(executor, lane, &order_of(executor)->entries[entry]));
  return queue_entry(executor, entry);
}

static ot_status push(ot_executor *executor, int index, ot_lane lane) {
  ot_lanes_push(executor->lanes, lane, index);
  if (executor->options.overlap) return OT_OK;
  OT_TRY(ot_lanes_wait(executor->lanes, OT_LANE_COMPUTE, lane, index));
  return executor->guard ? ot_guard_after(executor->guard, index) : OT_OK;
}

static ot_status spoil_norms(ot_executor *executor) {
  const ot_region *const squares = ot_schedule_region(executor->schedule, "squares");
  OT_TRY(ot_streams_wait(&executor->streams));
  ot_executor_fill(executor, squares->offset, 0xff, squares->bytes);  // NaN
  return ot_failure_repeat(executor->copies);
}

// Earlier compute entries are done: this thread ran them.
static ot_status walk_entry(ot_executor *executor, int index) {
  const ot_entry *const entry = &order_of(executor)->entries[index];
  const int message = entry->wait[OT_LANE_PIPELINE];
  if (executor->pause.call && !executor->paused && entry->phase == executor->pause.phase) {
    executor->paused = true;
    OT_TRY(ot_streams_wait(&executor->streams));
    executor->pause.call(executor->pause.context);
  }
  if (message >= 0) OT_TRY(wait_for_message(executor, message));
  if (entry->lane == OT_LANE_GATHER || entry->lane == OT_LANE_REDUCE) {
    return push(executor, index, entry->lane);
  }
  OT_TRY(wait_for_lanes(executor, OT_LANE_COMPUTE, entry));
  if (ot_leave_spoils(&executor->leave, entry)) OT_TRY(spoil_norms(executor));
  OT_TRY(queue_entry(executor, index));
  if (executor->recorder.on) ot_mailbox_poll(&executor->mailbox);
  if (!executor->guard) return OT_OK;
  if (entry->lane == OT_LANE_COMPUTE) return ot_guard_after(executor->guard, index);
  ot_guard_hold(executor->guard, index);
  return OT_OK;
}

static ot_status walk(ot_executor *executor) {
  for (int i = 0; i < order_of(executor)->num_entries; i++) OT_TRY(walk_entry(executor, i));
  return OT_OK;
}

// Waits for all work in flight, failed or not, because it uses memory of the executor.
static ot_status finish(ot_executor *executor, ot_status status) {
  ot_failure first = {.status = OT_OK};
  ot_failure_take(&first, status);
  if (status != OT_OK && executor->lanes) ot_lanes_drop(executor->lanes, status);
  // Other ranks cannot learn of a failure that no communication reported.
  if (status == OT_BUG && executor->options.comm) ot_comm_fail(executor->options.comm, status);
  ot_failure_take(&first, end_tensor(executor));
  const ot_status messages = ot_mailbox_finish(&executor->mailbox);
  ot_failure_take(&first,
                  add_location(executor, (place){.entry = executor->mailbox.failed}, messages));
  if (executor->lanes) ot_failure_take(&first, ot_lanes_finish(executor->lanes));
  ot_failure_take(&first, ot_streams_synchronize(&executor->streams));
  ot_cores_release(&executor->cores);
  return ot_failure_repeat(&first);
}

ot_status ot_executor_run(ot_executor *executor, int order) {
  const ot_backend_rules *const rules = ot_backend_rules_of(executor->schedule->backend);
  const bool timed = !rules->queued || executor->options.events;
  OT_TRY(ot_failure_repeat(executor->copies));
  OT_TRY(ot_device_bind(executor->device));
  executor->order = executor->timeline.order = order;
  executor->paused = false;
  ot_recorder_begin(&executor->recorder, executor->options.trace && timed);
  ot_mailbox_begin(&executor->mailbox);
  if (executor->lanes) ot_lanes_begin(executor->lanes);
  if (executor->guard) ot_guard_begin(executor->guard, order);
  ot_leave_begin(&executor->leave, order_of(executor));
  if (rules->host) ot_cores_bind(&executor->cores);
  OT_TRY(finish(executor, walk(executor)));
  return ot_recorder_finish(&executor->recorder, &executor->timeline);
}

void ot_executor_set_pause(ot_executor *executor, const ot_executor_pause *pause) {
  executor->pause = pause ? *pause : (ot_executor_pause){0};
}

void ot_executor_set_leave(ot_executor *executor, const ot_executor_leave *leave) {
  executor->leave.options = *leave;
}

bool ot_executor_has_left(const ot_executor *executor) { return executor->leave.left; }

// ---- create ----

static ot_status create_lanes(ot_executor *executor) {
  ot_lanes_options options = {
      .comm = executor->options.comm, .run = run_on_lane, .context = executor};
  return ot_lanes_count(executor->schedule, &options) ? ot_lanes_create(&options, &executor->lanes)
                                                      : OT_OK;
}

static ot_status run_setup(ot_executor *executor) {
  const int setup = ot_schedule_find_order(executor->schedule, OT_ORDER_SETUP, 0);
  return setup < 0 ? OT_OK : ot_executor_run(executor, setup);
}

static ot_status create(ot_executor *executor) {
  const ot_schedule *const schedule = executor->schedule;
  OT_TRY(ot_device_create(schedule->backend, executor->options.ordinal, &executor->device));
  ot_arena arena = ot_heap_arena_create(&executor->heap);
  OT_TRY(ot_streams_create(schedule, executor->device, executor->options.comm, &arena,
                           &executor->streams));
  // Making a graph may wait for the GPU, whose work may be NCCL's and wait for another rank.
  if (executor->streams.queued && !executor->options.no_graphs &&
      ot_comm_nccl_version(executor->options.comm) == 0) {
    ot_pieces_create(schedule, &arena, &executor->pieces);
  }
  executor->transfers = ot_arena_array(&arena, 1, sizeof *executor->transfers);
  executor->copies = ot_arena_array(&arena, 1, sizeof *executor->copies);
  executor->splits = ot_arena_array(&arena, ot_bind_most_splits(schedule) + 1, sizeof(int32_t));
  OT_TRY(ot_bind(schedule, executor->options.comm, &arena, &executor->bound));
  ot_recorder_create(schedule, &arena, &executor->recorder, &executor->timeline);
  if (executor->options.events) {
    ot_stream *const stream = executor->streams.lane[OT_LANE_COMPUTE];
    OT_TRY(ot_recorder_use_events(&executor->recorder, executor->device, stream, &arena));
  }
  ot_mailbox_create(schedule, executor->options.comm, &executor->recorder, &arena,
                    &executor->mailbox);
  OT_TRY(create_lanes(executor));
  ot_leave_create(schedule, &executor->leave);
  void *memory = NULL;
  OT_TRY(ot_device_allocate(executor->device, schedule->arena_bytes, &memory));
  executor->memory = memory;
  executor->scalars = ot_schedule_region(schedule, "scalars")->offset;
  if (executor->options.poison) {
    OT_ASSERT(ot_backend_rules_of(schedule->backend)->host);
    executor->options.overlap = false;
    OT_TRY(ot_guard_create(schedule, executor->memory, &executor->guard));
  }
  return run_setup(executor);
}

ot_status ot_executor_create(const ot_schedule *schedule, const ot_executor_options *options,
                             ot_executor **executor) {
  *executor = calloc(1, sizeof **executor);
  OT_CHECK(*executor, OT_ENVIRONMENT, "executor: out of memory");
  (*executor)->schedule = schedule;
  (*executor)->options = *options;
  (*executor)->cores =
      (ot_core_binding){.rank = options->comm ? ot_comm_local_rank(options->comm) : 0,
                        .ranks = options->comm ? ot_comm_local_size(options->comm) : 1,
                        .threads = schedule->threads};
  const ot_status status = create(*executor);
  if (status != OT_OK) ot_executor_destroy(executor);
  return status;
}

void ot_executor_destroy(ot_executor **executor) {
  if (!executor || !*executor) return;
  ot_executor *const e = *executor;
  ot_lanes_destroy(&e->lanes);
  ot_cores_destroy(&e->cores);
  void *memory = e->memory;
  if (e->device) ot_device_release(e->device, &memory, e->schedule->arena_bytes);
  ot_guard_destroy(&e->guard);
  ot_pieces_destroy(&e->pieces);
  ot_recorder_destroy(&e->recorder);
  ot_streams_destroy(&e->streams);
  ot_heap_release(&e->heap);
  ot_device_destroy(&e->device);
  free(e);
  *executor = NULL;
}

ot_executor_graphs ot_executor_count_graphs(const ot_executor *executor) {
  ot_executor_graphs count = {0};
  ot_pieces_count(&executor->pieces, &count.captured, &count.refused);
  return count;
}

static void *context_of(const ot_executor *e) { return e->streams.context[OT_LANE_COMPUTE]; }

const char *ot_executor_print_algorithms(const ot_executor *executor, ot_arena *arena) {
  return ot_kernel_algorithms_print(executor->schedule->backend, context_of(executor), arena);
}

const char *ot_executor_read_algorithms(ot_executor *executor, const char *text, ot_arena *arena) {
  if (ot_device_bind(executor->device) != OT_OK) return ot_fail_message();
  ot_pieces_forget(&executor->pieces);
  return ot_kernel_algorithms_read(executor->schedule->backend, context_of(executor), text, arena);
}

void ot_executor_refused_algorithms(const ot_executor *executor, int *own, int *replaced) {
  ot_kernel_algorithms_refused(executor->schedule->backend, context_of(executor), own, replaced);
}

const ot_timeline *ot_executor_timeline(const ot_executor *executor) {
  return executor->options.trace ? &executor->timeline : NULL;
}

void ot_executor_set_trace(ot_executor *executor, bool on) { executor->options.trace = on; }

ot_status ot_executor_set_events(ot_executor *executor, bool on) {
  if (!ot_backend_rules_of(executor->schedule->backend)->queued) return OT_OK;
  executor->options.events = on;
  if (!on || executor->recorder.stream) return OT_OK;
  ot_arena arena = ot_heap_arena_create(&executor->heap);
  return ot_recorder_use_events(&executor->recorder, executor->device,
                                executor->streams.lane[OT_LANE_COMPUTE], &arena);
}

int64_t ot_executor_touched_bytes(const ot_executor *executor) {
  return executor->guard ? ot_guard_touched_bytes(executor->guard) : 0;
}
