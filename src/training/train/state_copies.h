// SPDX-License-Identifier: Apache-2.0
// Copies in memory as the loop uses them (`checkpoint.memory`): whether the run starts from them,
// when they are made, when they are removed. Without room for them a run goes on without. Private
// to train/. All functions are collective over the world unless stated otherwise.
#pragma once

#include "train/session.h"

typedef struct ot_state_copies {
  bool on;   // copies are made
  bool due;  // one became due while a rank was busy with the last
} ot_state_copies;

// Opens start->memory, if the run has copies in memory and the hosts a place for them.
ot_status ot_state_copies_open(const ot_loop_request *request, ot_arena *arena,
                               ot_loop_start *start);

// Loads the newest copies that are not older than the checkpoint found, and sets
// start->from_memory. Says why newer ones cannot be used.
ot_status ot_state_copies_load(const ot_loop_request *request, ot_arena *arena,
                               ot_loop_start *start);

// Reserves memory, before the first step.
ot_status ot_state_copies_begin(ot_state_copies *copies, const ot_session *s);

// Whether this rank is busy with a copy. Local, does not block.
bool ot_state_copies_busy(const ot_state_copies *copies, const ot_session *s);

// After a step: makes a copy if one is due and no rank is `busy`. Local.
void ot_state_copies_make_due(ot_state_copies *copies, const ot_session *s, bool busy);

// The run went back to a checkpoint: copies of what it had after it do not belong to it.
ot_status ot_state_copies_turn(const ot_state_copies *copies, const ot_session *s);

// The last state is on the disk: removes the copies, and reports what they took.
void ot_state_copies_end(const ot_session *s);
