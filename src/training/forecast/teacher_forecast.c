// SPDX-License-Identifier: Apache-2.0
#include "forecast/teacher_forecast.h"

#include "base/quantity.h"
#include "base/text.h"
#include "describe/engine.h"
#include "distill/distiller.h"
#include "host/heap.h"
#include "simulate/shared_cores.h"
#include "simulate/simulate.h"

// ---- the price ----

static ot_status plan_teacher(const ot_run *run, const ot_cluster *cluster, int threads,
                              ot_arena *arena, ot_teacher_price *out) {
  ot_schedule *const schedule = ot_arena_take(arena, sizeof *schedule);
  const ot_schedule *const one[] = {schedule};
  const ot_pipeline_replay stages = {
      .schedules = one, .num_stages = 1, .kind = ot_order_of_mode(OT_MODE_SCORE)};
  const ot_teacher_request own = {.run = run,
                                  .ids = ot_teacher_ids(run),
                                  .threads = threads,
                                  .backend = ot_device_kind_backend(&cluster->device)};
  const ot_simulation machine =
      ot_simulation_of(cluster, ot_engine_style(&ot_engine_orthant, &cluster->device), OT_F32);
  ot_timeline timeline;
  double stretch;
  OT_TRY(ot_teacher_plan(&own, arena, schedule, &out->parameters));
  OT_TRY(ot_schedules_simulate_shared(&stages, &machine, arena, &timeline, &stretch));
  out->micro_batch_s = ot_timeline_summarize(&timeline, schedule).total_s;
  out->bytes = schedule->memory.peak_bytes;
  return OT_OK;
}

ot_status ot_teacher_price_find(const ot_run *run, const ot_cluster *cluster, int threads,
                                ot_teacher_price *out) {
  *out = (ot_teacher_price){0};
  if (!ot_run_has_live_teacher(run)) return OT_OK;
  ot_heap heap = {0};
  ot_arena scratch = ot_heap_arena_create(&heap);
  const ot_status status = plan_teacher(run, cluster, threads, &scratch, out);
  ot_heap_release(&heap);
  return status;
}

// ---- prices for many plans ----

// Prices that were found: splits of a fleet ask for the same ones.
typedef struct teacher_prices {
  ot_arena *arena;
  int64_t count, capacity;
  struct known_teacher {
    ot_run_distill of;
    int64_t micro_batch_size;
    ot_teacher_price price;
  } * known;  // [count]
} teacher_prices;

static bool costs_same(const ot_run_distill *a, const ot_run_distill *b) {
  return ot_text_equal(a->teacher, b->teacher) && a->objective == b->objective &&
         a->draws == b->draws && a->targets == b->targets && (a->alpha < 1) == (b->alpha < 1);
}

static ot_status price_teacher(void *context, const ot_run *run, const ot_cluster *cluster,
                               int threads, ot_teacher_price *out) {
  teacher_prices *const t = context;
  const int64_t size = run->batch.micro_batch_size;
  for (int64_t i = 0; i < t->count; i++) {
    *out = t->known[i].price;
    if (t->known[i].micro_batch_size == size && costs_same(&t->known[i].of, &run->distill))
      return OT_OK;
  }
  OT_TRY(ot_teacher_price_find(run, cluster, threads, out));
  t->known = ot_arena_grow(t->arena, t->known, t->count, &t->capacity, sizeof *t->known);
  t->known[t->count++] = (struct known_teacher){run->distill, size, *out};
  return OT_OK;
}

const ot_teacher_pricer *ot_teacher_pricer_create(ot_arena *arena) {
  teacher_prices *const prices = ot_arena_array(arena, 1, sizeof *prices);
  ot_teacher_pricer *const pricer = ot_arena_array(arena, 1, sizeof *pricer);
  prices->arena = arena;
  *pricer = (ot_teacher_pricer){price_teacher, prices};
  return pricer;
}

// ---- a dry run ----

static ot_status open_answers(const ot_teacher_forecast_request *request, ot_arena *arena,
                              ot_teacher_forecast *out) {
  const ot_run *const run = request->run;
  ot_distiller *distiller = NULL;
  const ot_distiller_request opened = {
      .run = run, .loader = request->loader, .threads = 1, .loads = true};
  OT_TRY(ot_distiller_create(&opened, &distiller));
  ot_distiller_destroy(&distiller);
  if (run->distill.from == OT_DISTILL_SERVER) {
    out->note =
        ot_arena_format(arena, "what %s takes to answer is not in the prices", run->distill.server);
  }
  return OT_OK;
}

static ot_status plan_live(const ot_teacher_forecast_request *request, ot_arena *arena,
                           ot_teacher_forecast *out) {
  const ot_run *const run = request->run;
  int64_t parameters = 0;
  ot_schedule *const schedule = ot_arena_take(arena, sizeof *schedule);
  const ot_teacher_request teacher = {.run = run,
                                      .ids = ot_teacher_ids(run),
                                      .threads = request->threads,
                                      .backend = request->backend};
  OT_TRY(ot_teacher_plan(&teacher, arena, schedule, &parameters));
  const bool writes = ot_run_teacher_judges(run);
  const int64_t own = writes ? ot_model_parameters(&run->model) : 0;
  const int64_t bytes = ot_dtype_bytes(ot_run_compute(&run->precision));
  const int ranks = ot_run_teacher_ranks(run);
  out->bytes = schedule->memory.peak_bytes + own * bytes;
  out->note =
      ot_arena_format(arena, "a teacher of %ld parameters%s: %s more on %s", parameters,
                      writes ? " and a copy of the model" : "", ot_figure_bytes(arena, out->bytes),
                      ranks == 0 ? "each rank with the head"
                                 : ot_arena_format(arena, "each of %d ranks of its own", ranks));
  return OT_OK;
}

ot_status ot_teacher_forecast_build(const ot_teacher_forecast_request *request, ot_arena *arena,
                                    ot_teacher_forecast *out) {
  *out = (ot_teacher_forecast){0};
  if (ot_run_weighted_targets(request->run) == 0) return OT_OK;
  return ot_run_has_live_teacher(request->run) ? plan_live(request, arena, out)
                                               : open_answers(request, arena, out);
}
