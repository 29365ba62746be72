// SPDX-License-Identifier: Apache-2.0
// The training loop; start-up (directory, resuming) is in loop_start.c.
#include "train/loop.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "base/backend_rules.h"
#include "base/text.h"
#include "checkpoint/checkpoint_list.h"
#include "files/output_file.h"
#include "host/clock.h"
#include "train/health.h"
#include "train/loop_events.h"
#include "train/loop_memory.h"
#include "train/loop_state.h"
#include "train/stop_signal.h"

// ---- the loop ----

enum { KEY_BYTES = 512 };

// Values of a step over all ranks.
typedef struct step_sums {
  bool stop;           // a rank was asked to stop
  bool saves;          // a rank is busy with a save that runs while training goes on
  bool copies;         // a rank is busy with a copy in memory
  int64_t save_every;  // steps between saves, as the leader chose
  ot_loop_refusals refusals;
  ot_step_figures figures;
} step_sums;

// ---- reports ----

static ot_loop_refusals refusals_of(const ot_loop *l) {
  ot_runtime *const runtime = ot_trainer_runtime(l->start.trainer);
  ot_loop_refusals found;
  ot_executor_refused_algorithms(ot_runtime_executor(runtime), &found.own, &found.replaced);
  return found;
}

static bool on_gpu(const ot_loop *l) {
  return !ot_backend_rules_of(ot_runtime_backend(ot_trainer_runtime(l->start.trainer)))->host;
}

static ot_runtime_memory_use use_of_memory(const ot_loop *l) {
  return ot_runtime_use_of_memory(ot_trainer_runtime(l->start.trainer));
}

// For a step of `step_s`; NAN if the machine is unknown.
static double mfu_of(const ot_loop *l, int micro_batches, double step_s) {
  const ot_predicted_step *const plan = ot_prediction_find(&l->prediction, micro_batches);
  return plan ? plan->model_flops / step_s / l->prediction.peak_flops : NAN;
}

static double predicted_s(const ot_loop *l, int micro_batches) {
  const ot_predicted_step *const plan = ot_prediction_find(&l->prediction, micro_batches);
  return plan ? plan->expected.step_s : NAN;
}

// The health of every layer, as further keys of a step's line.
static ot_status health_metrics(ot_loop *l, ot_arena *arena, ot_metrics_step *line) {
  ot_health h;
  OT_TRY(ot_trainer_health(l->start.trainer, arena, &h));
  const struct {
    const char *prefix;
    int count;
    const ot_health_value *values;
  } groups[] = {{"gradient_norm", h.num_tensors, h.gradient_norm},
                {"update_ratio", h.num_tensors, h.update_ratio},
                {"max_activation", h.num_blocks, h.max_activation},
                {"max_attention_logit", h.num_blocks, h.max_logit}};
  ot_metric *const made =
      ot_arena_array(arena, 2 * (h.num_tensors + h.num_blocks) + 1, sizeof *made);
  for (int g = 0; g < OT_COUNT(groups); g++) {
    for (int i = 0; i < groups[g].count; i++) {
      made[line->num_health++] =
          (ot_metric){ot_arena_format(arena, "%s/%s", groups[g].prefix, groups[g].values[i].name),
                      groups[g].values[i].value};
    }
  }
  line->health = made;
  return OT_OK;
}

static ot_metrics_step line_of(const ot_loop *l, const ot_step_report *report,
                               const step_sums *sums) {
  const double *const exposed_s = sums->figures.exposed_axis_s;
  return (ot_metrics_step){
      .step = report->step,
      .loss_nats = report->loss,
      .data_loss_nats = report->data_loss,
      .teacher_kl_nats = report->teacher_kl,
      .gradient_norm = report->gradient_norm,
      .learning_rate = report->learning_rate,
      .tokens = report->tokens,
      .step_s = report->step_seconds,
      .tokens_per_s = (double)report->step_tokens / report->step_seconds,
      .mfu = mfu_of(l, report->micro_batches, report->step_seconds),
      .goodput = l->account.counted_s / (ot_clock_unix_s() - l->account.begin_s),
      .predicted_step_s = predicted_s(l, report->micro_batches),
      .exposed = {.tp_s = exposed_s[OT_TIMELINE_TP],
                  .cp_s = exposed_s[OT_TIMELINE_CP],
                  .ep_s = exposed_s[OT_TIMELINE_EP],
                  .pp_s = exposed_s[OT_TIMELINE_PP],
                  .dp_s = exposed_s[OT_TIMELINE_DP]},
      .bubble_fraction = sums->figures.bubble_fraction,
      .memory_planned_bytes = l->planned_bytes,
      .products_by_own_kernel = on_gpu(l) ? sums->refusals.own : -1,
      .algorithms_replaced = on_gpu(l) ? sums->refusals.replaced : -1,
      .noise_scale_tokens = report->noise_scale_tokens,
      .experts = report->experts,
  };
}

static void write_metrics(ot_loop *l, const ot_metrics_step *line) {
  ot_metrics_write_step(l->metrics, line);
  if (l->tensorboard) ot_tensorboard_write_step(l->tensorboard, line);
}

static void say_status(ot_loop *l, const ot_step_report *report,
                       const ot_runtime_memory_use *memory) {
  const int64_t total = ot_trainer_total_steps(l->start.trainer);
  const double elapsed_s = ot_clock_s() - l->begin_s;
  const double steps_s = elapsed_s - l->evaluation.after_begin_s;
  const double per_step_s = steps_s / (double)(report->step - l->begin_step);
  const ot_status_line status = {
      .step = report->step,
      .num_steps = total,
      .loss_nats = report->loss,
      .gradient_norm = report->gradient_norm,
      .tokens_per_s = (double)report->step_tokens / report->step_seconds,
      .mfu = mfu_of(l, report->micro_batches, report->step_seconds),
      .planned_mfu = mfu_of(l, report->micro_batches, predicted_s(l, report->micro_batches)),
      .memory_peak_bytes = memory->used_bytes,
      .memory_capacity_bytes = memory->capacity_bytes,
      .remaining_s = per_step_s * (double)(total - report->step) +
                     ot_loop_evaluate_remaining_s(l, report->step),
      .learning_rate = report->learning_rate,
      .step_s = report->step_seconds,
  };
  const ot_loop_event event = {.kind = OT_LOOP_STATUS, .status = &status};
  l->request->sink(l->request->context, &event);
}

// ---- validation and checkpoints ----

static void report_validation(ot_loop *l, int64_t step, const char *name, double loss) {
  ot_metrics_write_validation(l->metrics, step, name, loss);
  if (l->tensorboard) {
    char key[KEY_BYTES];
    ot_text_format(key, sizeof key, "validation/%s", name[0] ? name : "loss");
    const ot_metric metric = {key, loss};
    ot_tensorboard_write(l->tensorboard, step, &metric, 1);
  }
  const ot_loop_event event = {
      .kind = OT_LOOP_VALIDATION, .name = name, .step = step, .loss = loss};
  l->request->sink(l->request->context, &event);
}

static ot_status validate(ot_loop *l, int64_t step) {
  const double begin_s = ot_clock_s();
  if (l->run->data.num_validation == 0) return OT_OK;
  for (int i = 0; i < (int)l->run->data.num_validation; i++) {
    const char *const name = l->run->data.validation[i].name;
    double loss;
    OT_TRY(ot_trainer_validate(l->start.trainer, i, &loss));
    if (ot_loop_leads(l)) report_validation(l, step, name, loss);
  }
  ot_loop_log_timed(&l->start, OT_RUN_EVENT_VALIDATION, step, begin_s);
  return OT_OK;
}

// ---- audits ----

static void report_audit(ot_loop *l, int64_t step, const ot_loop_findings *found) {
  ot_metrics_write_audit(l->metrics, step, found->audit, found->count);
  if (l->tensorboard) {
    char key[KEY_BYTES];
    ot_text_format(key, sizeof key, "audit/%s", found->audit);
    const ot_metric metric = {key, found->count};
    ot_tensorboard_write(l->tensorboard, step, &metric, 1);
  }
  if (found->count == 0) return;
  ot_loop_note(l->request, "%s", found->text);
  ot_metrics_sync(l->metrics);
}

static ot_status look_once(ot_loop *l, int64_t step, const ot_loop_check *check, ot_arena *arena) {
  ot_loop_findings found = {0};
  OT_TRY(check->look(check->context, l->start.trainer, arena, &found));
  if (!found.audit) return OT_OK;
  if (ot_loop_leads(l) && found.note) ot_loop_note(l->request, "%s", found.note);
  if (ot_loop_leads(l)) report_audit(l, step, &found);
  if (found.count == 0) return OT_OK;
  ot_fail(OT_FINDINGS, "step %lld: the audit of %s found %d: %s", (long long)step, found.audit,
          found.count, found.worst);
  return ot_fail_hint(OT_FINDINGS,
                      "the step was not saved; the same command resumes from the "
                      "checkpoint before it");
}

static bool is_due(int64_t step, int64_t every) { return every > 0 && step % every == 0; }

static ot_status look_at_all(ot_loop *l, int64_t step, ot_arena *arena) {
  const int64_t every = l->run->audit.every;
  for (int i = 0; i < l->request->num_checks; i++) {
    const ot_loop_check *const check = &l->request->checks[i];
    const bool behind = check->follows && step > 1 && is_due(step - 1, every);
    if (behind || is_due(step, every)) OT_TRY(look_once(l, step, check, arena));
  }
  return OT_OK;
}

static ot_status begin_checks(const ot_loop *l) {
  for (int i = 0; i < l->request->num_checks; i++) {
    const ot_loop_check *const check = &l->request->checks[i];
    if (check->begin) OT_TRY(check->begin(check->context, l->start.trainer));
  }
  return OT_OK;
}

static ot_status audit(ot_loop *l, int64_t step) {
  const double begin_s = ot_clock_s();
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_status status = look_at_all(l, step, &arena);
  ot_heap_release(&heap);
  if (status == OT_OK && l->request->num_checks > 0 && is_due(step, l->run->audit.every))
    ot_loop_log_timed(&l->start, OT_RUN_EVENT_AUDIT, step, begin_s);
  return status;
}

// ---- traces ----

static bool traces(const ot_loop *l, int64_t step) {
  const ot_loop_request *const request = l->request;
  if (!request->trace_path || l->trace_failed) return false;
  if (request->trace_to == 0) return step == l->begin_step + 3;
  return step >= request->trace_from && step <= request->trace_to;
}

static const double trace_patience_s = 2;  // with the reader of a FIFO

static ot_status open_trace(ot_loop *l, double start_s) {
  if (l->trace || !ot_loop_leads(l)) return OT_OK;
  l->trace_begin_s = start_s;
  return ot_trace_create(l->request->trace_path, trace_patience_s, &l->trace);
}

// The same on all ranks. A trace that cannot be written ends itself, not the run.
static ot_status end_trace(ot_loop *l, ot_status status) {
  if (status != OT_ENVIRONMENT) return status;
  ot_loop_note(l->request, "warning: there is no trace: %s; the run goes on", ot_fail_message());
  ot_trace_destroy(&l->trace);
  l->trace_failed = true;
  return OT_OK;
}

static ot_status write_trace(ot_loop *l, const ot_step_report *step) {
  const ot_trace_step what = {.run = l->run,
                              .timeline = ot_trainer_timeline(l->start.trainer),
                              .schedule = ot_runtime_schedule(ot_trainer_runtime(l->start.trainer)),
                              .start_s = step->start_s,
                              .zero_s = l->trace_begin_s};
  ot_status status = ot_world_agree(l->request->world, open_trace(l, step->start_s));
  if (status == OT_OK) status = ot_trace_write_ranks(l->trace, l->request->world, &what);
  return end_trace(l, status);
}

static ot_status finish_trace(ot_loop *l) {
  const ot_status status = l->trace ? ot_trace_finish(l->trace) : OT_OK;
  return end_trace(l, ot_world_agree(l->request->world, status));
}

// ---- the loop ----

ot_status ot_loop_check_position(ot_loop *l) {
  const ot_status status =
      ot_world_agree(l->request->world, ot_trainer_check_position(l->start.trainer));
  if (status != OT_FINDINGS) return status;
  return ot_fail_hint(status,
                      "suspect the memory of that machine; the step was not saved: the same "
                      "command resumes from the checkpoint before it");
}

// Combines what single ranks know: stop requests, counters that changed in memory, means of their
// timelines. With the agreement on the samples at its begin, it is all that the hosts exchange in a
// step.
static ot_status sum_step(ot_loop *l, const ot_step_report *report, step_sums *sums) {
  const ot_timeline_summary mine =
      ot_timeline_summarize(ot_trainer_timeline(l->start.trainer),
                            ot_runtime_schedule(ot_trainer_runtime(l->start.trainer)));
  enum { OWN = OT_TIMELINE_AXES + OT_TIMELINE_PARTS + 8 };
  static_assert((int)OWN <= (int)OT_WORLD_VALUES, "one sum tells all");
  double *const values = l->rank_times.meeting;
  double *const part_s = &values[OT_TIMELINE_AXES];
  double *const stop = part_s + OT_TIMELINE_PARTS, *const bubble = stop + 1;
  double *const saves = bubble + 1, *const every = saves + 1, *const copies = every + 1;
  double *const wrong = copies + 1, *const own = wrong + 1, *const replaced = own + 1;
  const ot_loop_refusals refusals = refusals_of(l);
  for (int i = 0; i < OT_TIMELINE_AXES; i++) values[i] = mine.exposed_axis_s[i];
  for (int i = 0; i < OT_TIMELINE_PARTS; i++) part_s[i] = mine.part_s[i];
  *stop = ot_stop_signal_seen();
  *bubble = mine.bubble_fraction;
  *saves = ot_saving_busy(l);
  *copies = ot_loop_memory_busy(l);
  *wrong = ot_trainer_check_position(l->start.trainer) != OT_OK;
  *every = (double)ot_saving_choose(l);
  *own = refusals.own;
  *replaced = refusals.replaced;
  const int times = ot_loop_put_time(l, report->compute_s, &values[OWN]);
  OT_TRY(ot_world_allreduce(l->request->world, values, OWN + times));
  if (*wrong > 0) OT_TRY(ot_loop_check_position(l));
  // A GPU's step has no timeline unless its events are recorded.
  const bool timed = ot_trainer_timeline(l->start.trainer)->num_spans > 0;
  const double ranks = timed ? ot_world_size(l->request->world) : NAN;
  *sums = (step_sums){.stop = *stop > 0,
                      .saves = *saves > 0,
                      .copies = *copies > 0,
                      .save_every = (int64_t)*every,
                      .refusals = {(int)*own, (int)*replaced},
                      .figures = {.bubble_fraction = *bubble / ranks}};
  for (int i = 0; i < OT_TIMELINE_AXES; i++) sums->figures.exposed_axis_s[i] = values[i] / ranks;
  for (int i = 0; i < OT_TIMELINE_PARTS; i++) sums->figures.part_s[i] = part_s[i] / ranks;
  return times > 0 ? ot_loop_report_straggler(l, report->step, &values[OWN]) : OT_OK;
}

static void add_means(ot_loop *l, const ot_step_report *report, step_sums *sums) {
  const ot_predicted_step *const plan = ot_prediction_find(&l->prediction, report->micro_batches);
  sums->figures.step_s = report->step_seconds;
  ot_step_means_add(&l->means, &sums->figures, plan ? &plan->expected : NULL);
}

// The leader's part: files and the status line.
static void write_step(ot_loop *l, const ot_step_report *report, ot_metrics_step *line) {
  const bool last = report->step == ot_trainer_total_steps(l->start.trainer);
  const ot_runtime_memory_use memory = use_of_memory(l);
  line->memory_peak_bytes = memory.used_bytes;
  write_metrics(l, line);
  const ot_run_event first = {.kind = OT_RUN_EVENT_FIRST_STEP, .step = report->step};
  if (l->summary.steps == 1) ot_loop_log(&l->start, &first);
  if (last || is_due(report->step, l->run->log.every)) say_status(l, report, &memory);
  ot_loop_tell_logs(l, report->step);
}

// All ranks combine the health.
static ot_status report_step(ot_loop *l, const ot_step_report *report, const step_sums *sums,
                             ot_arena *arena) {
  l->account.counted_s += report->step_seconds;
  ot_metrics_step line = line_of(l, report, sums);
  if (is_due(report->step, l->run->log.health_every)) OT_TRY(health_metrics(l, arena, &line));
  if (ot_loop_leads(l)) write_step(l, report, &line);
  return OT_OK;
}

static ot_status report(ot_loop *l, const ot_step_report *step, const step_sums *sums) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_status status = report_step(l, step, sums, &arena);
  ot_heap_release(&heap);
  return status;
}

static void add_to_summary(ot_loop *l, const ot_step_report *report) {
  ot_loop_summary *const s = &l->summary;
  if (s->steps > 0) {
    s->later_tokens += report->step_tokens;
    s->later_s += report->step_seconds;
  }
  if (s->steps++ == 0) s->first_loss_nats = report->loss;
  s->last_loss_nats = report->loss;
  s->tokens += report->step_tokens;
}

static ot_status step_once(ot_loop *l, bool *stop) {
  const int64_t next = ot_trainer_position(l->start.trainer).step + 1;
  const int64_t total = ot_trainer_total_steps(l->start.trainer);
  const bool traced = traces(l, next);
  ot_kernel_watch_step(l->watch, next);
  ot_step_report step;
  step_sums sums;
  if (traced)
    OT_TRY(ot_world_agree(l->request->world, ot_trainer_set_events(l->start.trainer, true)));
  OT_TRY(ot_loop_take_step(l, &step));
  if (traced) OT_TRY(ot_trainer_set_events(l->start.trainer, false));
  OT_TRY(sum_step(l, &step, &sums));
  if (ot_loop_leads(l)) ot_loop_note_products(l->request, &sums.refusals, &l->summary.refusals);
  add_means(l, &step, &sums);
  add_to_summary(l, &step);
  if (traced) OT_TRY(write_trace(l, &step));
  OT_TRY(report(l, &step, &sums));
  bool went_back = false;
  *stop = sums.stop;
  OT_TRY(ot_loop_watch_spikes(l, &step, &went_back));
  if (went_back) return OT_OK;
  OT_TRY(ot_saving_poll(l, sums.saves));
  OT_TRY(audit(l, step.step));
  const bool last = step.step == total;
  if (last || is_due(step.step, l->run->data.validation_every)) {
    OT_TRY(validate(l, step.step));
  }
  if (last || is_due(step.step, l->run->evaluate.every)) OT_TRY(ot_loop_evaluate(l, step.step));
  if (last) return ot_saving_save_last(l);
  ot_loop_memory_take_due(l, sums.copies);
  return ot_saving_save_due(l, sums.save_every);
}

// After a step, or after one that was left.
static ot_status stop_here(ot_loop *l, bool left) {
  const int64_t step = ot_trainer_position(l->start.trainer).step;
  const bool from_other = l->start.went_back || l->request->resume == OT_RESUME_NEVER;
  // The state before the first step is that of a new start.
  if (step > 0) OT_TRY(ot_saving_save_last(l));
  ot_fail(OT_STOPPED, "stopped by a signal %s step %lld", left ? "in" : "after",
          (long long)(left ? step + 1 : step));
  return ot_fail_hint(OT_STOPPED, "run the same command %s to continue%s",
                      from_other ? "without --resume" : "again",
                      left ? "; it takes that step again" : "");
}

// Called before each kernel.
static bool leaves(void *context) {
  const ot_loop *const l = context;
  ot_heartbeat_beat(l->heartbeat);
  return ot_stop_signal_leaves(ot_world_comm(l->request->world));
}

static ot_status run_steps(ot_loop *l) {
  const int64_t total = ot_trainer_total_steps(l->start.trainer);
  const ot_executor_leave leave = {
      .asks = leaves, .context = l, .progress = ot_kernel_watch_progress(l->watch)};
  bool stop = false;
  ot_executor_set_leave(ot_runtime_executor(ot_trainer_runtime(l->start.trainer)), &leave);
  ot_trainer_set_trace(l->start.trainer, true);
  ot_loop_begin_stragglers(l);
  OT_TRY(begin_checks(l));
  l->begin_step = ot_trainer_position(l->start.trainer).step;
  if (l->begin_step == 0) OT_TRY(validate(l, 0));
  if (l->begin_step == 0) OT_TRY(ot_loop_evaluate(l, 0));
  ot_stop_signal_defer();
  l->begin_s = ot_clock_s();
  l->evaluation.after_begin_s = 0;
  while (ot_trainer_position(l->start.trainer).step < total) {
    const ot_status status = step_once(l, &stop);
    if (status != OT_OK && status != OT_STOPPED) return status;
    if (status == OT_OK && !stop) continue;
    if (ot_trainer_position(l->start.trainer).step == total) break;
    return stop_here(l, status == OT_STOPPED);
  }
  OT_TRY(ot_loop_check_position(l));
  return finish_trace(l);
}

// The resident memory of a process includes all its ranks, so it is compared with the plan of all.
static ot_status sum_planned(ot_loop *l) {
  ot_world *const world = l->request->world;
  const ot_schedule *const schedule = ot_runtime_schedule(ot_trainer_runtime(l->start.trainer));
  const int size = ot_world_size(world);
  int64_t *const process = ot_arena_array(l->arena, size, sizeof *process);
  int64_t *const planned = ot_arena_array(l->arena, size, sizeof *planned);
  OT_TRY(ot_world_allgather(world, ot_world_process(world), process));
  const int64_t own = schedule->memory.peak_bytes + ot_loop_evaluate_bytes(l);
  OT_TRY(ot_world_allgather(world, own, planned));
  for (int i = 0; i < size; i++) {
    if (process[i] == process[ot_world_rank(world)]) l->planned_bytes += planned[i];
  }
  return OT_OK;
}

// An incomplete description of the machine does not end a run.
static void predict(ot_loop *l) {
  const ot_schedule *const schedule = ot_runtime_schedule(ot_trainer_runtime(l->start.trainer));
  ot_comm *const comm = ot_world_comm(l->request->world);
  const ot_prediction_request request = {.run = l->run,
                                         .mesh = ot_world_mesh(l->request->world),
                                         .cluster = l->request->cluster,
                                         .threads = schedule->threads,
                                         .local_ranks = comm ? ot_comm_local_size(comm) : 1};
  if (!ot_loop_leads(l) || !request.cluster) return;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_status status = ot_prediction_check(request.cluster, schedule->backend);
  if (status == OT_OK) status = ot_prediction_build(&request, &arena, &l->prediction);
  if (status == OT_OK) {
    ot_loop_note_prediction(l->request, &l->prediction);
    ot_prediction_keep_steps(&l->prediction, l->arena);
  } else {
    l->prediction = (ot_prediction){0};
    ot_loop_note(l->request, "no predictions: %s", ot_fail_message());
  }
  ot_heap_release(&heap);
}

static void say_summary(ot_loop *l) {
  ot_loop_summary *const s = &l->summary;
  if (!ot_loop_leads(l)) return;
  s->seconds = ot_clock_s() - l->begin_s;
  const ot_runtime_memory_use memory = use_of_memory(l);
  s->memory_peak_bytes = memory.used_bytes;
  s->memory_capacity_bytes = memory.capacity_bytes;
  s->memory_planned_bytes = l->planned_bytes;
  s->lost_lines = ot_loop_lost_lines(l);
  const char *const directory = ot_run_directory_checkpoints(l->start.directory);
  const int64_t saved = l->saving.saved_step;
  if (saved >= 0) s->checkpoint = ot_checkpoint_path(l->arena, directory, saved);
  const ot_loop_event event = {.kind = OT_LOOP_SUMMARY, .summary = s};
  l->request->sink(l->request->context, &event);
}

static void say_means(ot_loop *l) {
  const char *const text =
      ot_step_means_print(&l->means, ot_world_size(l->request->world), l->arena);
  if (text) ot_loop_note(l->request, "%s", text);
}

// Checks the disk and the trace file of the leader, before the first step.
static ot_status check_files(ot_loop *l) {
  ot_disk_space room;
  OT_TRY(ot_loop_check_disk(l->request, l->arena, &room));
  return l->request->trace_path ? ot_output_file_check(l->request->trace_path) : OT_OK;
}

// Seconds from a stop signal on that a kernel has to end, before a launcher ends what is left.
static const double stop_s = 20;
// The share of the timeout: the rank itself knows its kernel, ranks that wait for it do not.
static const double before_others = 0.9;

static ot_status watch_kernels(ot_loop *l) {
  const ot_comm *const comm = ot_world_comm(l->request->world);
  const double watchdog_s = l->run->parallel.watchdog_seconds;
  const int rank = ot_world_rank(l->request->world);
  const ot_kernel_watch_request request = {
      .schedule = ot_runtime_schedule(ot_trainer_runtime(l->start.trainer)),
      .rank =
          comm ? ot_arena_format(l->arena, "rank %d on %s", rank, ot_comm_host(comm)) : "rank 0",
      .timeout_s = ot_world_size(l->request->world) > 1 ? before_others * watchdog_s : watchdog_s,
      .stop_s = watchdog_s > 0 ? fmin(stop_s, watchdog_s) : stop_s,
      .end = l->request->hangs};
  return l->request->hangs ? ot_kernel_watch_create(&request, &l->watch) : OT_OK;
}

static ot_status run_loop(ot_loop *l) {
  OT_TRY(ot_loop_start_open(l->request, l->arena, &l->start));
  if (l->start.finished) return OT_OK;
  OT_TRY(ot_world_agree(l->request->world, ot_loop_leads(l) ? check_files(l) : OT_OK));
  ot_loop_warn_settings(l->request, ot_trainer_data_loader(l->start.trainer), l->arena);
  OT_TRY(ot_saving_create(l));
  OT_TRY(ot_loop_memory_begin(l));
  OT_TRY(ot_loop_evaluate_begin(l));
  OT_TRY(ot_world_agree(l->request->world, ot_loop_leads(l) ? ot_loop_open_logs(l) : OT_OK));
  OT_TRY(sum_planned(l));
  predict(l);
  OT_TRY(ot_world_agree(l->request->world, ot_loop_leads(l)
                                               ? ot_heartbeat_create(l->run->output, &l->heartbeat)
                                               : OT_OK));
  OT_TRY(ot_world_agree(l->request->world, watch_kernels(l)));
  const ot_status status = run_steps(l);
  ot_loop_log_stop(&l->start, status);
  if (status == OT_OK) say_means(l);
  if (status == OT_OK || status == OT_STOPPED) ot_loop_memory_end(l);
  if (status == OT_OK || status == OT_STOPPED) say_summary(l);
  return status;
}

ot_status ot_loop_run(const ot_loop_request *request) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_loop l = {.request = request,
               .run = request->run,
               .arena = &arena,
               .open_s = ot_clock_s(),
               .summary = {.first_loss_nats = NAN, .last_loss_nats = NAN}};
  const ot_status status = run_loop(&l);
  ot_heartbeat_destroy(&l.heartbeat);
  ot_trace_destroy(&l.trace);
  ot_loop_close_logs(&l);
  ot_saving_destroy(&l);
  ot_loop_evaluate_end(&l);
  ot_loop_start_close(&l.start);
  ot_kernel_watch_destroy(&l.watch);
  ot_heap_release(&heap);
  return status;
}
