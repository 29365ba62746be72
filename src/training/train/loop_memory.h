// SPDX-License-Identifier: Apache-2.0
// Copies in memory as the loop uses them (`checkpoint.memory`): whether the run starts from them,
// when they are made, when they are removed. Without room for them a run goes on without. Private
// to train/loop*.c. All functions are collective over the world unless stated otherwise.
#pragma once

#include "train/loop_start.h"

struct ot_loop;

// Opens start->memory, if the run has copies in memory and the hosts a place for them.
ot_status ot_loop_memory_open(const ot_loop_request *request, ot_arena *arena,
                              ot_loop_start *start);

// Loads the newest copies that are not older than the checkpoint found, and sets
// start->from_memory. Says why newer ones cannot be used.
ot_status ot_loop_memory_load(const ot_loop_request *request, ot_arena *arena,
                              ot_loop_start *start);

// Reserves memory, before the first step.
ot_status ot_loop_memory_begin(struct ot_loop *l);

// Whether this rank is busy with a copy. Local, does not block.
bool ot_loop_memory_busy(const struct ot_loop *l);

// After a step: makes a copy if one is due and no rank is `busy`. Local.
void ot_loop_memory_take_due(struct ot_loop *l, bool busy);

// The run went back to a checkpoint: copies of what it had after it do not belong to it.
ot_status ot_loop_memory_turn(struct ot_loop *l);

// The last state is on the disk: removes the copies, and reports what they took.
void ot_loop_memory_end(struct ot_loop *l);
