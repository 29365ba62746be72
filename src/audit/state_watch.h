// SPDX-License-Identifier: Apache-2.0
// State at rest: weights, moments and master weights of a rank are written by the update of a step
// and not again before that of the next. They are hashed after a step and once more before the next
// update, so that whatever changes them in between (a bit of memory, a stray write, of validation
// or of a checkpoint that is being saved, too) is found, also in pieces that no other rank has.
#pragma once

#include "train/loop.h"

typedef struct ot_state_watch ot_state_watch;

// Steps of `trainer` pause before their update from now on, as ot_executor_set_pause, until the
// trainer is destroyed or the pause is taken back; only then may the watch be destroyed.
ot_status ot_state_watch_create(ot_trainer *trainer, ot_state_watch **out);
void ot_state_watch_destroy(ot_state_watch **watch);

// Hashes the state; the next step compares before it updates. Local. Costs one pass over the state.
void ot_state_watch_take(ot_state_watch *watch);

// What the step since then has seen, on all ranks: the tensors of the first rank that saw any.
// `findings` is left alone when no step was compared. Collective over the world. Blocks.
ot_status ot_state_watch_report(ot_state_watch *watch, ot_arena *arena, ot_loop_findings *findings);
