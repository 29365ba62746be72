// SPDX-License-Identifier: Apache-2.0
// Implements the source of targets by a distiller, and computes the divergence from the teacher.
#include "distill/distill_source.h"

#include <math.h>
#include <stdlib.h>

#include "distill/distiller.h"
#include "distill/teacher_store.h"
#include "host/heap.h"
#include "runtime/same_file.h"

typedef struct source {
  const ot_run_distill *settings;
  ot_distiller *distiller;
} source;

static ot_status begin(void *context, ot_runtime *runtime, const ot_target_samples *samples) {
  source *const s = context;
  OT_TRY(ot_distiller_renew(s->distiller, runtime));
  return ot_distiller_ask(s->distiller, samples);
}

static ot_status fill(void *context, ot_micro_batch *rows) {
  return ot_distiller_fill(((source *)context)->distiller, rows);
}

static ot_status begin_next(void *context, const ot_target_samples *samples) {
  return ot_distiller_ask(((source *)context)->distiller, samples);
}

// KL(t || p) of sampled targets, from the losses of teacher and data; KL(p || t) of text that the
// model wrote. The first rank of tp and cp counts what its replica read.
static ot_status end(void *context, ot_world *world, const ot_target_losses *losses,
                     double *divergence) {
  const source *const s = context;
  const ot_run_distill *const d = s->settings;
  const bool first =
      ot_world_index(world, OT_AXIS_TP) == 0 && ot_world_index(world, OT_AXIS_CP) == 0;
  const ot_distiller_sums own = ot_distiller_get_sums(s->distiller);
  double sums[2] = {first ? own.targets : 0, first ? own.nats : 0};
  OT_TRY(ot_world_allreduce(world, sums, 2));
  const double mean = sums[1] / sums[0];
  *divergence = d->objective == OT_DISTILL_REVERSE_KL ? mean : NAN;
  if (d->objective == OT_DISTILL_SAMPLED && d->alpha != 0)
    *divergence = (losses->all - (1 - d->alpha) * losses->data) / d->alpha - mean;
  return OT_OK;
}

static void destroy(void *context) {
  source *const s = context;
  ot_distiller_destroy(&s->distiller);
  free(s);
}

static ot_status create(const ot_run *run, ot_data_loader *loader, const ot_schedule *schedule,
                        ot_world *world, ot_target_source *out) {
  ot_comm *const comm = ot_world_comm(world);
  const ot_distiller_request request = {
      .run = run,
      .loader = loader,
      .loads = ot_schedule_runs_head(schedule),
      .threads = schedule->threads,
      .backend = schedule->backend,
      .ordinal = comm ? ot_comm_ordinal(comm, ot_device_count(schedule->backend)) : 0,
      .comm = comm,
      .data_index = ot_world_data_index(world),
  };
  source *const s = calloc(1, sizeof *s);
  OT_CHECK(s, OT_ENVIRONMENT, "out of memory");
  s->settings = &run->distill;
  *out = (ot_target_source){begin, fill, begin_next, end, destroy, s};
  return ot_distiller_create(&request, &s->distiller);
}

static ot_status check_stores(const ot_data_loader *loader, ot_world *world, bool reads) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_status status = OT_OK;
  for (int64_t i = 0; i < ot_data_loader_num_sources(loader) && status == OT_OK; i++) {
    const char *const path = ot_teacher_path(&arena, ot_data_loader_source(loader, i).path);
    status = ot_same_file_check(world, path, reads);
  }
  ot_heap_release(&heap);
  return status;
}

ot_status ot_distill_source_open(const ot_run *run, ot_data_loader *loader, ot_runtime *runtime,
                                 ot_world *world, ot_target_source *out) {
  *out = (ot_target_source){0};
  if (ot_run_weighted_targets(run) == 0) return OT_OK;
  const ot_schedule *const schedule = ot_runtime_schedule(runtime);
  OT_TRY(ot_world_agree(world, create(run, loader, schedule, world, out)));
  if (run->distill.from != OT_DISTILL_STORE || ot_world_size(world) == 1) return OT_OK;
  return check_stores(loader, world, ot_schedule_runs_head(schedule));
}
