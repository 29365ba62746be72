// SPDX-License-Identifier: Apache-2.0
// Memory checks of test builds, run between entries: the arena is filled with a pattern before the
// step, ranges that no operand covers must keep it (canaries between buffers), and memory whose
// last reader has run is filled again, so that a read of a dead buffer meets NaN.
#pragma once

#include "schedule/schedule.h"

typedef struct ot_guard ot_guard;

// Keeps `schedule` and `memory` [arena_bytes] until destroy; fills the memory.
ot_status ot_guard_create(const ot_schedule *schedule, char *memory, ot_guard **guard);
void ot_guard_destroy(ot_guard **guard);

// Before an order: fills everything that is not persistent, except the batch that the host loaded.
void ot_guard_begin(ot_guard *guard, int order);

// Messages of entry `index` are under way: what they read or write is left alone until
// ot_guard_after says that they are done. ot_guard_holds: they still are.
void ot_guard_hold(ot_guard *guard, int index);
bool ot_guard_holds(const ot_guard *guard, int index);

// After entry `index`: re-fills what died, checks the canaries. OT_BUG names the entry that wrote
// where it must not.
ot_status ot_guard_after(ot_guard *guard, int index);

// Highest byte ever seen changed, plus one.
int64_t ot_guard_touched_bytes(const ot_guard *guard);
