// SPDX-License-Identifier: Apache-2.0
// State between updates: weights, moments and master weights of a rank are written only by the
// update of a step. They are hashed after a step and again before the next update, so that any
// change in between (a memory fault, or a stray write, also during validation or a checkpoint save)
// is detected, even in shards without a replica.
#pragma once

#include "train/loop.h"

typedef struct ot_state_watch ot_state_watch;

// The caller has ot_state_watch_before_update called before the updates of each step
// (ot_executor_set_pause). Keeps `trainer` until destroy.
ot_status ot_state_watch_create(ot_trainer *trainer, ot_state_watch **out);
void ot_state_watch_destroy(ot_state_watch **watch);

// Compares, if the state was hashed after the step before. Local.
void ot_state_watch_before_update(ot_state_watch *watch);

// Hashes the state; the next step compares before it updates. Local. Costs one pass over the state.
void ot_state_watch_take(ot_state_watch *watch);

// The result of the step since then, on all ranks: the tensors of the first rank with a difference.
// `findings` is unchanged if no step was compared. Collective over the world. Blocks.
ot_status ot_state_watch_report(ot_state_watch *watch, ot_arena *arena, ot_loop_findings *findings);
