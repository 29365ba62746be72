// SPDX-License-Identifier: Apache-2.0
// All decisions are made at create from the accesses of each order: which bytes must stay
// untouched, and which die after each entry. For the small arenas of tests.
#include "execute/guard.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "host/heap.h"
#include "schedule/access.h"

enum { PATTERN = 0xFF };  // NaN in every floating type, -1 in every integer

typedef struct guarded_order {
  ot_access_list list;
  int64_t *first;  // [num_entries + 1] the accesses of entry e: first[e] to first[e + 1] - 1
  bool *dies;      // [list.count] no later entry reads these bytes
  bool *held;      // [num_entries] a message of the entry is in flight
} guarded_order;

// Bytes [begin, end) of memory.
typedef struct byte_range {
  int64_t begin, end;
} byte_range;

struct ot_guard {
  const ot_schedule *schedule;
  unsigned char *memory;
  byte_range *canaries;  // [num_canaries] where neither an operand nor the host may write
  int64_t num_canaries;
  ot_heap heap;
  guarded_order *orders;  // [num_orders]
  int order;              // the running order
  int64_t touched;
};

static bool is_transient(const ot_access *access) {
  return !ot_base_is_defined(access->base) && access->base != OT_BASE_RESULT &&
         access->base != OT_BASE_GRADIENT && access->base != OT_BASE_GRADIENT_PIECE &&
         access->base != OT_BASE_TIED_GRADIENT && access->base != OT_BASE_STATISTIC &&
         access->base != OT_BASE_EXPERTS && access->base != OT_BASE_SQUARES &&
         access->base != OT_BASE_UPDATES;
}

// True when the next later entry that touches any byte of the access only writes it, or none does.
static bool dies_after(const ot_access_list *list, int64_t index) {
  const ot_access *const access = &list->accesses[index];
  for (int64_t i = index + 1; i < list->count; i++) {
    const ot_access *const later = &list->accesses[i];
    if (later->entry == access->entry) continue;
    if (later->begin >= access->end || access->begin >= later->end) continue;
    if (later->kind != OT_ACCESS_WRITE) return false;
    // Only part is overwritten: the rest may still be read, so keep all of it.
    if (later->begin > access->begin || later->end < access->end) return false;
    return true;
  }
  return true;
}

// Marks the bytes of the order in `covered` [arena_bytes].
static void build_order(ot_guard *guard, int order, char *covered, ot_arena *arena) {
  guarded_order *const made = &guard->orders[order];
  ot_access_list_build(guard->schedule, order, arena, &made->list);
  const int entries = guard->schedule->orders[order].num_entries;
  made->first = ot_arena_array(arena, entries + 1, sizeof *made->first);
  made->dies = ot_arena_array(arena, made->list.count + 1, sizeof(bool));
  made->held = ot_arena_array(arena, entries + 1, sizeof(bool));
  for (int64_t e = 0, i = 0; e <= entries; e++) {
    while (i < made->list.count && made->list.accesses[i].entry < e) i++;
    made->first[e] = i;
  }
  for (int64_t i = 0; i < made->list.count; i++) {
    const ot_access *const access = &made->list.accesses[i];
    memset(covered + access->begin, 1, (size_t)(access->end - access->begin));
    made->dies[i] = is_transient(access) && dies_after(&made->list, i);
  }
}

// True for tied weights of which the rank uses a part although the host writes all.
static bool is_tied_copy(const ot_schedule *schedule, const ot_region *region) {
  for (int i = 0; i < schedule->num_blocks; i++) {
    const ot_bucket *const bucket = &schedule->buckets[i];
    for (int copy = 0; copy < OT_BUCKET_COPIES && !bucket->counted; copy++) {
      const ot_bucket_range *const range = &bucket->copy[copy];
      if (range->count > 0 && range->offset == region->offset) return true;
    }
  }
  return false;
}

// Covers the regions that the host writes: batches, scalars, and moments, which are zeroed bucket
// by bucket.
static void cover_host_writes(const ot_schedule *schedule, char *covered) {
  for (int i = 0; i < schedule->num_regions; i++) {
    const ot_region *const region = &schedule->regions[i];
    const bool host =
        ot_text_equal(region->name, "batch") || ot_text_equal(region->name, "scalars") ||
        ot_text_starts_with(region->name, "moment_") || is_tied_copy(schedule, region);
    if (host) memset(covered + region->offset, 1, (size_t)region->bytes);
  }
}

// Advances `at` past a run of equal marks and returns true; false at the end.
static bool next_run(const char *covered, int64_t bytes, int64_t *at) {
  if (*at == bytes) return false;
  const char *const other = memchr(covered + *at, !covered[*at], (size_t)(bytes - *at));
  *at = other ? other - covered : bytes;
  return true;
}

static void find_canaries(ot_guard *guard, const char *covered, ot_arena *arena) {
  const int64_t bytes = guard->schedule->arena_bytes;
  int64_t runs = 0;
  for (int64_t at = 0; next_run(covered, bytes, &at);) runs++;
  guard->canaries = ot_arena_array(arena, runs + 1, sizeof *guard->canaries);
  int64_t begin = 0;
  for (int64_t at = 0; next_run(covered, bytes, &at); begin = at) {
    if (!covered[begin]) guard->canaries[guard->num_canaries++] = (byte_range){begin, at};
  }
}

ot_status ot_guard_create(const ot_schedule *schedule, char *memory, ot_guard **guard) {
  ot_guard *const made = calloc(1, sizeof *made);
  OT_CHECK(made, OT_ENVIRONMENT, "guard: out of memory");
  *guard = made;
  made->schedule = schedule;
  made->memory = (unsigned char *)memory;
  char *const covered = calloc((size_t)schedule->arena_bytes + 1, 1);
  OT_CHECK(covered, OT_ENVIRONMENT, "guard: out of memory");
  ot_arena arena = ot_heap_arena_create(&made->heap);
  made->orders = ot_arena_array(&arena, schedule->num_orders + 1, sizeof *made->orders);
  for (int i = 0; i < schedule->num_orders; i++) build_order(made, i, covered, &arena);
  cover_host_writes(schedule, covered);
  find_canaries(made, covered, &arena);
  free(covered);
  memset(memory, PATTERN, (size_t)schedule->arena_bytes);
  return OT_OK;
}

void ot_guard_destroy(ot_guard **guard) {
  if (!guard || !*guard) return;
  ot_heap_release(&(*guard)->heap);
  free(*guard);
  *guard = NULL;
}

void ot_guard_begin(ot_guard *guard, int order) {
  guard->order = order;
  const ot_schedule *const schedule = guard->schedule;
  for (int i = 0; i < schedule->orders[order].num_entries; i++) {
    guard->orders[order].held[i] = false;
  }
  for (int i = 0; i < schedule->num_regions; i++) {
    const ot_region *const region = &schedule->regions[i];
    const bool mine = region->order == (int)schedule->orders[order].kind;
    if (region->persistent || !mine || ot_text_equal(region->name, "batch")) continue;
    memset(guard->memory + region->offset, PATTERN, (size_t)region->bytes);
  }
}

// The first byte of [range] that lacks the pattern; range.end: none.
static int64_t first_changed(const ot_guard *guard, byte_range range) {
  const unsigned char *const memory = guard->memory;
  const size_t bytes = (size_t)(range.end - range.begin);
  if (bytes == 0) return range.end;
  // All bytes are the pattern if the first is and each equals the next: a fast comparison.
  const unsigned char *const first = memory + range.begin;
  if (*first == PATTERN && memcmp(first, first + 1, bytes - 1) == 0) return range.end;
  int64_t at = range.begin;
  while (memory[at] == PATTERN) at++;
  return at;
}

static void update_touched(ot_guard *guard) {
  const int64_t bytes = guard->schedule->arena_bytes;
  const byte_range above = {guard->touched, bytes};
  if (first_changed(guard, above) == bytes) return;
  guard->touched = bytes;
  while (guard->memory[guard->touched - 1] == PATTERN) guard->touched--;
}

static ot_status check_canaries(const ot_guard *guard, int entry) {
  const ot_schedule *const schedule = guard->schedule;
  for (int64_t i = 0; i < guard->num_canaries; i++) {
    const int64_t changed = first_changed(guard, guard->canaries[i]);
    if (changed == guard->canaries[i].end) continue;
    const int segment = schedule->orders[guard->order].entries[entry].segment;
    return ot_fail(OT_BUG, "guard: entry %d (%s) wrote byte %lld, which belongs to no buffer",
                   entry, schedule->segments[segment].name, (long long)changed);
  }
  return OT_OK;
}

// True if a message in flight reads or writes some of these bytes.
static bool is_held(const guarded_order *order, const ot_access *access) {
  for (int64_t i = 0; i < order->list.count; i++) {
    const ot_access *const other = &order->list.accesses[i];
    if (!order->held[other->entry]) continue;
    if (other->begin < access->end && access->begin < other->end) return true;
  }
  return false;
}

// A receive may write at any time, so its bytes count as touched from now on and are not checked.
void ot_guard_hold(ot_guard *guard, int index) {
  const guarded_order *const order = &guard->orders[guard->order];
  order->held[index] = true;
  for (int64_t i = order->first[index]; i < order->first[index + 1]; i++) {
    const ot_access *const access = &order->list.accesses[i];
    const bool received = access->kind != OT_ACCESS_READ;
    if (received && access->end > guard->touched) guard->touched = access->end;
  }
}

bool ot_guard_holds(const ot_guard *guard, int index) {
  return guard->orders[guard->order].held[index];
}

ot_status ot_guard_after(ot_guard *guard, int index) {
  const guarded_order *const order = &guard->orders[guard->order];
  order->held[index] = false;
  update_touched(guard);
  for (int64_t i = order->first[index]; i < order->first[index + 1]; i++) {
    const ot_access *const access = &order->list.accesses[i];
    if (!order->dies[i] || is_held(order, access)) continue;
    memset(guard->memory + access->begin, PATTERN, (size_t)(access->end - access->begin));
  }
  return check_canaries(guard, index);
}

int64_t ot_guard_touched_bytes(const ot_guard *guard) { return guard->touched; }
