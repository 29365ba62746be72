// SPDX-License-Identifier: Apache-2.0
// All checks of a run before its first step, and its memory breakdown, without allocating the
// memory or writing a file. Ranks that differ only along dp and cp have equal schedules, so one
// rank per stage and tp rank is planned; the breakdown is that of the rank with the most memory.
#include "base/backend_rules.h"
#include "base/quantity.h"
#include "base/text.h"
#include "base/text_builder.h"
#include "data/data_loader.h"
#include "describe/learning_rate.h"
#include "files/disk.h"
#include "forecast/evaluation_forecast.h"
#include "forecast/memory_advice.h"
#include "forecast/prediction.h"
#include "forecast/run_tasks.h"
#include "forecast/teacher_forecast.h"
#include "host/available.h"
#include "host/cores.h"
#include "runtime/training_request.h"
#include "train/loop_start.h"

// A planned rank.
typedef struct planned {
  int rank;
  ot_schedule schedule;
  double model_flops;  // of the first step
} planned;

static ot_status plan_rank(const ot_planned_run *run, int rank, ot_arena *arena, planned *p) {
  p->rank = rank;
  OT_TRY(ot_planned_run_rank(run, rank, arena, &p->schedule));
  OT_TRY(ot_schedule_check(&p->schedule, arena));
  const int order = ot_schedule_find_order(&p->schedule, OT_ORDER_STEP, 0);
  p->model_flops = ot_order_flops(&p->schedule, order, true);
  return OT_OK;
}

// Plans one rank of each kind: `most` is the one with the largest arena, `flops` the total over all
// ranks.
static ot_status plan_ranks(const ot_planned_run *run, ot_arena *arena, planned *most,
                            double *flops) {
  const ot_mesh *const mesh = run->mesh;
  const int tp = mesh->degree[OT_AXIS_TP], kinds = tp * mesh->degree[OT_AXIS_PP];
  int64_t peak = -1;
  int fullest = 0;
  *flops = 0;
  for (int i = 0; i < kinds; i++) {
    const int coordinates[4] = {i % tp};
    const int rank = ot_mesh_rank(mesh, coordinates, i / tp);
    planned p;
    ot_heap heap = {0};
    ot_arena scratch = ot_heap_arena_create(&heap);
    const ot_status status = plan_rank(run, rank, &scratch, &p);
    ot_heap_release(&heap);
    OT_TRY(status);
    *flops += p.model_flops * (mesh->ranks / kinds);
    const int64_t bytes = p.schedule.memory.peak_bytes;
    if (bytes > peak) fullest = rank;
    if (bytes > peak) peak = bytes;
  }
  OT_TRY(ot_loop_check_schedules(run->run, mesh, run->backend));
  return plan_rank(run, fullest, arena, most);
}

// State of a dry run.
typedef struct dry_run {
  const ot_loop_request *request;
  const ot_dry_run *how;
  ot_arena *arena;
  ot_planned_run planned;
  planned most;  // the rank with the largest arena
  ot_dry_run_report *report;
} dry_run;

static void print_memory(dry_run *d) {
  const ot_schedule *const schedule = &d->most.schedule;
  d->report->fullest_rank = d->most.rank;
  d->report->memory = schedule->memory;
  const char *const which = ot_arena_format(d->arena, " (rank %d, the maximum)", d->most.rank);
  ot_loop_note(
      d->request, "memory of one rank%s, arena planned to the byte:\n%s  %-12s %14s (%ld bytes)",
      schedule->ranks > 1 ? which : "", ot_memory_table(&schedule->memory, d->arena), "peak",
      ot_figure_bytes(d->arena, schedule->memory.peak_bytes), schedule->memory.peak_bytes);
}

// Host memory besides the arena. A rank counts at most what it holds.
static void print_copies(dry_run *d) {
  const ot_run_checkpoint *const checkpoint = &d->request->run->checkpoint;
  const int64_t held = ot_memory_copied_bytes(&d->most.schedule, d->request->run);
  const int ranks = d->how->mesh->ranks;
  const int local = d->how->local_ranks > 0 ? d->how->local_ranks : 1;
  if (checkpoint->async) {
    d->report->async_bytes = held;
    ot_loop_note(d->request, "checkpoint.async needs up to %s of host memory on a rank",
                 ot_figure_bytes(d->arena, held));
  }
  if (checkpoint->memory == 0) return;
  d->report->copies_bytes = local * ot_memory_reserved_bytes(held, (ranks + local - 1) / local);
  int64_t free_bytes = 0;
  const bool known = ot_disk_free_bytes(checkpoint->memory_path, &free_bytes) == OT_OK;
  ot_loop_note(d->request, "checkpoint.memory needs %s in %s of a host; %s there are free",
               ot_figure_bytes(d->arena, d->report->copies_bytes), checkpoint->memory_path,
               known ? ot_figure_bytes(d->arena, free_bytes) : "an unknown number of bytes");
}

static ot_status check_disk(dry_run *d) {
  ot_disk_space room;
  OT_TRY(ot_loop_check_disk(d->request, d->arena, &room));
  d->report->disk_free_bytes = room.free_bytes;
  d->report->checkpoint_bytes = room.checkpoint_bytes;
  ot_loop_note(d->request, "a checkpoint needs %s; free disk space: %s",
               ot_figure_bytes(d->arena, room.checkpoint_bytes),
               ot_figure_bytes(d->arena, room.free_bytes));
  return OT_OK;
}

static void print_length(dry_run *d) {
  const ot_run *const run = d->request->run;
  const ot_schedule *const schedule = &d->most.schedule;
  const int order = ot_schedule_find_order(schedule, OT_ORDER_STEP, 0);
  ot_dry_run_report *const report = d->report;
  report->steps = ot_run_total_steps(run);
  report->tokens = ot_run_tokens_after(run, report->steps);
  report->micro_batches = schedule->orders[order].micro_batches;
  ot_loop_note(d->request,
               "%ld step%s, %ld tokens; first step: %ld sequence%s of %ld in %d micro-batch%s%s, "
               "%.4g model TFLOP",
               report->steps, ot_text_plural(report->steps, "s"), report->tokens,
               run->batch.global_batch_size, ot_text_plural(run->batch.global_batch_size, "s"),
               run->data.sequence_length, report->micro_batches,
               ot_text_plural(report->micro_batches, "es"), schedule->ranks > 1 ? " a rank" : "",
               report->model_flops * 1e-12);
}

// Exposed communication, if there is any.
static void print_exposed(const dry_run *d, const ot_step_figures *step) {
  ot_text_builder text = {.arena = d->arena};
  for (int i = 0; i < OT_TIMELINE_AXES; i++) {
    if (step->exposed_axis_s[i] == 0) continue;
    ot_text_appendf(&text, "%s %s %.3g ms", text.length > 0 ? "," : "",
                    ot_timeline_axis_name((ot_timeline_axis)i), 1e3 * step->exposed_axis_s[i]);
  }
  if (text.length == 0) return;
  ot_loop_note(d->request, "exposed communication per rank:%s; bubble %.1f%%",
               ot_text_builder_text(&text), 100 * step->bubble_fraction);
}

static void print_validation(const dry_run *d, const ot_prediction_request *wanted,
                             const ot_prediction *prediction) {
  ot_evaluation_forecast f;
  if (ot_evaluation_forecast_validation(wanted, prediction, d->arena, &f) != OT_OK) return;
  if (f.validations == 0) return;
  ot_loop_note(d->request, "validation: %.4g s a micro-batch of each rank, %ld in the run",
               f.validation_round_s, f.validations);
}

// An incomplete description of the machine does not fail a dry run.
static void print_prediction(dry_run *d) {
  const ot_loop_request *const request = d->request;
  const ot_run *const run = request->run;
  const ot_prediction_request wanted = {.run = run,
                                        .mesh = d->how->mesh,
                                        .cluster = request->cluster,
                                        .threads = d->most.schedule.threads,
                                        .local_ranks = d->how->local_ranks};
  ot_prediction prediction;
  if (!request->cluster) return;
  if (ot_prediction_check(wanted.cluster, d->how->backend) != OT_OK ||
      ot_prediction_build(&wanted, d->arena, &prediction) != OT_OK) {
    ot_loop_note(request, "no prediction: %s", ot_fail_message());
    return;
  }
  const ot_predicted_step *const first = &prediction.steps[0];
  const double tokens = (double)(run->batch.global_batch_size * run->data.sequence_length);
  ot_dry_run_report *const report = d->report;
  report->cluster = request->cluster->name;
  report->expected = first->expected;
  report->teacher_s = first->teacher_s;
  report->tokens_per_s = tokens / first->expected.step_s;
  report->mfu = first->model_flops / first->expected.step_s / prediction.peak_flops;
  ot_loop_note(request, "first step on %s: %.4g s, %.4g tokens/s, MFU %.1f%%", report->cluster,
               first->expected.step_s, report->tokens_per_s, 100 * report->mfu);
  if (prediction.teacher.parameters > 0)
    ot_loop_note(request, "the step waits %.4g s for the teacher", first->teacher_s);
  print_exposed(d, &first->expected);
  print_validation(d, &wanted, &prediction);
  ot_loop_note_prediction(request, &prediction);
}

// Ranks that share a memory, of this machine or of a GPU.
static int sharing_ranks(const dry_run *d) {
  const ot_dry_run *const how = d->how;
  const bool host = ot_backend_rules_of(how->backend)->host;
  const int ranks = host ? how->local_ranks : how->gpu_ranks;
  return ranks > 1 ? ranks : 1;
}

// Computes the memory that evaluations need, and the time of one.
static ot_status read_tasks(dry_run *d, const ot_run_tasks *tasks) {
  const ot_run *const run = d->request->run;
  ot_dry_run_report *const report = d->report;
  ot_run_tasks_ranks ranks = {.count = d->how->mesh->ranks,
                              .sharing = sharing_ranks(d),
                              .threads = d->most.schedule.threads,
                              .training_bytes = report->memory.peak_bytes};
  ot_run_tasks_engines engines;
  OT_TRY(ot_run_tasks_memory(d->how->backend, 0, &ranks));
  OT_TRY(ot_run_tasks_place(run, tasks, &ranks, d->arena, &engines));
  const ot_run_tasks_machine machine = {.cluster = report->cluster ? d->request->cluster : NULL,
                                        .ranks = &ranks,
                                        .engines = &engines};
  ot_run_tasks_cost cost;
  OT_TRY(ot_run_tasks_predict(run, tasks, &machine, d->arena, &cost));
  report->evaluations = ot_run_tasks_times(run);
  report->evaluation_stages = engines.stages;
  report->evaluation_bytes = engines.bytes;
  report->evaluation_s = cost.seconds;
  const char *const time =
      report->cluster ? ot_arena_format(d->arena, ", %.3g s if none begin alike", cost.seconds)
                      : "";
  const char *const each = ot_backend_rules_of(d->how->backend)->host ? "machine" : "GPU";
  const char *const where =
      engines.stages == 1
          ? ot_arena_format(d->arena, "one rank of each %s", each)
          : ot_arena_format(d->arena, "each %s, in pipelines of %d ranks", each, engines.stages);
  ot_loop_note(
      d->request,
      "evaluation: %ld sequence%s, up to %ld tokens%s; %ld in the run; a copy of the model "
      "for them needs %s on %s",
      cost.sequences, ot_text_plural(cost.sequences, "s"), cost.prompt_tokens + cost.made_tokens,
      time, report->evaluations, ot_figure_bytes(d->arena, engines.bytes), where);
  return OT_OK;
}

static ot_status check_tasks(dry_run *d) {
  ot_run_tasks tasks;
  ot_status status = ot_run_tasks_open(d->request->run, d->arena, &tasks);
  if (status == OT_OK && tasks.count > 0) status = read_tasks(d, &tasks);
  ot_run_tasks_close(&tasks);
  return status;
}

// Mean over the ranks, of which all may have the head.
static int64_t bytes_of_a_rank(const dry_run *d) {
  const ot_dry_run_report *const report = d->report;
  const int64_t own = report->memory.peak_bytes + report->evaluation_bytes / sharing_ranks(d);
  const int64_t students = d->how->mesh->ranks, teachers = ot_run_teacher_ranks(d->request->run);
  if (teachers == 0) return own + report->teacher_bytes;
  return (students * own + teachers * report->teacher_bytes) / (students + teachers);
}

static ot_status check_memory(dry_run *d) {
  const ot_dry_run *const how = d->how;
  ot_dry_run_report *const report = d->report;
  if (ot_backend_rules_of(how->backend)->host) {
    const ot_memory_need need = {.peak_bytes = bytes_of_a_rank(d),
                                 .local_ranks = how->local_ranks,
                                 .process_ranks = how->process_ranks,
                                 .threads = d->most.schedule.threads};
    report->memory_bytes = ot_host_memory_bytes(NULL);
    return ot_runtime_check_memory(&need, d->arena);
  }
  ot_memory_advice advice = {.planned = d->planned, .rank = d->most.rank};
  const ot_gpu_need need = {
      .ranks = how->gpu_ranks, .memory = &report->memory, .advisor = ot_memory_advisor_of(&advice)};
  return ot_gpu_check_memory(&need, d->arena, &report->memory_bytes);
}

static ot_status check_teacher(dry_run *d, ot_data_loader *loader) {
  const ot_teacher_forecast_request request = {.run = d->request->run,
                                               .loader = loader,
                                               .threads = d->most.schedule.threads,
                                               .backend = d->how->backend};
  ot_teacher_forecast forecast;
  OT_TRY(ot_teacher_forecast_build(&request, d->arena, &forecast));
  d->report->teacher_bytes = forecast.bytes;
  if (forecast.note) ot_loop_note(d->request, "%s", forecast.note);
  return OT_OK;
}

static ot_status read_run(dry_run *d) {
  const ot_loop_request *const request = d->request;
  const ot_run *const run = request->run;
  ot_data_loader *loader = NULL;
  OT_TRY(ot_run_check_training(run));
  OT_TRY(ot_trainer_check(run));
  d->planned = (ot_planned_run){.run = run,
                                .mesh = d->how->mesh,
                                .threads = ot_host_threads(d->how->local_ranks),
                                .backend = d->how->backend};
  OT_TRY(ot_training_read_order(&d->planned, d->arena));
  OT_TRY(plan_ranks(&d->planned, d->arena, &d->most, &d->report->model_flops));
  OT_TRY(ot_data_loader_create(run, &loader));
  ot_loop_warn_settings(request, loader, d->arena);
  const ot_status taught = check_teacher(d, loader);
  ot_data_loader_destroy(&loader);
  OT_TRY(taught);
  d->report->parameters = ot_model_parameters(&run->model);
  ot_loop_note(request, "%s: %ld parameters", run->model.model_type, d->report->parameters);
  if (d->how->mesh->ranks > 1) {
    ot_loop_note(request, "%s", ot_loop_shape(d->how->mesh, d->arena));
  }
  print_memory(d);
  print_length(d);
  print_prediction(d);
  OT_TRY(check_tasks(d));
  print_copies(d);
  OT_TRY(check_memory(d));
  return check_disk(d);
}

ot_status ot_loop_dry_run(const ot_loop_request *request, const ot_dry_run *how,
                          ot_dry_run_report *report) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  *report = (ot_dry_run_report){0};
  dry_run d = {.request = request, .how = how, .arena = &arena, .report = report};
  const ot_status status = read_run(&d);
  ot_heap_release(&heap);
  return status;
}
