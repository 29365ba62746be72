// SPDX-License-Identifier: Apache-2.0
// Events: a generator's decode step or pause ends, training ends, the trainer has published. After
// each, the trainer takes a batch if it can, and idle generators begin a step.
#include "simulate/rl_flow.h"

#include <string.h>

#include "base/extremes.h"

typedef struct sample_group sample_group;

typedef struct flow_sequence {
  ot_rl_sequence shared;  // first
  sample_group *group;
  struct flow_sequence *next;  // unused ones
} flow_sequence;

struct sample_group {
  int64_t id;
  int started, done, kept;
  ot_rl_sequence **members;  // [kept] that have ended and were not lost
  sample_group *next;        // in the queue, or unused
};

typedef struct generator {
  bool failed, busy;
  double start_s, end_s;   // of the step or pause
  int64_t version;         // of its weights
  int64_t started;         // sequences since it took them
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
  ot_arena *arena;
  double now_s;
  int64_t version, started;
  int num_generators;
  generator *generators;
  trainer_state trainer;
  double trainer_end_s;
  ot_rl_sequence **batch;  // [fleet.batch] in training
  int batch_count;
  sample_group *open;  // some members have not started
  sample_group *first, *last;
  int64_t queued;  // groups
  sample_group *spare_groups;
  flow_sequence *spare_sequences;
  double record_from_s;
  ot_rl_record record;
};

// ---- description ----

static ot_status check_costs(const ot_rl_costs *cost) {
  OT_CHECK(cost->decode_s > 0, OT_USAGE, "rl: a decode step takes %g s; allowed: above 0",
           cost->decode_s);
  OT_CHECK(cost->row_s >= 0 && cost->train_token_s >= 0 && cost->publish_s >= 0, OT_USAGE,
           "rl: costs of %g s a row, %g s a trained token, %g s to publish; allowed: 0 or more",
           cost->row_s, cost->train_token_s, cost->publish_s);
  return OT_OK;
}

ot_status ot_rl_fleet_check(const ot_rl_fleet *fleet) {
  const bool in_flight = fleet->updates == OT_RL_IN_FLIGHT;
  OT_CHECK(fleet->workers >= (in_flight ? 2 : 1), OT_USAGE,
           "rl.workers=%d; allowed: %s (try updates: synchronous on one)", fleet->workers,
           in_flight ? "2 or more with updates in flight" : "1 or more");
  OT_CHECK(!in_flight || (fleet->generators >= 1 && fleet->generators < fleet->workers), OT_USAGE,
           "rl.generators=%d of %d workers; allowed: 1 to %d, the others train", fleet->generators,
           fleet->workers, fleet->workers - 1);
  OT_CHECK(fleet->slots >= 1 && fleet->group >= 1, OT_USAGE,
           "rl.slots=%d, rl.group=%d; allowed: 1 or more", fleet->slots, fleet->group);
  OT_CHECK(fleet->batch >= fleet->group && fleet->batch % fleet->group == 0, OT_USAGE,
           "rl.batch=%d is not whole groups of %d (try %d)", fleet->batch, fleet->group,
           fleet->group * (int)ot_larger_whole(1, fleet->batch / fleet->group));
  OT_CHECK(fleet->queue >= fleet->batch, OT_USAGE,
           "rl.queue=%d sequences hold no batch of %d; allowed: %d or more", fleet->queue,
           fleet->batch, fleet->batch);
  OT_CHECK(fleet->max_lag >= 0, OT_USAGE, "rl.max_lag=%d; allowed: 0 (no bound) or more",
           fleet->max_lag);
  return check_costs(&fleet->cost);
}

int ot_rl_fleet_generators(const ot_rl_fleet *fleet) {
  return fleet->updates == OT_RL_SYNCHRONOUS ? fleet->workers : fleet->generators;
}

int ot_rl_fleet_trainers(const ot_rl_fleet *fleet) {
  return fleet->updates == OT_RL_SYNCHRONOUS ? fleet->workers : fleet->workers - fleet->generators;
}

ot_status ot_rl_flow_create(const ot_rl_flow_request *request, ot_arena *arena, ot_rl_flow **out) {
  const ot_rl_fleet *const fleet = request->fleet;
  OT_TRY(ot_rl_fleet_check(fleet));
  ot_rl_flow *const f = ot_arena_take(arena, sizeof *f);
  *f = (ot_rl_flow){.fleet = fleet,
                    .actions = request->actions,
                    .request = *request,
                    .arena = arena,
                    .num_generators = ot_rl_fleet_generators(fleet)};
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

// ---- groups and sequences ----

static sample_group *begin_group(ot_rl_flow *f) {
  sample_group *group = f->spare_groups;
  if (group) {
    f->spare_groups = group->next;
  } else {
    group = ot_arena_take(f->arena, sizeof *group);
    group->members = ot_arena_array(f->arena, f->fleet->group, sizeof *group->members);
  }
  ot_rl_sequence **const members = group->members;
  *group = (sample_group){.id = f->started / f->fleet->group, .members = members};
  return group;
}

static void end_group(ot_rl_flow *f, sample_group *group) {
  group->next = f->spare_groups;
  f->spare_groups = group;
}

static ot_rl_sequence *begin_sequence(ot_rl_flow *f) {
  if (!f->open) f->open = begin_group(f);
  sample_group *const group = f->open;
  flow_sequence *sequence = f->spare_sequences;
  if (sequence) {
    f->spare_sequences = sequence->next;
  } else {
    sequence = ot_arena_take(f->arena, sizeof *sequence);
    sequence->shared.versions =
        ot_arena_array(f->arena, f->request.max_tokens, sizeof *sequence->shared.versions);
  }
  int32_t *const versions = sequence->shared.versions;
  *sequence = (flow_sequence){.group = group,
                              .shared = {.id = group->id * f->fleet->group + group->started,
                                         .group = group->id,
                                         .versions = versions}};
  f->started++;
  if (++group->started == f->fleet->group) f->open = NULL;
  return &sequence->shared;
}

static void end_sequence(ot_rl_flow *f, ot_rl_sequence *shared) {
  flow_sequence *const sequence = (flow_sequence *)shared;
  sequence->next = f->spare_sequences;
  f->spare_sequences = sequence;
}

static void drop_sequence(ot_rl_flow *f, ot_rl_sequence *sequence) {
  f->record.dropped++;
  f->actions->drop(f->actions->context, sequence);
  end_sequence(f, sequence);
}

// An advantage compares samples of a prompt, so one alone teaches nothing.
static bool is_useful(const ot_rl_flow *f, const sample_group *group) {
  return group->kept >= (f->fleet->group > 1 ? 2 : 1);
}

static void drop_members(ot_rl_flow *f, sample_group *group) {
  for (int i = 0; i < group->kept; i++) drop_sequence(f, group->members[i]);
  end_group(f, group);
}

// A member has ended, or (`sequence` null) was lost.
static void take_member(ot_rl_flow *f, sample_group *group, ot_rl_sequence *sequence) {
  if (sequence) {
    int at = group->kept++;
    for (; at > 0 && group->members[at - 1]->id > sequence->id; at--) {
      group->members[at] = group->members[at - 1];
    }
    group->members[at] = sequence;
  }
  if (++group->done < f->fleet->group) return;
  if (!is_useful(f, group)) {
    drop_members(f, group);
    return;
  }
  for (int i = 0; i < group->kept; i++) {
    ot_rl_sequence *const member = group->members[i];
    f->record.wait_s += (f->now_s - member->end_s) * (double)member->tokens;
    f->record.first_wait_s += f->now_s - member->end_s;
  }
  if (f->last) f->last->next = group;
  if (!f->first) f->first = group;
  f->last = group;
  f->queued++;
}

static bool is_old(const ot_rl_flow *f, const ot_rl_sequence *sequence) {
  const int64_t bound = f->fleet->max_lag;
  return bound > 0 && sequence->tokens > 0 && sequence->versions[0] + bound < f->version;
}

static ot_status lose(ot_rl_flow *f, generator *g, int slot) {
  ot_rl_sequence *const sequence = g->slots[slot];
  g->slots[slot] = NULL;
  sequence->cancelled = true;
  f->record.cancelled++;
  OT_TRY(f->actions->cancel(f->actions->context, sequence));
  sample_group *const group = ((flow_sequence *)sequence)->group;
  end_sequence(f, sequence);
  take_member(f, group, NULL);
  return OT_OK;
}

// ---- the trainer ----

// Drops members that are too old by now; returns whether the group is still useful.
static bool renew(ot_rl_flow *f, sample_group *group) {
  int kept = 0;
  for (int i = 0; i < group->kept; i++) {
    if (is_old(f, group->members[i])) {
      drop_sequence(f, group->members[i]);
    } else {
      group->members[kept++] = group->members[i];
    }
  }
  group->kept = kept;
  return is_useful(f, group);
}

static void renew_queue(ot_rl_flow *f) {
  sample_group *next, *group = f->first;
  f->first = f->last = NULL;
  f->queued = 0;
  for (; group; group = next) {
    next = group->next;
    group->next = NULL;
    if (!renew(f, group)) {
      drop_members(f, group);
      continue;
    }
    if (f->last) f->last->next = group;
    if (!f->first) f->first = group;
    f->last = group;
    f->queued++;
  }
}

static void take_batch(ot_rl_flow *f) {
  const int64_t groups = f->fleet->batch / f->fleet->group;
  if (f->trainer != IDLE || f->queued < groups) return;
  renew_queue(f);
  if (f->queued < groups) return;
  double tokens = 0;
  f->batch_count = 0;
  for (int64_t i = 0; i < groups; i++) {
    sample_group *const group = f->first;
    f->first = group->next;
    if (!f->first) f->last = NULL;
    f->queued--;
    for (int k = 0; k < group->kept; k++) {
      f->batch[f->batch_count++] = group->members[k];
      tokens += (double)group->members[k]->tokens;
    }
    end_group(f, group);
  }
  const double train_s = tokens * f->fleet->cost.train_token_s / ot_rl_fleet_trainers(f->fleet);
  f->record.left_sum += (double)(f->queued * f->fleet->group);
  f->trainer = TRAINING;
  f->trainer_end_s = f->now_s + train_s;
  f->record.trainer_s += train_s;
}

static void record_lags(ot_rl_flow *f, const ot_rl_sequence *sequence) {
  ot_rl_record *const record = &f->record;
  record->sequences++;
  record->tokens += sequence->tokens;
  for (int64_t i = 0; i < sequence->tokens; i++) {
    const int64_t lag = f->version - sequence->versions[i];
    record->lags[ot_smaller_whole(lag, OT_RL_LAGS - 1)]++;
    record->lag_sum += (double)lag;
    record->lag_max = ot_larger_whole(record->lag_max, lag);
    if (i == 0) record->first_lag_sum += (double)lag;
  }
}

static ot_status end_training(ot_rl_flow *f) {
  OT_TRY(f->actions->train(f->actions->context, f->batch, f->batch_count, f->version));
  for (int i = 0; i < f->batch_count; i++) {
    record_lags(f, f->batch[i]);
    end_sequence(f, f->batch[i]);
  }
  f->record.updates++;
  f->record.time_s = f->now_s - f->record_from_s;
  if (++f->version == f->request.warmup) {
    memset(&f->record, 0, sizeof f->record);
    f->record_from_s = f->now_s;
  }
  f->trainer = PUBLISHING;
  f->trainer_end_s = f->now_s + f->fleet->cost.publish_s;
  f->record.publish_s += f->fleet->cost.publish_s;
  return OT_OK;
}

// ---- generators ----

// Synchronous: an equal share of the batch for each generator that has not failed.
static bool is_in_share(const ot_rl_flow *f, const generator *g) {
  int64_t there = 0;
  for (int i = 0; i < f->num_generators; i++) there += !f->generators[i].failed;
  return f->started < f->fleet->batch * (f->version + 1) && g->started * there < f->fleet->batch;
}

static bool may_start(const ot_rl_flow *f, const generator *g) {
  if (f->fleet->updates == OT_RL_SYNCHRONOUS) return is_in_share(f, g);
  return f->open || f->queued * f->fleet->group < f->fleet->queue;
}

static ot_status fill_slots(ot_rl_flow *f, int index) {
  generator *const g = &f->generators[index];
  for (int slot = 0; slot < f->fleet->slots && may_start(f, g); slot++) {
    if (g->slots[slot]) continue;
    ot_rl_sequence *const sequence = begin_sequence(f);
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

static ot_status take_token(ot_rl_flow *f, generator *g, int i) {
  ot_rl_sequence *const sequence = g->running[i];
  if (g->progress[i] == OT_RL_NO_TOKEN) return OT_OK;
  OT_CHECK(sequence->tokens < f->request.max_tokens, OT_BUG, "rl: sequence %lld is too long",
           (long long)sequence->id);
  sequence->versions[sequence->tokens++] = (int32_t)g->version;
  f->record.made_tokens++;
  if (g->progress[i] == OT_RL_LAST_TOKEN) {
    g->slots[sequence->slot] = NULL;
    sequence->end_s = f->now_s;
    take_member(f, ((flow_sequence *)sequence)->group, sequence);
  } else if (is_old(f, sequence)) {
    return lose(f, g, sequence->slot);
  }
  return OT_OK;
}

static ot_status end_step(ot_rl_flow *f, int index) {
  generator *const g = &f->generators[index];
  g->busy = false;
  const double step_s = f->now_s - g->start_s;
  if (g->num_running > 0) f->record.generators_s += step_s;
  f->record.slots_s += step_s * g->num_running;
  for (int i = 0; i < g->num_running; i++) OT_TRY(take_token(f, g, i));
  return OT_OK;
}

static ot_status fail_generators(ot_rl_flow *f) {
  for (int i = 0; i < f->request.num_failures; i++) {
    const ot_rl_failure *const failure = &f->request.failures[i];
    generator *const g = &f->generators[failure->generator];
    if (failure->at_s > f->now_s || g->failed) continue;
    g->failed = true;
    g->busy = false;
    for (int slot = 0; slot < f->fleet->slots; slot++) {
      if (g->slots[slot]) OT_TRY(lose(f, g, slot));
    }
  }
  return OT_OK;
}

// ---- events ----

static ot_status wake(ot_rl_flow *f) {
  take_batch(f);
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

double ot_rl_flow_time_s(const ot_rl_flow *flow) { return flow->now_s; }

int64_t ot_rl_flow_version(const ot_rl_flow *flow) { return flow->version; }

const ot_rl_record *ot_rl_flow_record(const ot_rl_flow *flow) { return &flow->record; }

double ot_rl_record_lag(const ot_rl_record *record) {
  return record->tokens > 0 ? record->lag_sum / (double)record->tokens : 0;
}

int64_t ot_rl_record_lag_quantile(const ot_rl_record *record, double share) {
  double seen = 0;
  for (int64_t lag = 0; lag < OT_RL_LAGS; lag++) {
    seen += record->lags[lag];
    if (seen >= share * (double)record->tokens) return lag;
  }
  return OT_RL_LAGS - 1;
}
