// SPDX-License-Identifier: Apache-2.0
// The windows of all ranks end at the same step, and their medians are part of the sum of that
// step, so that all ranks find the same straggler.
#include "train/step_exchange.h"

#include <assert.h>
#include <math.h>

#include "base/backend_rules.h"
#include "base/text.h"
#include "describe/moe.h"
#include "runtime/stop_signal.h"

// Places of the values in the sum.
enum {
  EXPOSED = 0,
  PARTS = EXPOSED + OT_TIMELINE_AXES,
  STOP = PARTS + OT_TIMELINE_PARTS,
  BUBBLE,
  SAVES,
  EVERY,
  COPIES,
  WRONG,
  OWN_KERNEL,
  REPLACED,
  TIMES,  // [size], at the end of a window
};
static_assert((int)TIMES <= (int)OT_WORLD_VALUES, "one sum for all values");

void ot_step_exchange_begin(ot_step_exchange *exchange, const ot_session *s) {
  ot_world *const world = s->request->world;
  const int size = ot_world_size(world);
  const bool by_data = s->run->model.moe.num_experts > 0 && s->run->parallel.ep > 1;
  const bool timed = !ot_backend_rules_of(ot_runtime_backend(ot_session_runtime(s)))->queued;
  *exchange =
      (ot_step_exchange){.finds_stragglers = size >= OT_STRAGGLER_PEERS && !by_data && timed};
  exchange->values = ot_arena_array(s->arena, OT_WORLD_VALUES + size, sizeof *exchange->values);
  exchange->scratch = ot_arena_array(s->arena, size, sizeof *exchange->scratch);
  exchange->work = ot_arena_array(s->arena, size, sizeof *exchange->work);
  for (int i = 0; i < size && size > 1; i++) {
    exchange->work[i] = ot_mesh_coordinate(ot_world_mesh(world), i, OT_AXIS_PP);
  }
}

// Adds the time of this rank's step. At the end of a window, fills `times` [size], zero but for
// this rank, and returns true, as on all ranks.
static bool add_time(ot_step_exchange *exchange, const ot_world *world, double step_s,
                     double *times) {
  if (!exchange->finds_stragglers) return false;
  ot_straggler_add(&exchange->window, step_s);
  if (!ot_straggler_is_full(&exchange->window)) return false;
  for (int i = 0; i < ot_world_size(world); i++) times[i] = 0;
  times[ot_world_rank(world)] = ot_straggler_take(&exchange->window);
  return true;
}

static ot_status report_straggler(ot_step_exchange *exchange, const ot_session *s, int64_t step,
                                  const double *times) {
  ot_world *const world = s->request->world;
  char host[OT_WORLD_TEXT] = "";
  double slowdown;
  const int rank =
      ot_straggler_find(times, exchange->work, ot_world_size(world), exchange->scratch, &slowdown);
  if (!ot_straggler_confirm(&exchange->history, rank)) return OT_OK;
  if (rank == ot_world_rank(world)) {
    ot_text_format(host, sizeof host, "%s", ot_comm_host(ot_world_comm(world)));
  }
  OT_TRY(ot_world_broadcast_from(world, rank, host));
  ot_loop_note(s->request,
               "step %lld: rank %d on %s computes %.2f times as long as the median of its peers "
               "(CPU time, last %d steps, and often before)",
               (long long)step, rank, host, slowdown, OT_STRAGGLER_WINDOW);
  const ot_run_event event = {.kind = OT_RUN_EVENT_STRAGGLER,
                              .step = step,
                              .rank = rank,
                              .host = host,
                              .slowdown = slowdown};
  ot_loop_log(&s->start, &event);
  return OT_OK;
}

static void fill(const ot_session *s, const ot_step_own *own, double *values) {
  ot_runtime *const runtime = ot_session_runtime(s);
  const ot_timeline_summary mine =
      ot_timeline_summarize(ot_trainer_timeline(s->start.trainer), ot_runtime_schedule(runtime));
  ot_loop_refusals refused;
  ot_executor_refused_algorithms(ot_runtime_executor(runtime), &refused.own, &refused.replaced);
  for (int i = 0; i < OT_TIMELINE_AXES; i++) values[EXPOSED + i] = mine.exposed_axis_s[i];
  for (int i = 0; i < OT_TIMELINE_PARTS; i++) values[PARTS + i] = mine.part_s[i];
  values[STOP] = ot_stop_signal_seen();
  values[BUBBLE] = mine.bubble_fraction;
  values[SAVES] = own->saves;
  values[EVERY] = (double)own->save_every;
  values[COPIES] = own->copies;
  values[WRONG] = ot_trainer_check_position(s->start.trainer) != OT_OK;
  values[OWN_KERNEL] = refused.own;
  values[REPLACED] = refused.replaced;
}

static void read_sums(const ot_session *s, const double *values, ot_step_sums *sums) {
  // A GPU's step has no timeline unless its events are recorded.
  const bool timed = ot_trainer_timeline(s->start.trainer)->num_spans > 0;
  const double ranks = timed ? ot_world_size(s->request->world) : NAN;
  *sums = (ot_step_sums){.stop = values[STOP] > 0,
                         .saves = values[SAVES] > 0,
                         .copies = values[COPIES] > 0,
                         .save_every = (int64_t)values[EVERY],
                         .refusals = {(int)values[OWN_KERNEL], (int)values[REPLACED]},
                         .figures = {.bubble_fraction = values[BUBBLE] / ranks}};
  for (int i = 0; i < OT_TIMELINE_AXES; i++)
    sums->figures.exposed_axis_s[i] = values[EXPOSED + i] / ranks;
  for (int i = 0; i < OT_TIMELINE_PARTS; i++) sums->figures.part_s[i] = values[PARTS + i] / ranks;
}

ot_status ot_step_exchange_sum(ot_step_exchange *exchange, const ot_session *s,
                               const ot_step_own *own, ot_step_sums *sums) {
  ot_world *const world = s->request->world;
  double *const values = exchange->values;
  fill(s, own, values);
  const bool times = add_time(exchange, world, own->report->compute_s, &values[TIMES]);
  OT_TRY(ot_world_allreduce(world, values, TIMES + (times ? ot_world_size(world) : 0)));
  if (values[WRONG] > 0) OT_TRY(ot_session_check_position(s));
  read_sums(s, values, sums);
  return times ? report_straggler(exchange, s, own->report->step, &values[TIMES]) : OT_OK;
}
