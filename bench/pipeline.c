// SPDX-License-Identifier: Apache-2.0
// Pipeline schedules on real threads with work of known duration: each stage is a rank that waits
// for its messages, sleeps for the duration of each action, and sends the results. Measures the
// time from the first action to the last and compares it with the closed forms of the papers (F = I
// = W).
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/comm.h"
#include "describe/pipeline_rules.h"
#include "host/clock.h"
#include "host/heap.h"
#include "support/bench_program.h"
#include "support/order_price.h"

enum { MAX_STAGES = 8, MAX_CHUNKS = 16, MAX_REPEATS = 31, PAYLOAD = 256, STEPS = 2 };

typedef struct pipeline_settings {
  double unit_s;  // of F, I and W of a whole stage
  int repeats;
  bool json;
} pipeline_settings;

typedef struct shape {
  ot_pipeline kind;
  int p, v, m;  // stages, chunks per stage, micro-batches
} shape;

// ---- one stage ----

// Steps of one pipeline schedule, run by all stages.
typedef struct trial {
  const ot_pipeline_schedule *order;
  double chunk_s;  // of F, I and W of a chunk
  int steps;
  bool barrier;  // stages wait for each other between steps, as for the gradient norm
  double start_s[MAX_STAGES], end_s[MAX_STAGES];
} trial;

typedef struct message {
  ot_comm_request request;
  float payload[PAYLOAD];
} message;

typedef struct stage {
  ot_comm *comm;
  const trial *trial;
  int rank;
  message *sent, *received;  // [2 * num_chunks * micro_batches * steps] by content
  double free_s;             // end of the last action
} stage;

static void sleep_until(double time_s) {
  struct timespec until = {.tv_sec = (time_t)time_s};
  until.tv_nsec = (long)((time_s - (double)until.tv_sec) * 1e9);
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) continue;
}

// Index of the message with the result of `action`.
static int message_of(const ot_pipeline_schedule *order, int step, const ot_action *action) {
  const int place = (step * order->num_chunks + action->chunk) * order->micro_batches;
  return 2 * (place + action->micro_batch) + (action->kind == OT_ACTION_FORWARD ? 0 : 1);
}

// The rank that waits for the result of `action`, or -1 if it is local.
static int receiver_of(const ot_pipeline_schedule *order, const ot_action *action) {
  if (action->kind == OT_ACTION_WEIGHT) return -1;
  const int to = action->chunk + (action->kind == OT_ACTION_FORWARD ? 1 : -1);
  if (to < 0 || to >= order->num_chunks) return -1;
  return order->rank_of[to] == order->rank_of[action->chunk] ? -1 : order->rank_of[to];
}

static ot_comm_call call_of(ot_comm_kind kind, int peer, int tag, float *payload) {
  return (ot_comm_call){.kind = kind,
                        .group = OT_GROUP_WORLD,
                        .peer = peer,
                        .tag = tag,
                        .send = payload,
                        .receive = payload,
                        .count = PAYLOAD,
                        .dtype = OT_F32,
                        .name = "activations"};
}

// Posts all receives before any send, as a schedule posts them ahead of their use.
static void post_receives(stage *s) {
  const ot_pipeline_schedule *const order = s->trial->order;
  for (int step = 0; step < s->trial->steps; step++) {
    for (int r = 0; r < order->num_ranks; r++) {
      for (int i = 0; i < order->num_actions[r]; i++) {
        const ot_action *const action = &order->actions[r][i];
        if (receiver_of(order, action) != s->rank) continue;
        const int tag = message_of(order, step, action);
        message *const m = &s->received[tag];
        const ot_comm_call call = call_of(OT_COMM_RECEIVE, r, tag, m->payload);
        ot_comm_start(s->comm, &call, &m->request);
      }
    }
  }
}

// Waits for the inputs of `action`. If they arrive after the previous action's end, it starts on
// their arrival.
static ot_status await(stage *s, int step, const ot_action *action) {
  const ot_pipeline_schedule *const order = s->trial->order;
  ot_action needs[2];
  const int n = ot_action_needs(order, action, needs);
  for (int i = 0; i < n; i++) {
    if (receiver_of(order, &needs[i]) != s->rank) continue;
    ot_comm_request *const request = &s->received[message_of(order, step, &needs[i])].request;
    const bool there = ot_comm_done(s->comm, request);
    OT_TRY(ot_comm_wait(s->comm, request));
    if (!there) s->free_s = ot_clock_s();
  }
  return OT_OK;
}

static void send_result(stage *s, int step, const ot_action *action) {
  const int to = receiver_of(s->trial->order, action);
  if (to < 0) return;
  const int tag = message_of(s->trial->order, step, action);
  message *const m = &s->sent[tag];
  const ot_comm_call call = call_of(OT_COMM_SEND, to, tag, m->payload);
  ot_comm_start(s->comm, &call, &m->request);
}

static ot_status play_step(stage *s, int step) {
  const ot_pipeline_schedule *const order = s->trial->order;
  for (int i = 0; i < order->num_actions[s->rank]; i++) {
    const ot_action *const action = &order->actions[s->rank][i];
    OT_TRY(await(s, step, action));
    s->free_s += s->trial->chunk_s * (action->kind == OT_ACTION_BACKWARD ? 2 : 1);
    sleep_until(s->free_s);
    send_result(s, step, action);
  }
  return OT_OK;
}

static ot_status finish_sends(stage *s) {
  const ot_pipeline_schedule *const order = s->trial->order;
  for (int step = 0; step < s->trial->steps; step++) {
    for (int i = 0; i < order->num_actions[s->rank]; i++) {
      const ot_action *const action = &order->actions[s->rank][i];
      if (receiver_of(order, action) < 0) continue;
      OT_TRY(ot_comm_wait(s->comm, &s->sent[message_of(order, step, action)].request));
    }
  }
  return OT_OK;
}

static ot_status wait_for_all(stage *s) {
  const ot_comm_call barrier = {
      .kind = OT_COMM_BARRIER, .group = OT_GROUP_WORLD, .name = "barrier"};
  OT_TRY(ot_comm_run(s->comm, &barrier));
  s->free_s = ot_clock_s();
  return OT_OK;
}

static ot_status play(stage *s, trial *t) {
  post_receives(s);
  OT_TRY(wait_for_all(s));
  t->start_s[s->rank] = s->free_s;
  for (int step = 0; step < t->steps; step++) {
    if (step > 0 && t->barrier) OT_TRY(wait_for_all(s));
    OT_TRY(play_step(s, step));
  }
  t->end_s[s->rank] = ot_clock_s();
  return finish_sends(s);
}

static ot_status play_rank(ot_comm *comm, void *context) {
  trial *const t = context;
  const size_t messages =
      2 * (size_t)t->order->num_chunks * (size_t)t->order->micro_batches * (size_t)t->steps;
  stage s = {.comm = comm,
             .trial = t,
             .rank = ot_comm_rank(comm),
             .sent = calloc(messages, sizeof(message)),
             .received = calloc(messages, sizeof(message))};
  ot_status status = s.sent && s.received ? OT_OK : ot_fail(OT_ENVIRONMENT, "out of memory");
  if (status == OT_OK) status = play(&s, t);
  free(s.sent);
  free(s.received);
  return status;
}

// ---- trials ----

static int compare(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// Median seconds from the first start to the last end.
static ot_status measure(trial *t, int repeats, double *seconds) {
  double taken[MAX_REPEATS];
  for (int k = 0; k < repeats; k++) {
    OT_TRY(ot_comm_run_threads(t->order->num_ranks, play_rank, t));
    double start = t->start_s[0], end = t->end_s[0];
    for (int r = 1; r < t->order->num_ranks; r++) {
      if (t->start_s[r] < start) start = t->start_s[r];
      if (t->end_s[r] > end) end = t->end_s[r];
    }
    taken[k] = end - start;
  }
  qsort(taken, (size_t)repeats, sizeof *taken, compare);
  *seconds = taken[repeats / 2];
  return OT_OK;
}

static const int *place(const shape *s, int *rank_of) {
  for (int c = 0; c < s->p * s->v; c++) {
    rank_of[c] = ot_pipeline_stage(s->kind, s->p, c);
  }
  return rank_of;
}

static ot_status build(const shape *s, int *rank_of, ot_arena *arena, ot_pipeline_schedule *order) {
  const ot_pipeline_request request = {.kind = s->kind,
                                       .num_ranks = s->p,
                                       .num_chunks = s->p * s->v,
                                       .micro_batches = s->m,
                                       .rank_of = place(s, rank_of)};
  return ot_pipeline_schedule_build(&request, arena, order);
}

// Makespan of a schedule whose phases all last `chunk_s`, and peak activations of any stage.
static double price(const ot_pipeline_schedule *order, double chunk_s, ot_arena *arena, int *peak) {
  double cost[MAX_CHUNKS];
  for (int c = 0; c < order->num_chunks; c++) cost[c] = chunk_s;
  const ot_order_costs costs = {.forward = cost, .input = cost, .weight = cost};
  ot_order_price out;
  ot_order_price_build(order, &costs, arena, &out);
  *peak = 0;
  for (int r = 0; r < order->num_ranks; r++) {
    if (out.ranks[r].peak_chunks > *peak) *peak = out.ranks[r].peak_chunks;
  }
  return out.makespan;
}

// Duration of one step in units of F = I = W = 1 for a whole stage.
static double formula(const shape *s) {
  const double work = 3.0 * s->m, behind = s->p - 1;
  switch (s->kind) {
    case OT_PIPELINE_GPIPE:
    case OT_PIPELINE_1F1B:
      return work + 3 * behind;
    case OT_PIPELINE_INTERLEAVED:
      return work + 3 * behind / s->v;
    case OT_PIPELINE_ZB_H1:
    case OT_PIPELINE_ZB_H2:
      return work + behind;
    case OT_PIPELINE_ZB_V:
    case OT_PIPELINE_DUALPIPE_V:
      return work + behind / 2;
    case OT_PIPELINES:
      break;
  }
  return 0;
}

// ---- schedules compared with their formulas ----

static const char *separator(bool last) { return last ? "" : ","; }

static ot_status show_order(const pipeline_settings *settings, const shape *s, bool last,
                            ot_arena *arena) {
  int rank_of[MAX_CHUNKS], peak;
  ot_pipeline_schedule order;
  OT_TRY(build(s, rank_of, arena, &order));
  trial t = {.order = &order, .chunk_s = settings->unit_s / s->v, .steps = 1};
  double seconds;
  OT_TRY(measure(&t, settings->repeats, &seconds));
  const double expected = formula(s) * settings->unit_s;
  const double idle = 1 - 3 * s->m * settings->unit_s / seconds;
  price(&order, t.chunk_s, arena, &peak);
  const double slots = (double)peak / s->v;
  if (settings->json) {
    printf(
        "{\"pipeline\":\"%s\",\"stages\":%d,\"chunks\":%d,\"micro_batches\":%d,"
        "\"measured_seconds\":%.6f,\"formula_seconds\":%.6f,\"ratio\":%.5f,"
        "\"bubble_fraction\":%.5f,\"peak_activations\":%g}%s\n",
        ot_pipeline_name(s->kind), s->p, s->v, s->m, seconds, expected, seconds / expected, idle,
        slots, separator(last));
    return OT_OK;
  }
  printf("%-12s %6d %6d %6d %12.4f %12.4f %8.4f %8.1f %10g\n", ot_pipeline_name(s->kind), s->p,
         s->v, s->m, seconds, expected, seconds / expected, 100 * idle, slots);
  return OT_OK;
}

// ---- two steps, with and without a barrier between them ----

// Concatenates the lists of both steps, as a schedule of twice the micro-batches.
static void chain(const ot_pipeline_schedule *order, ot_arena *arena, ot_pipeline_schedule *out) {
  *out = *order;
  out->micro_batches = STEPS * order->micro_batches;
  out->num_actions = ot_arena_array(arena, order->num_ranks, sizeof *out->num_actions);
  out->actions = ot_arena_array(arena, order->num_ranks, sizeof *out->actions);
  for (int r = 0; r < order->num_ranks; r++) {
    const int n = order->num_actions[r];
    out->num_actions[r] = STEPS * n;
    out->actions[r] = ot_arena_array(arena, (int64_t)STEPS * n, sizeof(ot_action));
    for (int i = 0; i < STEPS * n; i++) {
      out->actions[r][i] = order->actions[r][i % n];
      out->actions[r][i].micro_batch += i / n * order->micro_batches;
    }
  }
}

static ot_status show_steps(const pipeline_settings *settings, const shape *s, bool barrier,
                            bool last) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  int rank_of[MAX_CHUNKS], peak;
  ot_pipeline_schedule order, chained;
  ot_status status = build(s, rank_of, &arena, &order);
  double seconds = 0, expected = STEPS * formula(s) * settings->unit_s;
  trial t = {
      .order = &order, .chunk_s = settings->unit_s / s->v, .steps = STEPS, .barrier = barrier};
  if (status == OT_OK) status = measure(&t, settings->repeats, &seconds);
  if (status == OT_OK && !barrier) {
    chain(&order, &arena, &chained);
    expected = price(&chained, t.chunk_s, &arena, &peak);
  }
  ot_heap_release(&heap);
  if (status != OT_OK) return status;
  if (settings->json) {
    printf(
        "{\"pipeline\":\"%s\",\"steps\":%d,\"barrier\":%s,\"measured_seconds\":%.6f,"
        "\"expected_seconds\":%.6f,\"ratio\":%.5f}%s\n",
        ot_pipeline_name(s->kind), STEPS, barrier ? "true" : "false", seconds, expected,
        seconds / expected, separator(last));
    return OT_OK;
  }
  printf("%-12s %-20s %12.4f %12.4f %8.4f\n", ot_pipeline_name(s->kind),
         barrier ? "barrier between" : "no barrier", seconds, expected, seconds / expected);
  return OT_OK;
}

// ---- the program ----

static const shape shapes[] = {
    {OT_PIPELINE_GPIPE, 2, 1, 4},       {OT_PIPELINE_1F1B, 2, 1, 4},
    {OT_PIPELINE_INTERLEAVED, 2, 2, 4}, {OT_PIPELINE_ZB_H1, 2, 1, 4},
    {OT_PIPELINE_ZB_H2, 2, 1, 4},       {OT_PIPELINE_ZB_V, 2, 2, 4},
    {OT_PIPELINE_DUALPIPE_V, 2, 2, 4},  {OT_PIPELINE_GPIPE, 4, 1, 8},
    {OT_PIPELINE_1F1B, 4, 1, 8},        {OT_PIPELINE_INTERLEAVED, 4, 2, 8},
    {OT_PIPELINE_ZB_H1, 4, 1, 8},       {OT_PIPELINE_ZB_H2, 4, 1, 8},
    {OT_PIPELINE_ZB_V, 4, 2, 8},        {OT_PIPELINE_DUALPIPE_V, 4, 2, 8},
};

static const char statement[] =
    "Clipping needs the norm of all gradients, so a step ends on all stages at once. Then zb-h2 "
    "gains nothing over zb-h1 if I exceeds neither F nor W, as here: both need "
    "m (F + I + W) + (p-1) F, and zb-h2 keeps 2p-1 activations, zb-h1 only p. Its steps "
    "would have to follow each other without a barrier, as in the last figure.";

static ot_status show_all_orders(const pipeline_settings *settings) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_status status = OT_OK;
  for (int i = 0; i < OT_COUNT(shapes) && status == OT_OK; i++) {
    status = show_order(settings, &shapes[i], i + 1 == OT_COUNT(shapes), &arena);
  }
  ot_heap_release(&heap);
  return status;
}

static ot_status show_all_steps(const pipeline_settings *settings) {
  static const shape both[] = {{OT_PIPELINE_ZB_H1, 4, 1, 8}, {OT_PIPELINE_ZB_H2, 4, 1, 8}};
  for (int i = 0; i < 2 * OT_COUNT(both); i++) {
    OT_TRY(show_steps(settings, &both[i % 2], i < 2, i + 1 == 2 * OT_COUNT(both)));
  }
  return OT_OK;
}

static ot_status run(const pipeline_settings *settings) {
  if (settings->json) {
    printf("{\"unit_seconds\":%g,\"orders\":[\n", settings->unit_s);
    OT_TRY(show_all_orders(settings));
    printf("],\"steps\":[\n");
    OT_TRY(show_all_steps(settings));
    printf("],\"statement\":\"%s\"}\n", statement);
    return OT_OK;
  }
  printf("F = I = W = %g ms per stage, median of %d; messages of %d bytes between threads\n",
         1e3 * settings->unit_s, settings->repeats, (int)(PAYLOAD * sizeof(float)));
  printf("%-12s %6s %6s %6s %12s %12s %8s %8s %10s\n", "order", "stages", "chunks", "m",
         "measured s", "formula s", "ratio", "idle %", "slots");
  OT_TRY(show_all_orders(settings));
  printf("\n%d steps, p = 4, m = 8%10s %12s %12s %8s\n", STEPS, "", "measured s", "expected s",
         "ratio");
  OT_TRY(show_all_steps(settings));
  printf("\n%s\n", statement);
  return OT_OK;
}

static ot_status run_program(const ot_options *options) {
  const pipeline_settings settings = {.unit_s = 1e-3 * ot_options_real(options, "unit-ms"),
                                      .repeats = (int)ot_options_integer(options, "repeats"),
                                      .json = ot_options_json(options)};
  OT_CHECK(settings.unit_s > 0, OT_USAGE, "--unit-ms %g is not positive", 1e3 * settings.unit_s);
  return run(&settings);
}

static const ot_option options[] = {
    {"unit-ms", OT_OPTION_REAL, "N", "20", .help = "duration of F, I and W of a stage in ms"},
    {"repeats", OT_OPTION_INTEGER, "R", "3", 1, MAX_REPEATS, .help = "repetitions per median"},
};

const ot_verb ot_bench_program = {
    .prefix = OT_BENCH_PREFIX,
    .name = "pipeline",
    .summary = "pipeline schedules on sleeping threads, compared with their closed forms",
    .arguments = "",
    .options = options,
    .num_options = OT_COUNT(options),
    .json = true,
    .run = run_program,
};
