// SPDX-License-Identifier: Apache-2.0
// Entries are compared by segment and bases when an executor is created.
#include "execute/pieces.h"

#include <string.h>

// Whether task `i`, in a piece that began at `first`, can run without waiting: what `first` waited
// for is done.
static bool goes_on(const ot_task *first, const ot_task *task) {
  return task->kind == OT_TASK_COMPUTE && task->wait <= first->wait;
}

static int *find_lengths(const ot_segment *segment, ot_arena *arena) {
  int *const length = ot_arena_array(arena, segment->num_tasks + 1, sizeof *length);
  for (int i = 0; i < segment->num_tasks;) {
    int end = i;
    while (end < segment->num_tasks && goes_on(&segment->tasks[i], &segment->tasks[end])) end++;
    if (end - i > 1) length[i] = end - i;  // one kernel is as fast as a graph
    i = end > i ? end : i + 1;
  }
  return length;
}

static bool same_work(const ot_entry *a, const ot_entry *b) {
  return a->segment == b->segment && a->lane == b->lane &&
         memcmp(a->base, b->base, sizeof a->base) == 0;
}

// Entries of a segment so far that differ, the latest first.
typedef struct known {
  const ot_entry *entry;
  int variant;
  struct known *next;
} known;

static int variant_of(ot_pieces *pieces, ot_arena *arena, known **list, const ot_entry *entry) {
  for (const known *k = *list; k; k = k->next) {
    if (same_work(k->entry, entry)) return k->variant;
  }
  known *const added = ot_arena_array(arena, 1, sizeof *added);
  *added = (known){.entry = entry, .variant = pieces->num_variants, .next = *list};
  *list = added;
  const int tasks = pieces->schedule->segments[entry->segment].num_tasks;
  pieces->piece[added->variant] = ot_arena_array(arena, tasks + 1, sizeof(ot_piece));
  pieces->tasks[added->variant] = tasks;
  return pieces->num_variants++;
}

static int count_entries(const ot_schedule *schedule) {
  int count = 0;
  for (int i = 0; i < schedule->num_orders; i++) count += schedule->orders[i].num_entries;
  return count;
}

void ot_pieces_create(const ot_schedule *schedule, ot_arena *arena, ot_pieces *pieces) {
  const int entries = count_entries(schedule);
  *pieces = (ot_pieces){
      .schedule = schedule,
      .length = ot_arena_array(arena, schedule->num_segments + 1, sizeof(int *)),
      .variant = ot_arena_array(arena, schedule->num_orders + 1, sizeof(int *)),
      .piece = ot_arena_array(arena, entries + 1, sizeof(ot_piece *)),
      .tasks = ot_arena_array(arena, entries + 1, sizeof(int)),
  };
  known **const lists = ot_arena_array(arena, schedule->num_segments + 1, sizeof(known *));
  for (int i = 0; i < schedule->num_segments; i++) {
    pieces->length[i] = find_lengths(&schedule->segments[i], arena);
  }
  for (int i = 0; i < schedule->num_orders; i++) {
    const ot_order *const order = &schedule->orders[i];
    pieces->variant[i] = ot_arena_array(arena, order->num_entries + 1, sizeof(int));
    for (int k = 0; k < order->num_entries; k++) {
      const ot_entry *const entry = &order->entries[k];
      pieces->variant[i][k] = variant_of(pieces, arena, &lists[entry->segment], entry);
    }
  }
}

ot_piece *ot_pieces_at(const ot_pieces *pieces, int order, int entry, int task, int *length) {
  if (!pieces->piece) return NULL;
  const int segment = pieces->schedule->orders[order].entries[entry].segment;
  *length = pieces->length[segment][task];
  return *length > 0 ? &pieces->piece[pieces->variant[order][entry]][task] : NULL;
}

void ot_pieces_count(const ot_pieces *pieces, int *captured, int *refused) {
  *captured = *refused = 0;
  for (int i = 0; i < pieces->num_variants; i++) {
    for (int k = 0; k < pieces->tasks[i]; k++) {
      *captured += pieces->piece[i][k].captured != NULL;
      *refused += pieces->piece[i][k].refused;
    }
  }
}

void ot_pieces_forget(ot_pieces *pieces) {
  for (int i = 0; i < pieces->num_variants; i++) {
    for (int k = 0; k < pieces->tasks[i]; k++) {
      ot_captured_destroy(&pieces->piece[i][k].captured);
      pieces->piece[i][k] = (ot_piece){0};
    }
  }
}

void ot_pieces_destroy(ot_pieces *pieces) {
  ot_pieces_forget(pieces);
  pieces->piece = NULL;
}
