// SPDX-License-Identifier: Apache-2.0
// Stragglers of a running loop. The windows of all ranks end at the same step, and their medians
// travel in the meeting of that step (loop.c), so that all ranks find the same one.
#include "base/backend_rules.h"
#include "base/text.h"
#include "describe/moe.h"
#include "train/loop_events.h"
#include "train/loop_state.h"

void ot_loop_begin_stragglers(ot_loop *l) {
  ot_world *const world = l->request->world;
  const int size = ot_world_size(world);
  const ot_runtime *const runtime = ot_trainer_runtime(l->start.trainer);
  const bool by_data = l->run->model.moe.num_experts > 0 && l->run->parallel.ep > 1;
  const bool timed = !ot_backend_rules_of(ot_runtime_backend(runtime))->queued;
  ot_rank_times *const t = &l->rank_times;
  *t = (ot_rank_times){.on = size >= OT_STRAGGLER_PEERS && !by_data && timed};
  t->meeting = ot_arena_array(l->arena, OT_WORLD_VALUES + size, sizeof *t->meeting);
  t->scratch = ot_arena_array(l->arena, size, sizeof *t->scratch);
  t->work = ot_arena_array(l->arena, size, sizeof *t->work);
  for (int i = 0; i < size && size > 1; i++) {
    t->work[i] = ot_mesh_coordinate(ot_world_mesh(world), i, OT_AXIS_PP);
  }
}

int ot_loop_put_time(ot_loop *l, double step_s, double *values) {
  ot_rank_times *const t = &l->rank_times;
  const int size = ot_world_size(l->request->world);
  if (!t->on) return 0;
  ot_straggler_add(&t->window, step_s);
  if (!ot_straggler_is_full(&t->window)) return 0;
  for (int i = 0; i < size; i++) values[i] = 0;
  values[ot_world_rank(l->request->world)] = ot_straggler_take(&t->window);
  return size;
}

ot_status ot_loop_report_straggler(ot_loop *l, int64_t step, const double *values) {
  ot_rank_times *const t = &l->rank_times;
  ot_world *const world = l->request->world;
  char host[OT_WORLD_TEXT] = "";
  double slowdown;
  const int rank = ot_straggler_find(values, t->work, ot_world_size(world), t->scratch, &slowdown);
  if (!ot_straggler_confirm(&t->history, rank)) return OT_OK;
  if (rank == ot_world_rank(world)) {
    ot_text_format(host, sizeof host, "%s", ot_comm_host(ot_world_comm(world)));
  }
  OT_TRY(ot_world_broadcast_from(world, rank, host));
  ot_loop_note(l->request,
               "step %lld: rank %d on %s computes %.2f times as long as the median of its peers "
               "(CPU time, last %d steps, and often before)",
               (long long)step, rank, host, slowdown, OT_STRAGGLER_WINDOW);
  const ot_run_event event = {.kind = OT_RUN_EVENT_STRAGGLER,
                              .step = step,
                              .rank = rank,
                              .host = host,
                              .slowdown = slowdown};
  ot_loop_log(&l->start, &event);
  return OT_OK;
}
