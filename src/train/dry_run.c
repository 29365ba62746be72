// SPDX-License-Identifier: Apache-2.0
// Everything that a run checks before its first step, and its bill of memory, without taking the
// memory or writing a file. Ranks that differ only along dp and cp have equal schedules, so one of
// each stage and tp rank is planned, and the bill is that of the most loaded.
#include <unistd.h>

#include "base/text_builder.h"
#include "train/disk.h"
#include "train/feed.h"
#include "train/learning_rate.h"
#include "train/loop_start.h"
#include "train/prediction.h"

static int64_t memory_of_machine(void) {
  return (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGESIZE);
}

// One rank as it is planned.
typedef struct planned {
  int rank;
  ot_graph graphs[OT_MODES];
  ot_schedule schedule;
  double model_flops;  // of the first step
} planned;

static ot_status plan_rank(const ot_run *run, const ot_dry_run *how, ot_arena *arena, planned *p) {
  const int shared = ot_instance_cores() / (how->local_ranks > 1 ? how->local_ranks : 1);
  ot_instance_request wanted = {.mesh = how->mesh, .rank = p->rank};
  OT_TRY(ot_trainer_check(run));
  OT_TRY(ot_trainer_request(run, arena, &wanted));
  if (wanted.threads == 0) wanted.threads = shared > 1 ? shared : 1;
  OT_TRY(ot_instance_plan(&wanted, arena, p->graphs, &p->schedule));
  OT_TRY(ot_schedule_check(&p->schedule, arena));
  const int order = ot_schedule_find_order(&p->schedule, OT_ORDER_STEP, 0);
  p->model_flops = ot_order_flops(&p->schedule, order, true);
  return OT_OK;
}

// Plans every kind of rank: `most` becomes the one with the largest arena, and `flops` those of all
// ranks together.
static ot_status plan_ranks(const ot_run *run, const ot_dry_run *how, ot_arena *arena,
                            planned *most, double *flops) {
  const ot_mesh *const mesh = how->mesh;
  const int tp = mesh->degree[OT_AXIS_TP], kinds = tp * mesh->degree[OT_AXIS_PP];
  int64_t peak = -1;
  *flops = 0;
  for (int i = 0; i < kinds; i++) {
    const int coordinates[4] = {i % tp};
    planned p = {.rank = ot_mesh_rank(mesh, coordinates, i / tp)};
    ot_heap heap = {0};
    ot_arena scratch = ot_heap_arena_create(&heap);
    const ot_status status = plan_rank(run, how, &scratch, &p);
    ot_heap_release(&heap);
    OT_TRY(status);
    *flops += p.model_flops * (mesh->ranks / kinds);
    if (p.schedule.bill.peak_bytes > peak) most->rank = p.rank;
    if (p.schedule.bill.peak_bytes > peak) peak = p.schedule.bill.peak_bytes;
  }
  return plan_rank(run, how, arena, most);
}

static void say_bill(const ot_loop_request *request, const planned *p, ot_arena *arena) {
  const ot_schedule *const schedule = &p->schedule;
  ot_text_builder text = {.arena = arena};
  for (int i = 0; i < OT_MEMORY_CLASSES; i++) {
    const int64_t bytes = schedule->bill.class_bytes[i];
    if (bytes == 0) continue;
    ot_text_appendf(&text, "  %-12s %14s\n", ot_memory_class_name((ot_memory_class)i),
                    ot_bytes_text(arena, bytes));
  }
  const char *const which = ot_arena_format(arena, " (rank %d, which has most)", p->rank);
  ot_loop_note(request, "memory of one rank%s, to the byte:\n%s  %-12s %14s (%ld bytes)",
               schedule->ranks > 1 ? which : "", ot_text_builder_text(&text), "peak",
               ot_bytes_text(arena, schedule->bill.peak_bytes), schedule->bill.peak_bytes);
}

// A checkpoint holds weights, moments and, where they are apart, master weights, of all ranks once.
static int64_t checkpoint_bytes(const ot_run *run) {
  const int64_t narrow = ot_dtype_bytes(run->precision.params);
  const int64_t wide = ot_dtype_bytes(run->precision.compute == OT_F64 ? OT_F64 : OT_F32);
  return ot_model_parameters(&run->model) * (narrow + 2 * wide + (narrow != wide ? wide : 0));
}

static ot_status check_disk(const ot_loop_request *request, ot_arena *arena) {
  const char *path = request->run->output;
  while (!ot_disk_is_directory(path)) {
    char *const parent = ot_arena_format(arena, "%s", path);
    char *slash = NULL;
    for (char *c = parent; *c; c++) slash = *c == '/' ? c : slash;
    if (!slash || slash == parent) {
      path = slash ? "/" : ".";
      break;
    }
    *slash = '\0';
    path = parent;
  }
  int64_t free_bytes = 0;
  OT_TRY(ot_disk_free_bytes(path, &free_bytes));
  const int64_t needed = checkpoint_bytes(request->run);
  OT_CHECK(free_bytes > needed, OT_ENVIRONMENT,
           "a checkpoint takes %s, the disk of %s has %s free (output)",
           ot_bytes_text(arena, needed), path, ot_bytes_text(arena, free_bytes));
  ot_loop_note(request, "a checkpoint takes %s; free where the run goes: %s",
               ot_bytes_text(arena, needed), ot_bytes_text(arena, free_bytes));
  return OT_OK;
}

static void say_length(const ot_loop_request *request, const planned *p, double flops) {
  const ot_run *const run = request->run;
  const int order = ot_schedule_find_order(&p->schedule, OT_ORDER_STEP, 0);
  const int64_t steps = ot_run_total_steps(run);
  ot_loop_note(request,
               "%ld steps, %ld tokens; first step: %ld sequences of %ld in %d micro-batches%s, "
               "%.4g model TFLOP",
               steps, ot_run_tokens_after(run, steps), run->batch.global_batch_size,
               run->data.sequence_length, p->schedule.orders[order].micro_batches,
               p->schedule.ranks > 1 ? " a rank" : "", flops * 1e-12);
}

// Communication that nothing hides, where there is any.
static void say_exposed(const ot_loop_request *request, const ot_step_figures *step,
                        ot_arena *arena) {
  ot_text_builder text = {.arena = arena};
  for (int i = 0; i < OT_TIMELINE_AXES; i++) {
    if (step->exposed_axis_s[i] == 0) continue;
    ot_text_appendf(&text, "%s %s %.3g ms", text.length > 0 ? "," : "",
                    ot_timeline_axis_name((ot_timeline_axis)i), 1e3 * step->exposed_axis_s[i]);
  }
  if (text.length == 0) return;
  ot_loop_note(request, "exposed communication of a rank:%s; bubble %.1f%%",
               ot_text_builder_text(&text), 100 * step->bubble_fraction);
}

// A dry run does not fail because the machine is not described well enough.
static void say_prediction(const ot_loop_request *request, const ot_dry_run *how, const planned *p,
                           ot_arena *arena) {
  const ot_run *const run = request->run;
  const ot_prediction_request wanted = {.run = run,
                                        .mesh = how->mesh,
                                        .cluster = request->cluster,
                                        .threads = p->schedule.threads,
                                        .local_ranks = how->local_ranks};
  ot_prediction prediction;
  if (!request->cluster) return;
  if (ot_prediction_build(&wanted, arena, &prediction) != OT_OK) {
    ot_loop_note(request, "no prediction: %s", ot_fail_message());
    return;
  }
  const ot_step_figures *const step = &prediction.steps[0].expected;
  const double step_s = step->step_s;
  const double tokens = (double)(run->batch.global_batch_size * run->data.sequence_length);
  ot_loop_note(request, "first step on %s: %.4g s, %.4g tokens/s, MFU %.1f%%",
               request->cluster->name, step_s, tokens / step_s,
               100 * prediction.steps[0].model_flops / step_s / prediction.peak_flops);
  say_exposed(request, step, arena);
  if (prediction.note) ot_loop_note(request, "%s", prediction.note);
}

static ot_status check_memory(const ot_dry_run *how, const planned *p, ot_arena *arena) {
  const int64_t needed =
      p->schedule.bill.peak_bytes * (how->local_ranks > 1 ? how->local_ranks : 1);
  OT_CHECK(needed < memory_of_machine(), OT_ENVIRONMENT, "the run needs %s, this machine has %s",
           ot_bytes_text(arena, needed), ot_bytes_text(arena, memory_of_machine()));
  return OT_OK;
}

static ot_status dry_run(const ot_loop_request *request, const ot_dry_run *how, ot_arena *arena) {
  const ot_run *const run = request->run;
  planned most = {0};
  double flops;
  ot_feed *feed = NULL;
  OT_TRY(ot_run_check_training(run));
  OT_TRY(plan_ranks(run, how, arena, &most, &flops));
  OT_TRY(ot_feed_create(run, &feed));
  ot_feed_destroy(&feed);
  ot_loop_note(request, "%s: %ld parameters", run->model.model_type,
               ot_model_parameters(&run->model));
  if (how->mesh->ranks > 1) {
    ot_loop_note(request, "%s", ot_loop_shape(how->mesh, arena));
  }
  say_bill(request, &most, arena);
  say_length(request, &most, flops);
  say_prediction(request, how, &most, arena);
  OT_TRY(check_memory(how, &most, arena));
  return check_disk(request, arena);
}

ot_status ot_loop_dry_run(const ot_loop_request *request, const ot_dry_run *how) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_status status = dry_run(request, how, &arena);
  ot_heap_release(&heap);
  return status;
}
