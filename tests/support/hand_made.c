// SPDX-License-Identifier: Apache-2.0
// Offsets are absolute: all bases are 0.
#include "support/hand_made.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "ops/repeat.h"

enum {
  PLACE_BYTES = HAND_N * 8,
  SCALAR_BYTES = 1024,
  ROUNDS = 512,                                        // loop counters, among the scalars
  STAGING = SCALAR_BYTES + HAND_PLACES * PLACE_BYTES,  // workspace, one slot per instruction
  LONG = STAGING + HAND_ENTRIES * PLACE_BYTES,
  LONG_ELEMENTS = 1 << 16,
  ARENA_BYTES = LONG + OT_LANES * LONG_ELEMENTS * 8,
};

void hand_create(hand_made *h, int rank, int ranks) {
  static const ot_group_kind groups[] = {OT_GROUP_WORLD, OT_GROUP_TENSOR, OT_GROUP_STAGES,
                                         OT_GROUP_GATHER, OT_GROUP_SHARD};
  *h = (hand_made){.regions = {{.name = "scalars", .persistent = true, .bytes = SCALAR_BYTES},
                               {.name = "batch",
                                .order = OT_ORDER_STEP,
                                .offset = SCALAR_BYTES,
                                .bytes = HAND_INPUTS * PLACE_BYTES}}};
  h->arena = ot_heap_arena_create(&h->heap);
  h->order = (ot_order){.kind = OT_ORDER_STEP, .micro_batches = 1, .entries = h->entries};
  h->schedule = (ot_schedule){.rank = rank,
                              .ranks = ranks,
                              .threads = 1,
                              .compute = OT_F64,
                              .segments = h->segments,
                              .num_orders = 1,
                              .orders = &h->order,
                              .num_regions = OT_COUNT(h->regions),
                              .regions = h->regions,
                              .arena_bytes = ARENA_BYTES};
  for (int i = 0; i < ranks; i++) h->ranks[i] = i;
  for (int i = 0; ranks > 1 && i < OT_COUNT(groups); i++) {
    h->schedule.group[groups[i]] = (ot_group){.size = ranks, .index = rank, .ranks = h->ranks};
  }
}

void hand_destroy(hand_made *h) { ot_heap_release(&h->heap); }

int hand_entry(hand_made *h, ot_lane lane, const char *name) {
  const int index = h->order.num_entries++;
  h->schedule.num_segments = h->order.num_entries;
  assert_true(index < HAND_ENTRIES);
  static const ot_phase phases[] = {
      [OT_LANE_COMPUTE] = OT_PHASE_FORWARD,
      [OT_LANE_GATHER] = OT_PHASE_GATHER,
      [OT_LANE_REDUCE] = OT_PHASE_REDUCE,
      [OT_LANE_PIPELINE] = OT_PHASE_SEND,
  };
  h->segments[index] = (ot_segment){.name = name, .phase = phases[lane], .tasks = h->tasks[index]};
  h->entries[index] = (ot_entry){
      .phase = phases[lane], .lane = lane, .segment = index, .block = -1, .micro_batch = -1};
  for (int i = 0; i < OT_LANES; i++) h->entries[index].wait[i] = -1;
  return index;
}

void hand_wait(hand_made *h, int entry, int other) {
  if (other >= 0) h->entries[entry].wait[h->entries[other].lane] = other;
}

static ot_operand vector_at(ot_base base, int64_t offset, int64_t elements) {
  return (ot_operand){.base = base,
                      .value = -1,
                      .offset = offset,
                      .type = {.dtype = OT_F64, .rank = 1, .dim = {elements}}};
}

static int64_t bytes_before(int place) { return SCALAR_BYTES + (int64_t)place * PLACE_BYTES; }

static ot_operand place_at(int place) {
  assert_true(place >= 0 && place < HAND_PLACES);
  const ot_base base = place < HAND_KEPT ? OT_BASE_RESULT : OT_BASE_SLOT;
  return vector_at(base, bytes_before(place), HAND_N);
}

static int append(hand_made *h, int entry, ot_task task) {
  ot_segment *const segment = &h->segments[entry];
  assert_true(segment->num_tasks < HAND_TASKS);
  task.kind = ot_task_kind_of(task.op);
  task.lane = h->entries[entry].lane;
  task.wait = -1;
  task.attributes.threads = 1;
  task.attributes.compute = OT_F64;
  segment->tasks[segment->num_tasks] = task;
  return segment->num_tasks++;
}

int hand_add(hand_made *h, int entry, int a, int b, int sum) {
  return append(
      h, entry,
      (ot_task){.op = OT_OP_ADD, .in = {place_at(a), place_at(b)}, .out = {place_at(sum)}});
}

int hand_delay(hand_made *h, int entry) {
  const ot_operand all =
      vector_at(OT_BASE_RESULT, LONG + h->entries[entry].lane * LONG_ELEMENTS * 8, LONG_ELEMENTS);
  return append(h, entry, (ot_task){.op = OT_OP_ADD, .in = {all, all}, .out = {all}});
}

static ot_op_attributes among(const hand_made *h, ot_group_kind group) {
  return (ot_op_attributes){
      .group = group, .group_size = h->schedule.ranks, .group_index = h->schedule.rank};
}

int hand_all_reduce(hand_made *h, int entry, ot_group_kind group, int from, int to) {
  return append(h, entry,
                (ot_task){.op = OT_OP_ALL_REDUCE,
                          .attributes = among(h, group),
                          .in = {place_at(from)},
                          .out = {place_at(to)},
                          .workspace = STAGING + (int64_t)entry * PLACE_BYTES,
                          .workspace_bytes = PLACE_BYTES});
}

static int message(hand_made *h, int entry, ot_task task, int peer, int tag) {
  task.attributes = among(h, OT_GROUP_STAGES);
  task.attributes.peer = peer;
  task.attributes.tag = tag;
  return append(h, entry, task);
}

int hand_send(hand_made *h, int entry, int from, int peer, int tag) {
  return message(h, entry, (ot_task){.op = OT_OP_SEND, .in = {place_at(from)}}, peer, tag);
}

int hand_receive(hand_made *h, int entry, int to, int peer, int tag) {
  return message(h, entry, (ot_task){.op = OT_OP_RECEIVE, .out = {place_at(to)}}, peer, tag);
}

static ot_operand count_at(ot_base base, int64_t offset) {
  ot_operand count = vector_at(base, offset, 1);
  count.type.dtype = OT_I32;
  return count;
}

int hand_repeat(hand_made *h, int entry, int repeated) {
  ot_task task = {.op = OT_OP_REPEAT, .attributes = {.repeated = repeated}};
  task.in[OT_REPEAT_COUNT] = count_at(OT_BASE_SCALAR, ROUNDS);
  task.out[OT_REPEAT_INDEX] = count_at(OT_BASE_RESULT, bytes_before(HAND_COUNTER));
  return append(h, entry, task);
}

static ot_task *last_task(hand_made *h, int entry) {
  return &h->tasks[entry][h->segments[entry].num_tasks - 1];
}

void hand_on_tensor_lane(hand_made *h, int entry) { last_task(h, entry)->lane = OT_LANE_TENSOR; }

void hand_task_waits(hand_made *h, int entry, int other) { last_task(h, entry)->wait = other; }

// ---- runs on threads ----

double hand_input(int rank, int place) { return 1000 * (rank + 1) + place; }

static void fill(const hand_run *game, ot_executor *executor, int rank) {
  ot_executor_fill(executor, SCALAR_BYTES, 0xFF, HAND_PLACES * PLACE_BYTES);
  for (int place = 0; place < HAND_INPUTS; place++) {
    double values[HAND_N];
    for (int i = 0; i < HAND_N; i++) values[i] = hand_input(rank, place);
    ot_executor_write(executor, bytes_before(place), values, sizeof values);
  }
  const int32_t rounds = game->rounds;
  ot_executor_write(executor, ROUNDS, &rounds, sizeof rounds);
}

static double read_place(const ot_executor *executor, int place) {
  double values[HAND_N];
  ot_executor_read(executor, bytes_before(place), values, PLACE_BYTES);
  for (int i = 1; i < HAND_N; i++) {
    if (values[i] != values[0]) return NAN;
  }
  return values[0];
}

static ot_status play_times(hand_run *game, ot_executor *executor, ot_comm *comm) {
  const int rank = ot_comm_rank(comm);
  const int times = game->times > 0 ? game->times : 1;
  for (int i = 0; i < times; i++) {
    fill(game, executor, rank);
    if (game->before) OT_TRY(game->before(comm, i));
    OT_TRY(ot_executor_run(executor, 0));
  }
  if (game->before) OT_TRY(game->before(comm, times));
  for (int i = 0; i < HAND_PLACES; i++) game->places[rank][i] = read_place(executor, i);
  int32_t counter = 0;
  ot_executor_read(executor, bytes_before(HAND_COUNTER), &counter, sizeof counter);
  game->counter[rank] = counter;
  const ot_timeline *const timeline = ot_executor_timeline(executor);
  game->num_spans[rank] = (int)timeline->num_spans;
  memcpy(game->spans[rank], timeline->spans, (size_t)timeline->num_spans * sizeof(ot_span));
  return OT_OK;
}

static ot_status play_rank(hand_run *game, hand_made *h, ot_comm *comm) {
  const int rank = h->schedule.rank;
  OT_TRY(game->write(h, game->context));
  if (game->ranks > 1) OT_TRY(ot_executor_join(&h->schedule, comm, 0));
  const ot_executor_options options = {.comm = game->ranks > 1 ? comm : NULL,
                                       .overlap = game->overlap,
                                       .poison = game->poison,
                                       .trace = true};
  ot_executor *executor = NULL;
  OT_TRY(ot_executor_create(&h->schedule, &options, &executor));
  if (game->leaves == rank + 1) {
    ot_executor_destroy(&executor);
    return ot_fail(OT_NUMERIC, "rank %d has had enough", rank);
  }
  const ot_status status = play_times(game, executor, comm);
  ot_executor_destroy(&executor);
  return status;
}

static ot_status rank_main(ot_comm *comm, void *context) {
  hand_run *const game = context;
  const int rank = ot_comm_rank(comm);
  hand_made *const h = malloc(sizeof *h);
  OT_CHECK(h, OT_ENVIRONMENT, "out of memory");
  hand_create(h, rank, game->ranks);
  game->status[rank] = play_rank(game, h, comm);
  ot_text_format(game->message[rank], sizeof game->message[rank], "%s",
                 game->status[rank] == OT_OK ? "" : ot_fail_message());
  hand_destroy(h);
  free(h);
  return game->status[rank];
}

ot_status hand_run_ranks(hand_run *game) {
  return ot_comm_run_threads(game->ranks, rank_main, game);
}

void hand_run_expect_ok(hand_run *game) {
  if (hand_run_ranks(game) != OT_OK) fail_msg("%s", ot_fail_message());
}

const ot_span *hand_span(const hand_run *game, int rank, int entry, int task) {
  const ot_span *found = NULL;
  for (int i = 0; i < game->num_spans[rank]; i++) {
    const ot_span *const span = &game->spans[rank][i];
    if (span->entry != entry || span->task != task) continue;
    if (found) fail_msg("rank %d: two spans of entry %d, task %d", rank, entry, task);
    found = span;
  }
  if (!found) fail_msg("rank %d: no span of entry %d, task %d", rank, entry, task);
  return found;
}
