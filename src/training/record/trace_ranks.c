// SPDX-License-Identifier: Apache-2.0
// The ranks send their spans to the leader one by one.
#include "record/trace_ranks.h"

#include <stdlib.h>
#include <string.h>

#include "host/clock.h"
#include "runtime/host_allreduce.h"
#include "runtime/training_request.h"

enum { CHUNK_WORDS = 1 << 15 };

// The leader's information on every rank.
typedef struct roll_call {
  int64_t *machine;    // [size]
  int64_t *num_spans;  // [size]
  double *start_s;     // [size] start of the order, by the leader's clock
} roll_call;

static ot_status collect_real(ot_world *world, double mine, double *all) {
  int64_t bits;
  memcpy(&bits, &mine, sizeof bits);
  return ot_world_allgather(world, bits, (int64_t *)all);
}

static ot_status call_roll(ot_world *world, const ot_trace_step *step, ot_arena *arena,
                           roll_call *roll) {
  const int size = ot_world_size(world);
  roll->machine = ot_arena_array(arena, size, sizeof(int64_t));
  roll->num_spans = ot_arena_array(arena, size, sizeof(int64_t));
  roll->start_s = ot_arena_array(arena, size, sizeof(double));
  double *const age_s = ot_arena_array(arena, size, sizeof(double));
  OT_TRY(ot_world_allgather(world, ot_world_machine(world), roll->machine));
  // All ranks leave that call at about the same time, whatever their clocks show.
  const double now_s = ot_clock_s();
  OT_TRY(ot_world_allgather(world, step->timeline->num_spans, roll->num_spans));
  OT_TRY(collect_real(world, step->start_s, roll->start_s));
  OT_TRY(collect_real(world, now_s - step->start_s, age_s));
  for (int i = 0; i < size; i++) {
    if (roll->machine[i] != roll->machine[0]) roll->start_s[i] = now_s - age_s[i];
  }
  return OT_OK;
}

typedef struct relay {
  ot_world *world;
  ot_host_allreduce *exchange;
  const ot_timeline *mine;
} relay;

// Sends the `count` spans of rank `owner` to `spans` on the leader (null elsewhere).
static ot_status hand_over(const relay *r, int owner, int64_t count, ot_span *spans) {
  char *const words = (char *)ot_host_allreduce_words(r->exchange);
  const int64_t word = sizeof(int64_t), chunk = CHUNK_WORDS * word;
  const int64_t bytes = count * (int64_t)sizeof *spans;
  for (int64_t done = 0; done < bytes; done += chunk) {
    const int64_t n = bytes - done < chunk ? bytes - done : chunk;
    memset(words, 0, (size_t)chunk);
    if (ot_world_rank(r->world) == owner) {
      memcpy(words, (const char *)r->mine->spans + done, (size_t)n);
    }
    OT_TRY(ot_host_allreduce_integers(r->exchange, (n + word - 1) / word));
    if (spans) memcpy((char *)spans + done, words, (size_t)n);
  }
  return OT_OK;
}

static ot_status write_rank(ot_trace *trace, const ot_trace_step *step, const ot_mesh *mesh,
                            ot_timeline *timeline, double offset_s) {
  if (!mesh || timeline->rank == step->schedule->rank) {
    return ot_trace_write_timeline(trace, timeline, step->schedule, offset_s);
  }
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_planned_run planned = {.run = step->run,
                            .mesh = mesh,
                            .threads = step->schedule->threads,
                            .backend = step->schedule->backend};
  ot_schedule schedule;
  ot_status status = ot_training_read_order(&planned, &arena);
  if (status == OT_OK) status = ot_planned_run_rank(&planned, timeline->rank, &arena, &schedule);
  if (status == OT_OK) status = ot_trace_write_timeline(trace, timeline, &schedule, offset_s);
  ot_heap_release(&heap);
  return status;
}

// `failed` is the leader's failure; it still receives the spans of the others.
static ot_status write_all(ot_trace *trace, const relay *r, const ot_trace_step *step,
                           ot_status *failed) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  roll_call roll;
  ot_status status = call_roll(r->world, step, &arena, &roll);
  for (int rank = 0; rank < ot_world_size(r->world) && status == OT_OK; rank++) {
    const int64_t count = roll.num_spans[rank];
    ot_timeline timeline = *step->timeline;
    timeline.rank = rank;
    timeline.num_spans = count;
    timeline.spans = trace ? ot_arena_array(&arena, count + 1, sizeof(ot_span)) : NULL;
    status = hand_over(r, rank, count, timeline.spans);
    if (!trace || status != OT_OK || *failed != OT_OK) continue;
    const double offset_s = roll.start_s[rank] - step->zero_s;
    *failed = write_rank(trace, step, ot_world_mesh(r->world), &timeline, offset_s);
  }
  ot_heap_release(&heap);
  return status;
}

ot_status ot_trace_write_ranks(ot_trace *trace, ot_world *world, const ot_trace_step *step) {
  relay r = {.world = world, .mine = step->timeline};
  ot_status failed = OT_OK;
  if (ot_world_size(world) == 1) {
    return ot_trace_write_timeline(trace, step->timeline, step->schedule,
                                   step->start_s - step->zero_s);
  }
  OT_TRY(ot_world_agree(world,
                        ot_host_allreduce_create(ot_world_comm(world), CHUNK_WORDS, &r.exchange)));
  const ot_status status = write_all(trace, &r, step, &failed);
  ot_host_allreduce_destroy(&r.exchange);
  OT_TRY(status);
  return ot_world_agree(world, failed);
}
