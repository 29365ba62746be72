// SPDX-License-Identifier: Apache-2.0
// Finds silent faults of a run that learns from rewards, in a few updates of it:
//   drift       with a learning rate of 0 all versions of the weights are equal, so every ratio of
//               trainer and generator must be 1 within rounding, whatever the lag
//   weights     a generator has the trainer's weights, bit for bit, after each take
//   rewards     judged again, they are the same (not of a command)
//   advantages  each is the reward less the mean of the others of its group
// and what keeping the cache costs: ratios with keys and values kept, and computed again.
#pragma once

#include "rl/rl_run.h"

enum { OT_RL_FINDINGS = 4 };

// The ratios of tokens to the weights before their update, means over updates.
typedef struct ot_rl_ratios {
  double lag, ess, kl;
} ot_rl_ratios;

typedef struct ot_rl_audit {
  int num_findings;
  const char *findings[OT_RL_FINDINGS];  // sentences, in the arena
  double drift, drift_bound;             // mean |log r| with equal weights
  ot_rl_ratios kept, recomputed;
} ot_rl_audit;

// Runs `updates` updates of `run` four times, from its initial weights; writes nothing.
ot_status ot_rl_audit_run(const ot_run *run, int64_t updates, const ot_rl_faults *faults,
                          ot_arena *arena, ot_rl_audit *out);
