// SPDX-License-Identifier: Apache-2.0
// Bump allocator of aligned offsets, with guard bytes for canaries in tests.
#include "schedule/regions.h"

#include "schedule/layout.h"

static int64_t append(ot_region_map *map, ot_region region) {
  ot_schedule *const schedule = map->schedule;
  schedule->regions = ot_arena_grow(map->arena, schedule->regions, schedule->num_regions,
                                    &map->capacity, sizeof *schedule->regions);
  region.offset = map->top;
  schedule->regions[schedule->num_regions++] = region;
  const int64_t end = region.offset + region.bytes;
  if (end > schedule->arena_bytes) schedule->arena_bytes = end;
  map->top += ot_align(region.bytes) + ot_align(schedule->guard_bytes);
  return region.offset;
}

int64_t ot_region_persistent(ot_region_map *map, ot_memory_class class, int64_t bytes,
                             const char *name) {
  OT_ASSERT(map->top == map->persistent_end);
  const int64_t offset = append(
      map,
      (ot_region){.name = name, .class = class, .persistent = true, .order = -1, .bytes = bytes});
  map->persistent_end = map->top;
  map->schedule->memory.class_bytes[class] += map->top - offset;
  return offset;
}

void ot_region_begin_order(ot_region_map *map) { map->top = map->persistent_end; }

int64_t ot_region_transient(ot_region_map *map, ot_memory_class class, ot_order_kind order,
                            int64_t bytes, const char *name) {
  const int64_t offset =
      append(map, (ot_region){.name = name, .class = class, .order = (int)order, .bytes = bytes});
  if (order == OT_ORDER_STEP) map->schedule->memory.class_bytes[class] += map->top - offset;
  return offset;
}
