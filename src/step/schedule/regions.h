// SPDX-License-Identifier: Apache-2.0
// Map of the arena while a schedule is built: persistent regions in sequence, followed by the
// regions of each order, which overlap each other.
#pragma once

#include "schedule/schedule.h"

typedef struct ot_region_map {
  ot_schedule *schedule;
  ot_arena *arena;
  int64_t capacity;
  int64_t persistent_end;
  int64_t top;  // end of the order's regions so far
} ot_region_map;

// Appends a persistent region of `bytes`; not after the first order region. Returns its offset.
int64_t ot_region_persistent(ot_region_map *map, ot_memory_class class, int64_t bytes,
                             const char *name);

// Starts the regions of another order over the same addresses.
void ot_region_begin_order(ot_region_map *map);

// Appends a region to the current order; returns its offset.
int64_t ot_region_transient(ot_region_map *map, ot_memory_class class, ot_order_kind order,
                            int64_t bytes, const char *name);
