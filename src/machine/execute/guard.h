// SPDX-License-Identifier: Apache-2.0
// Memory checks of test builds, run between entries. The arena is filled with a pattern before the
// step; ranges that no operand covers must keep it (canaries between buffers); memory is refilled
// after its last reader, so that a read of a dead buffer returns NaN.
#pragma once

#include "schedule/schedule.h"

typedef struct ot_guard ot_guard;

// Keeps `schedule` and `memory` [arena_bytes] until destroy; fills the memory.
ot_status ot_guard_create(const ot_schedule *schedule, char *memory, ot_guard **guard);
void ot_guard_destroy(ot_guard **guard);

// Before an order: fills everything that is not persistent, except the batch that the host loaded.
void ot_guard_begin(ot_guard *guard, int order);

// Messages of entry `index` are in flight: their bytes are left alone until ot_guard_after reports
// them done. ot_guard_holds: true while they are in flight.
void ot_guard_hold(ot_guard *guard, int index);
bool ot_guard_holds(const ot_guard *guard, int index);

// After entry `index`: refills dead memory and checks the canaries. OT_BUG names the entry that
// wrote outside its buffers.
ot_status ot_guard_after(ot_guard *guard, int index);

// Highest byte ever changed, plus one.
int64_t ot_guard_touched_bytes(const ot_guard *guard);
