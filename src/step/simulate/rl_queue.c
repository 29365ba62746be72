// SPDX-License-Identifier: Apache-2.0
#include "simulate/rl_queue.h"

#include "base/extremes.h"

typedef struct queued_sequence {
  ot_rl_sequence shared;  // first
  ot_rl_group *group;
  struct queued_sequence *next;  // unused ones
} queued_sequence;

// ---- the fleet ----

// Workers that take turns do both.
static bool takes_turns(const ot_rl_fleet *fleet) {
  return fleet->updates == OT_RL_SYNCHRONOUS && !fleet->apart;
}

static ot_status check_costs(const ot_rl_costs *cost) {
  OT_CHECK(cost->decode_s > 0, OT_USAGE, "rl: a decode step takes %g s; allowed: above 0",
           cost->decode_s);
  OT_CHECK(cost->row_s >= 0 && cost->train_token_s >= 0 && cost->publish_s >= 0, OT_USAGE,
           "rl: costs of %g s a row, %g s a trained token, %g s to publish; allowed: 0 or more",
           cost->row_s, cost->train_token_s, cost->publish_s);
  return OT_OK;
}

ot_status ot_rl_fleet_check(const ot_rl_fleet *fleet) {
  const bool apart = !takes_turns(fleet), in_flight = fleet->updates == OT_RL_IN_FLIGHT;
  OT_CHECK(fleet->workers >= (apart ? 2 : 1), OT_USAGE,
           "rl.workers=%d; allowed: %s (try updates: synchronous on one)", fleet->workers,
           apart ? "2 or more with updates in flight" : "1 or more");
  OT_CHECK(!apart || (fleet->generators >= 1 && fleet->generators < fleet->workers), OT_USAGE,
           "rl.generators=%d of %d workers; allowed: 1 to %d, the others train", fleet->generators,
           fleet->workers, fleet->workers - 1);
  OT_CHECK(fleet->slots >= 1 && fleet->group >= 1, OT_USAGE,
           "rl.slots=%d, rl.group=%d; allowed: 1 or more", fleet->slots, fleet->group);
  OT_CHECK(fleet->batch >= fleet->group && fleet->batch % fleet->group == 0, OT_USAGE,
           "rl.batch=%d is not whole groups of %d (try %d)", fleet->batch, fleet->group,
           fleet->group * (int)ot_larger_whole(1, fleet->batch / fleet->group));
  OT_CHECK(in_flight || !apart || fleet->batch >= fleet->group * fleet->generators, OT_USAGE,
           "rl.batch=%d has no group of %d for each of %d generators (try %d)", fleet->batch,
           fleet->group, fleet->generators, fleet->group * fleet->generators);
  OT_CHECK(fleet->queue >= fleet->batch, OT_USAGE,
           "rl.queue=%d sequences hold no batch of %d; allowed: %d or more", fleet->queue,
           fleet->batch, fleet->batch);
  OT_CHECK(fleet->max_lag >= 0, OT_USAGE, "rl.max_lag=%d; allowed: 0 (no bound) or more",
           fleet->max_lag);
  return check_costs(&fleet->cost);
}

int ot_rl_fleet_generators(const ot_rl_fleet *fleet) {
  return takes_turns(fleet) ? fleet->workers : fleet->generators;
}

int ot_rl_fleet_trainers(const ot_rl_fleet *fleet) {
  return takes_turns(fleet) ? fleet->workers : fleet->workers - fleet->generators;
}

double ot_rl_fleet_train_s(const ot_rl_fleet *fleet, double tokens) {
  const ot_rl_costs *const cost = &fleet->cost;
  return cost->train_batch_s + tokens * cost->train_token_s / ot_rl_fleet_trainers(fleet);
}

int64_t ot_rl_fleet_share(const ot_rl_fleet *fleet, int there) {
  const int64_t groups = (fleet->queue + fleet->group - 1) / fleet->group;
  return (groups + there - 1) / ot_larger_whole(1, there);
}

// ---- groups and sequences ----

ot_rl_group *ot_rl_queue_open(ot_rl_queue *queue, int64_t id) {
  ot_rl_group *group = queue->spare_groups;
  if (group) {
    queue->spare_groups = group->next;
  } else {
    group = ot_arena_take(queue->arena, sizeof *group);
    group->members = ot_arena_array(queue->arena, queue->fleet->group, sizeof *group->members);
  }
  ot_rl_sequence **const members = group->members;
  *group = (ot_rl_group){.id = id, .members = members};
  return group;
}

int64_t ot_rl_queue_waiting(const ot_rl_queue *queue, int generator) {
  int64_t waiting = 0;
  for (const ot_rl_group *g = queue->first; g; g = g->next) {
    waiting += g->id % queue->fleet->generators == generator;
  }
  return waiting;
}

static void end_group(ot_rl_queue *queue, ot_rl_group *group) {
  group->next = queue->spare_groups;
  queue->spare_groups = group;
}

ot_rl_sequence *ot_rl_queue_begin(ot_rl_queue *queue, ot_rl_group *group) {
  queued_sequence *sequence = queue->spare_sequences;
  if (sequence) {
    queue->spare_sequences = sequence->next;
  } else {
    sequence = ot_arena_take(queue->arena, sizeof *sequence);
    sequence->shared.versions =
        ot_arena_array(queue->arena, queue->max_tokens, sizeof *sequence->shared.versions);
  }
  int32_t *const versions = sequence->shared.versions;
  *sequence = (queued_sequence){.group = group,
                                .shared = {.id = group->id * queue->fleet->group + group->started,
                                           .group = group->id,
                                           .versions = versions}};
  group->started++;
  return &sequence->shared;
}

static void end_sequence(ot_rl_queue *queue, ot_rl_sequence *shared) {
  queued_sequence *const sequence = (queued_sequence *)shared;
  sequence->next = queue->spare_sequences;
  queue->spare_sequences = sequence;
}

static void drop_sequence(ot_rl_queue *queue, ot_rl_sequence *sequence) {
  queue->record.dropped++;
  queue->drop(queue->context, sequence);
  end_sequence(queue, sequence);
}

// An advantage compares samples of a prompt, so one alone teaches nothing.
static bool is_useful(const ot_rl_queue *queue, const ot_rl_group *group) {
  return group->kept >= (queue->fleet->group > 1 ? 2 : 1);
}

static void drop_members(ot_rl_queue *queue, ot_rl_group *group) {
  for (int i = 0; i < group->kept; i++) drop_sequence(queue, group->members[i]);
  end_group(queue, group);
}

// Synchronous batches of generators that are apart have their groups by number, in any order.
static bool insert(ot_rl_queue *queue, ot_rl_group *group) {
  ot_rl_group **at = &queue->first;
  if (queue->fleet->updates != OT_RL_SYNCHRONOUS || !queue->fleet->apart) return false;
  while (*at && (*at)->id < group->id) at = &(*at)->next;
  if (!*at) return false;
  group->next = *at;
  *at = group;
  queue->queued++;
  return true;
}

static void append(ot_rl_queue *queue, ot_rl_group *group) {
  if (insert(queue, group)) return;
  group->next = NULL;
  if (queue->last) queue->last->next = group;
  if (!queue->first) queue->first = group;
  queue->last = group;
  queue->queued++;
}

// One more member has ended or was lost.
static void count_member(ot_rl_queue *queue, ot_rl_group *group, double now_s) {
  if (++group->done < queue->fleet->group) return;
  if (!is_useful(queue, group)) {
    drop_members(queue, group);
    return;
  }
  for (int i = 0; i < group->kept; i++) {
    const ot_rl_sequence *const member = group->members[i];
    queue->record.wait_s += (now_s - member->end_s) * (double)member->tokens;
    queue->record.first_wait_s += now_s - member->end_s;
  }
  append(queue, group);
}

void ot_rl_queue_end(ot_rl_queue *queue, ot_rl_sequence *sequence, double now_s) {
  ot_rl_group *const group = ((queued_sequence *)sequence)->group;
  int at = group->kept++;
  for (; at > 0 && group->members[at - 1]->id > sequence->id; at--) {
    group->members[at] = group->members[at - 1];
  }
  group->members[at] = sequence;
  count_member(queue, group, now_s);
}

void ot_rl_queue_lose(ot_rl_queue *queue, ot_rl_sequence *sequence, double now_s) {
  ot_rl_group *const group = ((queued_sequence *)sequence)->group;
  queue->record.cancelled++;
  end_sequence(queue, sequence);
  count_member(queue, group, now_s);
}

// ---- batches ----

bool ot_rl_queue_is_old(const ot_rl_queue *queue, const ot_rl_sequence *sequence, int64_t version) {
  const int64_t bound = queue->fleet->max_lag;
  return bound > 0 && sequence->tokens > 0 && sequence->versions[0] + bound < version;
}

// Drops members that are too old by now; returns whether the group is still useful.
static bool renew_group(ot_rl_queue *queue, ot_rl_group *group, int64_t version) {
  int kept = 0;
  for (int i = 0; i < group->kept; i++) {
    if (ot_rl_queue_is_old(queue, group->members[i], version)) {
      drop_sequence(queue, group->members[i]);
    } else {
      group->members[kept++] = group->members[i];
    }
  }
  group->kept = kept;
  return is_useful(queue, group);
}

static void renew(ot_rl_queue *queue, int64_t version) {
  ot_rl_group *next, *group = queue->first;
  queue->first = queue->last = NULL;
  queue->queued = 0;
  for (; group; group = next) {
    next = group->next;
    if (renew_group(queue, group, version)) {
      append(queue, group);
    } else {
      drop_members(queue, group);
    }
  }
}

int ot_rl_queue_take(ot_rl_queue *queue, int64_t version, ot_rl_sequence **batch) {
  const int64_t groups = queue->fleet->batch / queue->fleet->group - queue->missing;
  if (queue->queued < groups) return 0;
  renew(queue, version);
  if (queue->queued < groups) return 0;
  int count = 0;
  for (int64_t i = 0; i < groups; i++) {
    ot_rl_group *const group = queue->first;
    queue->first = group->next;
    if (!queue->first) queue->last = NULL;
    queue->queued--;
    for (int k = 0; k < group->kept; k++) batch[count++] = group->members[k];
    end_group(queue, group);
  }
  queue->record.left_sum += (double)(queue->queued * queue->fleet->group);
  return count;
}

void ot_rl_record_add(ot_rl_record *record, const ot_rl_sequence *sequence, int64_t version) {
  record->sequences++;
  record->tokens += sequence->tokens;
  for (int64_t i = 0; i < sequence->tokens; i++) {
    const int64_t lag = version - sequence->versions[i];
    record->lags[ot_smaller_whole(lag, OT_RL_LAGS - 1)]++;
    record->lag_sum += (double)lag;
    record->lag_max = ot_larger_whole(record->lag_max, lag);
    if (i == 0) record->first_lag_sum += (double)lag;
  }
}

void ot_rl_queue_trained(ot_rl_queue *queue, ot_rl_sequence *const *batch, int count,
                         int64_t version) {
  for (int i = 0; i < count; i++) {
    ot_rl_record_add(&queue->record, batch[i], version);
    end_sequence(queue, batch[i]);
  }
  queue->record.updates++;
}

// ---- the record ----

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
