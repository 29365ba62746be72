// SPDX-License-Identifier: Apache-2.0
// A hash for each tensor of this rank and each copy of it.
#include "audit/state_watch.h"

#include <stdlib.h>

#include "audit/replica_units.h"
#include "base/text.h"

struct ot_state_watch {
  ot_trainer *trainer;
  ot_runtime *runtime;
  ot_heap heap;
  ot_arena arena;
  ot_unit_list list;
  bool *watched;          // [list.num_units]
  ot_unit_hasher hasher;  // of the watched units
  int64_t *taken, *now;   // [list.num_units] hashes after a step and before the next update
  int64_t step;           // after which the hashes were taken; -1: never
  bool armed;             // the next update is compared with them
  int differ, first;      // number of units that differ; the first of them
};

void ot_state_watch_before_update(ot_state_watch *watch) {
  ot_state_watch *const w = watch;
  if (!w->armed) return;
  w->armed = false;
  ot_unit_hasher_run(&w->hasher, w->now);
  for (int i = w->list.num_units - 1; i >= 0; i--) {
    if (!w->watched[i] || w->now[i] == w->taken[i]) continue;
    w->differ++;
    w->first = i;
  }
}

ot_status ot_state_watch_create(ot_trainer *trainer, ot_state_watch **out) {
  ot_state_watch *const w = calloc(1, sizeof *w);
  ot_world *const world = ot_trainer_world(trainer);
  OT_TRY(ot_world_agree(world, w ? OT_OK : ot_fail(OT_ENVIRONMENT, "out of memory for an audit")));
  w->trainer = trainer;
  w->step = -1;
  w->runtime = ot_trainer_runtime(trainer);
  w->arena = ot_heap_arena_create(&w->heap);
  ot_units_list(w->runtime, ot_world_mesh(world), ot_world_rank(world), &w->arena, &w->list);
  const int n = w->list.num_units;
  w->taken = ot_arena_array(&w->arena, n + 1, sizeof *w->taken);
  w->now = ot_arena_array(&w->arena, n + 1, sizeof *w->now);
  w->watched = ot_arena_array(&w->arena, n + 1, sizeof *w->watched);
  for (int i = 0; i < n; i++) {
    const ot_unit_kind kind = w->list.units[i].kind;
    w->watched[i] = kind < OT_UNIT_SCALAR && kind != OT_UNIT_GRADIENT;
  }
  ot_unit_hasher_build(w->runtime, &w->list, w->watched, &w->arena, &w->hasher);
  *out = w;
  return OT_OK;
}

void ot_state_watch_destroy(ot_state_watch **watch) {
  if (!watch || !*watch) return;
  ot_heap_release(&(*watch)->heap);
  free(*watch);
  *watch = NULL;
}

void ot_state_watch_take(ot_state_watch *watch) {
  ot_unit_hasher_run(&watch->hasher, watch->taken);
  watch->step = ot_trainer_position(watch->trainer).step;
  watch->armed = true;
  watch->differ = 0;
}

static void describe(const ot_state_watch *w, char *text) {
  const ot_unit *const unit = &w->list.units[w->first];
  ot_text_format(text, OT_WORLD_TEXT,
                 "%s of %s on rank %d changed after the update of step %lld (%d tensor%s "
                 "of this rank)",
                 ot_unit_kind_name(unit->kind), ot_unit_name(w->runtime, unit->kind, unit->index),
                 ot_world_rank(ot_trainer_world(w->trainer)), (long long)w->step, w->differ,
                 ot_text_plural(w->differ, "s"));
}

// The number of ranks with a difference, and the message of the first of them.
static ot_status collect(const ot_state_watch *w, ot_arena *arena, int *count, char *text) {
  ot_world *const world = ot_trainer_world(w->trainer);
  const int ranks = ot_world_size(world);
  int64_t *const all = ot_arena_array(arena, ranks, sizeof *all);
  int first = -1;
  OT_TRY(ot_world_allgather(world, w->differ, all));
  for (int i = ranks - 1; i >= 0; i--) {
    if (all[i] == 0) continue;
    first = i;
    ++*count;
  }
  return first >= 0 ? ot_world_broadcast_from(world, first, text) : OT_OK;
}

ot_status ot_state_watch_report(ot_state_watch *watch, ot_arena *arena,
                                ot_loop_findings *findings) {
  char text[OT_WORLD_TEXT] = "";
  int count = 0;
  if (watch->step < 0 || ot_trainer_position(watch->trainer).step != watch->step + 1) return OT_OK;
  if (watch->differ > 0) describe(watch, text);
  OT_TRY(collect(watch, arena, &count, text));
  *findings = (ot_loop_findings){.audit = "state", .count = count};
  if (count == 0) return OT_OK;
  findings->worst = ot_arena_format(arena, "%s", text);
  findings->text = ot_arena_format(
      arena,
      "state: finding\nfinding 1: state_changed  %s\n  try: check for a memory fault or "
      "a stray write; repeat the steps from the last checkpoint, on another machine if it recurs\n",
      text);
  return OT_OK;
}
