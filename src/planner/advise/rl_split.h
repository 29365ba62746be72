// SPDX-License-Identifier: Apache-2.0
// The split of a fleet for RL with weights in flight: how many workers generate, in how many slots
// each. The closed form (simulate/rl_forecast.h) ranks all splits whose mean lag and cache are
// within bounds; the best are played with the lengths, because dropped sequences and waits for
// groups have no closed form. The fastest is chosen; of those within a hundredth of it, the one
// with the least lag.
#pragma once

#include "simulate/rl_forecast.h"

typedef struct ot_rl_split_request {
  ot_rl_fleet fleet;  // generators 0 and slots 0: to be chosen; updates in flight
  ot_rl_lengths lengths;
  const double *publish_s;         // [workers] by generators, in place of fleet.cost.publish_s, or
                                   // null
  int64_t most_slots;              // of a generator, by its memory; >= 1
  double dollars_per_worker_hour;  // 0: unknown
} ot_rl_split_request;

typedef struct ot_rl_choice {
  ot_rl_fleet fleet;
  ot_rl_forecast closed, played;  // played.updates_per_s 0: not played
  double dollars_per_1000_updates;
} ot_rl_choice;

enum { OT_RL_PLAYED = 8, OT_RL_REASONS = 4 };

typedef struct ot_rl_split {
  int num_choices;        // played, the best first; >= 1
  ot_rl_choice *choices;  // [num_choices]
  ot_rl_choice synchronous;
  int num_reasons;
  const char *reasons[OT_RL_REASONS];  // sentences
} ot_rl_split;

// OT_USAGE for an invalid fleet; OT_FINDINGS if no split keeps the lag within its bound.
ot_status ot_rl_split_build(const ot_rl_split_request *request, ot_arena *arena, ot_rl_split *out);
