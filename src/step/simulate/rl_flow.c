// SPDX-License-Identifier: Apache-2.0
// Events: a generator's decode step or pause ends, training ends, the trainer has published. After
// each, the trainer takes a batch if it can, and idle generators begin a step.
#include "simulate/rl_flow.h"

#include <string.h>

#include "base/extremes.h"

typedef struct generator {
  bool failed, busy;
  double start_s, end_s;   // of the step or pause
  int64_t version;         // of its weights
  int64_t started;         // sequences since it took them
  int64_t groups;          // apart: that it has begun
  ot_rl_group *open;       // apart: some members have not started
  int num_running;         // in the step; 0: a pause
  ot_rl_sequence **slots;  // [slots] or null
  ot_rl_sequence **running;
  ot_rl_progress *progress;
} generator;

typedef enum trainer_state { IDLE, TRAINING, PUBLISHING } trainer_state;

struct ot_rl_flow {
  const ot_rl_fleet *fleet;
  const ot_rl_actions *actions;
  ot_rl_flow_request request;
  double now_s;
  int64_t version, started;
  int num_generators;
  generator *generators;
  trainer_state trainer;
  double trainer_end_s;
  ot_rl_sequence **batch;  // [fleet.batch] in training
  int batch_count;
  ot_rl_group *open;  // some members have not started, unless generators are apart
  ot_rl_queue queue;
  double record_from_s;
  bool resting;  // see ot_rl_flow_rest
};

ot_status ot_rl_flow_create(const ot_rl_flow_request *request, ot_arena *arena, ot_rl_flow **out) {
  const ot_rl_fleet *const fleet = request->fleet;
  OT_TRY(ot_rl_fleet_check(fleet));
  ot_rl_flow *const f = ot_arena_take(arena, sizeof *f);
  *f = (ot_rl_flow){.fleet = fleet,
                    .actions = request->actions,
                    .request = *request,
                    .num_generators = ot_rl_fleet_generators(fleet),
                    .queue = {.fleet = fleet,
                              .max_tokens = request->max_tokens,
                              .arena = arena,
                              .drop = request->actions->drop,
                              .context = request->actions->context}};
  f->generators = ot_arena_array(arena, f->num_generators, sizeof *f->generators);
  f->batch = ot_arena_array(arena, fleet->batch, sizeof *f->batch);
  for (int i = 0; i < f->num_generators; i++) {
    generator *const g = &f->generators[i];
    g->slots = ot_arena_array(arena, fleet->slots, sizeof *g->slots);
    g->running = ot_arena_array(arena, fleet->slots, sizeof *g->running);
    g->progress = ot_arena_array(arena, fleet->slots, sizeof *g->progress);
  }
  *out = f;
  return OT_OK;
}

// ---- the trainer ----

static void start_batch(ot_rl_flow *f) {
  if (f->trainer != IDLE || f->resting) return;
  f->batch_count = ot_rl_queue_take(&f->queue, f->version, f->batch);
  if (f->batch_count == 0) return;
  double tokens = 0;
  for (int i = 0; i < f->batch_count; i++) tokens += (double)f->batch[i]->tokens;
  const double train_s = ot_rl_fleet_train_s(f->fleet, tokens);
  f->trainer = TRAINING;
  f->trainer_end_s = f->now_s + train_s;
  f->queue.record.trainer_s += train_s;
}

static ot_status end_training(ot_rl_flow *f) {
  OT_TRY(f->actions->train(f->actions->context, f->batch, f->batch_count, f->version));
  ot_rl_queue_trained(&f->queue, f->batch, f->batch_count, f->version);
  f->queue.record.time_s = f->now_s - f->record_from_s;
  if (++f->version == f->request.warmup) {
    memset(&f->queue.record, 0, sizeof f->queue.record);
    f->record_from_s = f->now_s;
  }
  f->trainer = PUBLISHING;
  f->trainer_end_s = f->now_s + f->fleet->cost.publish_s;
  f->queue.record.publish_s += f->fleet->cost.publish_s;
  return OT_OK;
}

// ---- generators ----

static int generators_there(const ot_rl_flow *f) {
  int there = 0;
  for (int i = 0; i < f->num_generators; i++) there += !f->generators[i].failed;
  return there;
}

// Synchronous: an equal share of the batch for each generator that has not failed.
static bool is_in_share(const ot_rl_flow *f, const generator *g) {
  return f->started < f->fleet->batch * (f->version + 1) &&
         g->started * generators_there(f) < f->fleet->batch;
}

// The number of the next group that a generator begins, where each makes its own.
static int64_t next_group(const ot_rl_flow *f, int index) {
  return index + f->generators[index].groups * f->num_generators;
}

static bool may_start_apart(const ot_rl_flow *f, int index) {
  const ot_rl_fleet *const fleet = f->fleet;
  if (f->generators[index].open) return true;
  if (fleet->updates == OT_RL_SYNCHRONOUS) {
    return next_group(f, index) * fleet->group < fleet->batch * (f->version + 1);
  }
  return ot_rl_queue_waiting(&f->queue, index) < ot_rl_fleet_share(fleet, generators_there(f));
}

static bool may_start(const ot_rl_flow *f, int index) {
  if (f->resting) return false;
  if (f->fleet->apart) return may_start_apart(f, index);
  if (f->fleet->updates == OT_RL_SYNCHRONOUS) return is_in_share(f, &f->generators[index]);
  return f->open || f->queue.queued * f->fleet->group < f->fleet->queue;
}

static ot_rl_sequence *begin_sequence(ot_rl_flow *f, int index) {
  const bool apart = f->fleet->apart;
  generator *const g = &f->generators[index];
  ot_rl_group **const open = apart ? &g->open : &f->open;
  if (!*open) {
    *open =
        ot_rl_queue_open(&f->queue, apart ? next_group(f, index) : f->started / f->fleet->group);
    g->groups++;
  }
  ot_rl_sequence *const sequence = ot_rl_queue_begin(&f->queue, *open);
  if ((*open)->started == f->fleet->group) *open = NULL;
  f->started++;
  return sequence;
}

static ot_status fill_slots(ot_rl_flow *f, int index) {
  generator *const g = &f->generators[index];
  for (int slot = 0; slot < f->fleet->slots && may_start(f, index); slot++) {
    if (g->slots[slot]) continue;
    ot_rl_sequence *const sequence = begin_sequence(f, index);
    sequence->generator = index;
    sequence->slot = slot;
    g->slots[slot] = sequence;
    g->started++;
    OT_TRY(f->actions->start(f->actions->context, sequence));
  }
  return OT_OK;
}

static ot_status begin_step(ot_rl_flow *f, int index) {
  generator *const g = &f->generators[index];
  ot_rl_decoded decoded = {.progress = g->progress};
  g->start_s = f->now_s;
  g->num_running = 0;
  if (g->version < f->version) {
    OT_TRY(f->actions->take(f->actions->context, index, f->version));
    g->version = f->version;
    g->started = 0;
    g->end_s = f->now_s + f->fleet->cost.publish_s;
    g->busy = f->fleet->cost.publish_s > 0;
    if (g->busy) return OT_OK;
  }
  OT_TRY(fill_slots(f, index));
  for (int i = 0; i < f->fleet->slots; i++) {
    if (g->slots[i]) g->running[g->num_running++] = g->slots[i];
  }
  if (g->num_running == 0) return OT_OK;
  OT_TRY(f->actions->decode(f->actions->context, g->running, g->num_running, &decoded));
  g->busy = true;
  g->end_s = f->now_s + f->fleet->cost.decode_s + f->fleet->cost.row_s * (double)decoded.rows;
  return OT_OK;
}

static ot_status lose(ot_rl_flow *f, generator *g, int slot) {
  ot_rl_sequence *const sequence = g->slots[slot];
  g->slots[slot] = NULL;
  sequence->cancelled = true;
  OT_TRY(f->actions->cancel(f->actions->context, sequence));
  ot_rl_queue_lose(&f->queue, sequence, f->now_s);
  return OT_OK;
}

static ot_status add_token(ot_rl_flow *f, generator *g, int i) {
  ot_rl_sequence *const sequence = g->running[i];
  if (g->progress[i] == OT_RL_NO_TOKEN) return OT_OK;
  OT_CHECK(sequence->tokens < f->request.max_tokens, OT_BUG, "rl: sequence %lld is too long",
           (long long)sequence->id);
  sequence->versions[sequence->tokens++] = (int32_t)g->version;
  f->queue.record.made_tokens++;
  if (g->progress[i] == OT_RL_LAST_TOKEN) {
    g->slots[sequence->slot] = NULL;
    sequence->end_s = f->now_s;
    ot_rl_queue_end(&f->queue, sequence, f->now_s);
  } else if (ot_rl_queue_is_old(&f->queue, sequence, f->version)) {
    return lose(f, g, sequence->slot);
  }
  return OT_OK;
}

static ot_status end_step(ot_rl_flow *f, int index) {
  generator *const g = &f->generators[index];
  g->busy = false;
  const double step_s = f->now_s - g->start_s;
  if (g->num_running > 0) f->queue.record.generators_s += step_s;
  f->queue.record.slots_s += step_s * g->num_running;
  for (int i = 0; i < g->num_running; i++) OT_TRY(add_token(f, g, i));
  return OT_OK;
}

// If it has an open group of its own, the members that have not started are lost, too.
static ot_status fail(ot_rl_flow *f, generator *g) {
  g->failed = true;
  g->busy = false;
  for (int slot = 0; slot < f->fleet->slots; slot++) {
    if (g->slots[slot]) OT_TRY(lose(f, g, slot));
  }
  for (int left = g->open ? f->fleet->group - g->open->started : 0; left > 0; left--) {
    ot_rl_queue_lose(&f->queue, ot_rl_queue_begin(&f->queue, g->open), f->now_s);
  }
  g->open = NULL;
  return OT_OK;
}

static ot_status fail_generators(ot_rl_flow *f) {
  for (int i = 0; i < f->request.num_failures; i++) {
    const ot_rl_failure *const failure = &f->request.failures[i];
    generator *const g = &f->generators[failure->generator];
    if (failure->at_s > f->now_s || g->failed) continue;
    OT_TRY(fail(f, g));
  }
  return OT_OK;
}

// ---- events ----

static ot_status wake(ot_rl_flow *f) {
  start_batch(f);
  for (int i = 0; i < f->num_generators; i++) {
    if (f->generators[i].busy || f->generators[i].failed) continue;
    OT_TRY(begin_step(f, i));
  }
  return OT_OK;
}

enum { NO_EVENT = -2, TRAINER = -1 };

static int next_event(const ot_rl_flow *f) {
  int next = f->trainer == IDLE ? NO_EVENT : TRAINER;
  double at_s = f->trainer_end_s;
  for (int i = 0; i < f->num_generators; i++) {
    const generator *const g = &f->generators[i];
    if (!g->busy || (next != NO_EVENT && g->end_s >= at_s)) continue;
    next = i;
    at_s = g->end_s;
  }
  return next;
}

static ot_status play_event(ot_rl_flow *f, int event) {
  f->now_s = event == TRAINER ? f->trainer_end_s : f->generators[event].end_s;
  OT_TRY(fail_generators(f));
  if (event >= 0) return f->generators[event].busy ? end_step(f, event) : OT_OK;
  if (f->trainer == TRAINING) return end_training(f);
  f->trainer = IDLE;
  return OT_OK;
}

ot_status ot_rl_flow_advance(ot_rl_flow *flow) {
  const int64_t before = flow->version;
  while (flow->version == before) {
    OT_TRY(wake(flow));
    const int event = next_event(flow);
    OT_CHECK(event != NO_EVENT, OT_USAGE,
             "rl: all generators have failed after %lld updates and %lld sequences",
             (long long)flow->version, (long long)flow->started);
    OT_TRY(play_event(flow, event));
  }
  return OT_OK;
}

ot_status ot_rl_flow_rest(ot_rl_flow *flow, ot_rl_flow_point *point) {
  flow->resting = true;
  OT_TRY(wake(flow));
  for (int event; (event = next_event(flow)) != NO_EVENT;) {
    OT_TRY(play_event(flow, event));
    OT_TRY(wake(flow));
  }
  flow->resting = false;
  for (int i = 0; i < flow->num_generators; i++) flow->generators[i].version = -1;
  *point = (ot_rl_flow_point){flow->now_s, flow->record_from_s, flow->version, flow->started,
                              flow->open};
  return OT_OK;
}

void ot_rl_flow_set(ot_rl_flow *flow, const ot_rl_flow_point *point) {
  flow->now_s = point->time_s;
  flow->record_from_s = point->record_from_s;
  flow->version = point->version;
  flow->started = point->started;
  flow->open = point->open;
  for (int i = 0; i < flow->num_generators; i++) flow->generators[i].version = -1;
}

ot_rl_queue *ot_rl_flow_queue(ot_rl_flow *flow) { return &flow->queue; }

double ot_rl_flow_time_s(const ot_rl_flow *flow) { return flow->now_s; }

int64_t ot_rl_flow_version(const ot_rl_flow *flow) { return flow->version; }

const ot_rl_record *ot_rl_flow_record(const ot_rl_flow *flow) { return &flow->queue.record; }
