// SPDX-License-Identifier: Apache-2.0
// The part of RL's flow that no clock belongs to: the fleet, groups of samples from their start
// until they are trained on, the bound of their lag, and the record of what happened. The simulated
// clock (rl_flow.h) and the real one (rl/real_clock.h) have it in common. Pure.
#pragma once

#include "base/arena.h"
#include "base/status.h"
#include "describe/rl.h"

typedef struct ot_rl_fleet {
  ot_rl_updates updates;
  int workers;     // in all, >= 1; in flight >= 2
  int generators;  // of these; the others train. Synchronous: ignored
  int slots;       // sequences that a generator decodes at once, >= 1
  int group;       // samples of a prompt, >= 1
  int batch;       // sequences of an update, whole groups
  int queue;       // generators start no sequence while that many wait, >= batch
  int max_lag;     // versions; a sequence with an older token is dropped. 0: no bound
  bool recompute;  // with new weights, K and V of running sequences are computed again
  // As on the real clock: generators are apart from the trainers with synchronous updates, too, and
  // each makes groups of its own, those whose number is its own modulo `generators`.
  bool apart;
  ot_rl_costs cost;
} ot_rl_fleet;

// OT_USAGE names a value out of range.
ot_status ot_rl_fleet_check(const ot_rl_fleet *fleet);

// Time of training on a batch of `tokens` generated tokens.
double ot_rl_fleet_train_s(const ot_rl_fleet *fleet, double tokens);

// Workers that generate and that train.
int ot_rl_fleet_generators(const ot_rl_fleet *fleet);
int ot_rl_fleet_trainers(const ot_rl_fleet *fleet);

// Groups that may wait of one generator's, where each makes its own and `there` go on.
int64_t ot_rl_fleet_share(const ot_rl_fleet *fleet, int there);

// A sequence from its start until it was trained on.
typedef struct ot_rl_sequence {
  int64_t id;     // in order of starts: group * fleet.group + member
  int64_t group;  // prompts in order of starts
  int generator, slot;
  int64_t prompt_tokens, tokens;  // of the prompt, and generated so far
  int32_t *versions;              // [tokens] of the weights that made each generated token
  double end_s;                   // when it ended
  bool cancelled;                 // ended early; is not trained on
  void *data;                     // the caller's
} ot_rl_sequence;

enum { OT_RL_LAGS = 1024 };  // lags of that and more are counted together

// The counts from a given update on.
typedef struct ot_rl_record {
  int64_t updates, sequences, tokens;  // trained on
  int64_t made_tokens;                 // generated
  int64_t cancelled, dropped;          // sequences
  double time_s;                       // until the last update
  double lags[OT_RL_LAGS];             // tokens trained on, by lag
  double lag_sum, first_lag_sum;       // of tokens, and of first tokens
  int64_t lag_max;
  double slots_s;       // time integral of sequences that decode
  double generators_s;  // busy time of all generators
  double trainer_s, publish_s;
  double left_sum;  // over updates: sequences in the queue after a batch was taken
  // From the end of a sequence to that of its group: sums over tokens and over sequences.
  double wait_s, first_wait_s;
} ot_rl_record;

double ot_rl_record_lag(const ot_rl_record *record);  // mean over tokens
// The smallest lag that `share` of the tokens do not exceed.
int64_t ot_rl_record_lag_quantile(const ot_rl_record *record, double share);

// Counts a sequence that was trained on with weights of `version`.
void ot_rl_record_add(ot_rl_record *record, const ot_rl_sequence *sequence, int64_t version);

// ---- the queue ----

// All samples of a prompt.
typedef struct ot_rl_group {
  int64_t id;
  int started, done, kept;
  ot_rl_sequence **members;  // [kept] that have ended and were not lost, by id
  struct ot_rl_group *next;  // in the queue, or unused
} ot_rl_group;

typedef struct ot_rl_queue {
  const ot_rl_fleet *fleet;
  int64_t max_tokens;  // of a sequence, generated
  ot_arena *arena;     // sequences and groups that are gone are used again
  // A sequence will not be used: too old, or without another sample of its prompt. Gone after the
  // call.
  void (*drop)(void *context, ot_rl_sequence *sequence);
  void *context;
  ot_rl_group *first, *last;  // whole groups that wait
  int64_t queued;             // groups
  int64_t missing;            // groups that the next batch goes without
  ot_rl_record record;        // but times
  ot_rl_group *spare_groups;
  struct queued_sequence *spare_sequences;
} ot_rl_queue;

ot_rl_group *ot_rl_queue_open(ot_rl_queue *queue, int64_t id);

// Groups that wait of those that a generator has made, where each makes its own.
int64_t ot_rl_queue_waiting(const ot_rl_queue *queue, int generator);

// The next member of a group.
ot_rl_sequence *ot_rl_queue_begin(ot_rl_queue *queue, ot_rl_group *group);

// A sequence has ended, at end_s, or was lost (then it is gone after the call); with its group it
// waits, from now_s on if it was the last one.
void ot_rl_queue_end(ot_rl_queue *queue, ot_rl_sequence *sequence, double now_s);
void ot_rl_queue_lose(ot_rl_queue *queue, ot_rl_sequence *sequence, double now_s);

// Whether its oldest token is out of bounds for weights of `version`.
bool ot_rl_queue_is_old(const ot_rl_queue *queue, const ot_rl_sequence *sequence, int64_t version);

// Takes the groups of a batch [fleet.batch], if there are enough that are not too old; members of a
// group are neighbours. Returns their number, or 0.
int ot_rl_queue_take(ot_rl_queue *queue, int64_t version, ot_rl_sequence **batch);

// The batch was trained on with weights of `version`; its sequences are gone after the call.
void ot_rl_queue_trained(ot_rl_queue *queue, ot_rl_sequence *const *batch, int count,
                         int64_t version);
