// SPDX-License-Identifier: Apache-2.0
// Builds the action lists of all ranks and checks them: each list alone, then all together, by
// running them.
#include "pipeline/pipeline_schedule.h"

#include "describe/pipeline_rules.h"
#include "pipeline/pipeline_csv.h"
#include "pipeline/pipeline_formulas.h"
#include "pipeline/pipeline_walk.h"

// ---- actions ----

char ot_action_letter(ot_action_kind kind) { return "FIWB"[kind]; }

ot_work ot_action_work(ot_action_kind kind) {
  if (kind == OT_ACTION_FORWARD) return OT_WORK_FORWARD;
  return kind == OT_ACTION_WEIGHT ? OT_WORK_WEIGHT : OT_WORK_BACKWARD;
}

int ot_action_needs(const ot_pipeline_schedule *order, const ot_action *action,
                    ot_action needs[2]) {
  const ot_action_kind back = order->split ? OT_ACTION_INPUT : OT_ACTION_BACKWARD;
  const int chunk = action->chunk, i = action->micro_batch;
  int n = 0;
  switch (action->kind) {
    case OT_ACTION_FORWARD:
      if (chunk > 0) needs[n++] = (ot_action){OT_ACTION_FORWARD, chunk - 1, i, false};
      return n;
    case OT_ACTION_INPUT:
    case OT_ACTION_BACKWARD:
      needs[n++] = (ot_action){OT_ACTION_FORWARD, chunk, i, false};
      if (chunk + 1 < order->num_chunks) needs[n++] = (ot_action){back, chunk + 1, i, false};
      return n;
    case OT_ACTION_WEIGHT:
      needs[n++] = (ot_action){OT_ACTION_INPUT, chunk, i, false};
      return n;
    case OT_ACTIONS:
      break;
  }
  OT_UNREACHABLE();
}

// ---- build ----

// Whether the formulas expect this placement of chunks.
static bool placed_for(const ot_pipeline_request *request) {
  const int p = request->num_ranks;
  for (int c = 0; c < request->num_chunks; c++) {
    if (request->rank_of[c] != ot_pipeline_stage(request->kind, p, c)) return false;
  }
  return true;
}

static void build_formula(const ot_pipeline_request *request, ot_arena *arena,
                          ot_pipeline_schedule *order) {
  OT_ASSERT(placed_for(request));
  const int64_t chunks = request->num_chunks / request->num_ranks;
  const int64_t room = chunks * request->micro_batches * (order->split ? 3 : 2);
  for (int r = 0; r < request->num_ranks; r++) {
    order->actions[r] = ot_arena_array(arena, room, sizeof(ot_action));
    ot_pipeline_formula(request, r, arena, order);
    OT_ASSERT(order->num_actions[r] == room);
  }
}

ot_status ot_pipeline_schedule_build(const ot_pipeline_request *request, ot_arena *arena,
                                     ot_pipeline_schedule *out) {
  OT_ASSERT(request->num_ranks >= 1 && request->num_chunks % request->num_ranks == 0);
  *out = (ot_pipeline_schedule){
      .num_ranks = request->num_ranks,
      .num_chunks = request->num_chunks,
      .micro_batches = request->micro_batches,
      .rank_of = request->rank_of,
      .split = request->csv ? ot_pipeline_csv_splits(request->csv)
                            : ot_pipeline_rules_of(request->kind)->splits,
      .num_actions = ot_arena_array(arena, request->num_ranks, sizeof(int)),
      .actions = ot_arena_array(arena, request->num_ranks, sizeof(ot_action *)),
  };
  if (request->csv) {
    OT_TRY(ot_pipeline_csv_read(request->csv, arena, out));
  } else {
    const int chunks = request->num_chunks / request->num_ranks;
    OT_TRY(ot_pipeline_check(request->kind, request->num_ranks, chunks, request->micro_batches));
    build_formula(request, arena, out);
  }
  return ot_pipeline_schedule_check(out, arena);
}

// ---- check ----

static bool in_range(int value, int count) { return value >= 0 && value < count; }

static ot_status check_action(const ot_pipeline_schedule *order, int rank, int index) {
  const ot_action *const a = &order->actions[rank][index];
  const bool exists =
      in_range(a->chunk, order->num_chunks) && in_range(a->micro_batch, order->micro_batches);
  OT_CHECK(exists, OT_USAGE,
           "pipeline schedule: action %d of stage %d is %d%c%d; chunks are 0 to %d, micro-batches 0"
           " to %d",
           index, rank, a->chunk, ot_action_letter(a->kind), a->micro_batch, order->num_chunks - 1,
           order->micro_batches - 1);
  OT_CHECK(order->rank_of[a->chunk] == rank, OT_USAGE,
           "pipeline schedule: action %d of stage %d is %d%c%d, but chunk %d is on stage %d", index,
           rank, a->chunk, ot_action_letter(a->kind), a->micro_batch, a->chunk,
           order->rank_of[a->chunk]);
  const bool apart = a->kind == OT_ACTION_INPUT || a->kind == OT_ACTION_WEIGHT;
  OT_CHECK(a->kind == OT_ACTION_FORWARD || apart == order->split, OT_USAGE,
           "pipeline schedule: action %d of stage %d is %d%c%d, but I and W run %s here", index,
           rank, a->chunk, ot_action_letter(a->kind), a->micro_batch,
           order->split ? "separately" : "together");
  return OT_OK;
}

// Checks each list alone: valid actions, sorted by micro-batch. Increments `next` [OT_ACTIONS *
// num_chunks].
static ot_status check_list(const ot_pipeline_schedule *order, int rank, int *next) {
  for (int i = 0; i < order->num_actions[rank]; i++) {
    OT_TRY(check_action(order, rank, i));
    const ot_action *const a = &order->actions[rank][i];
    int *const due = &next[a->kind * order->num_chunks + a->chunk];
    const char letter = ot_action_letter(a->kind);
    OT_CHECK(a->micro_batch == *due, OT_USAGE,
             "pipeline schedule: action %d of stage %d is %d%c%d, expected %d%c%d: each kind of "
             "action of a chunk runs once per micro-batch, in order",
             i, rank, a->chunk, letter, a->micro_batch, a->chunk, letter, *due);
    ++*due;
  }
  return OT_OK;
}

static ot_status check_complete(const ot_pipeline_schedule *order, const int *next) {
  for (int kind = 0; kind < OT_ACTIONS; kind++) {
    const bool apart = kind == OT_ACTION_INPUT || kind == OT_ACTION_WEIGHT;
    if (kind != OT_ACTION_FORWARD && apart != order->split) continue;
    for (int c = 0; c < order->num_chunks; c++) {
      const int done = next[kind * order->num_chunks + c];
      OT_CHECK(done == order->micro_batches, OT_USAGE,
               "pipeline schedule: stage %d never runs %d%c%d; needed: %d micro-batches",
               order->rank_of[c], c, ot_action_letter((ot_action_kind)kind), done,
               order->micro_batches);
    }
  }
  return OT_OK;
}

// Names the first action that cannot run and the action it waits for.
static ot_status refuse_stuck(const ot_pipeline_walk *walk, int rank) {
  const ot_pipeline_schedule *const order = walk->order;
  const int at = walk->position[rank];
  const ot_action *const a = &order->actions[rank][at];
  ot_action by;
  OT_ASSERT(ot_pipeline_walk_blocked(walk, a, &by));
  const int other = order->rank_of[by.chunk];
  ot_fail(OT_USAGE,
          "pipeline schedule: stage %d can never run %d%c%d (its action %d): it needs %d%c%d", rank,
          a->chunk, ot_action_letter(a->kind), a->micro_batch, at, by.chunk,
          ot_action_letter(by.kind), by.micro_batch);
  if (other == rank) return ot_fail_hint(OT_USAGE, "stage %d runs that later", rank);
  const ot_action *const there = &order->actions[other][walk->position[other]];
  return ot_fail_hint(OT_USAGE, "stage %d, which runs that, waits before %d%c%d (its action %d)",
                      other, there->chunk, ot_action_letter(there->kind), there->micro_batch,
                      walk->position[other]);
}

ot_status ot_pipeline_schedule_check(const ot_pipeline_schedule *order, ot_arena *arena) {
  int *const next = ot_arena_array(arena, OT_ACTIONS * (int64_t)order->num_chunks, sizeof *next);
  for (int r = 0; r < order->num_ranks; r++) OT_TRY(check_list(order, r, next));
  OT_TRY(check_complete(order, next));
  ot_pipeline_walk walk;
  ot_pipeline_walk_begin(order, arena, &walk);
  while (ot_pipeline_walk_next(&walk)) continue;
  for (int r = 0; r < order->num_ranks; r++) {
    if (walk.position[r] < order->num_actions[r]) return refuse_stuck(&walk, r);
  }
  return OT_OK;
}
