// SPDX-License-Identifier: Apache-2.0
// A run from its first step to its last: a step, and what happens between two of them, in order.
// Start-up (directory, resuming) is in loop_start.c; each part has a file of its own.
#include "host/clock.h"
#include "host/heap.h"
#include "runtime/stop_signal.h"
#include "train/live_checks.h"
#include "train/spike_response.h"
#include "train/step_recording.h"
#include "train/step_reporter.h"
#include "train/step_trace.h"
#include "train/trainer_state.h"

// ---- a step ----

// Loads the samples into the arena, runs the schedule (forward, backward, reduction, clipping,
// update), advances the position, and reads the results.
ot_status ot_trainer_step(ot_trainer *trainer, ot_step_report *report) {
  const double start_s = ot_clock_s();
  ot_step_samples samples = ot_step_next_samples(trainer);
  ot_world_set_timeout(trainer->world, trainer->run->parallel.watchdog_seconds);
  OT_TRY(ot_step_load(trainer, &samples));
  OT_TRY(ot_step_load_next(trainer, &samples));
  *report = (ot_step_report){.micro_batches = samples.micro_batches,
                             .learning_rate = ot_step_set_scalars(trainer, &samples)};
  ot_step_transfer_write(trainer->transfer, samples.micro_batches);
  OT_TRY(ot_step_run(trainer, report));
  ot_step_transfer_read(trainer->transfer);
  OT_TRY(ot_step_check_left(trainer));
  ot_step_advance(trainer, &samples, report);
  report->step_seconds = ot_clock_s() - start_s;
  OT_TRY(ot_step_read_results(trainer, report));
  return ot_step_check_finite(trainer, report);
}

// ---- between two steps ----

typedef struct training {
  ot_session session;
  ot_kernel_watch *watch;  // or null
  ot_step_exchange exchange;
  ot_step_reporter reporter;
  ot_step_trace trace;
  ot_spike_response spikes;
  ot_saving saving;
  ot_state_copies copies;
  ot_evaluating evaluating;
  bool recorded;  // the step of request->record_step was taken
} training;

// Sums what single ranks know of the step.
static ot_status exchange(training *t, const ot_step_report *step, ot_step_sums *sums) {
  const ot_session *const s = &t->session;
  const ot_step_own own = {.report = step,
                           .saves = ot_saving_busy(&t->saving),
                           .copies = ot_state_copies_busy(&t->copies, s),
                           .save_every = ot_saving_choose(&t->saving, s)};
  return ot_step_exchange_sum(&t->exchange, s, &own, sums);
}

static ot_status validate(training *t, int64_t step, bool last) {
  ot_session *const s = &t->session;
  if (last || ot_session_due(step, s->run->data.validation_every))
    OT_TRY(ot_evaluating_validate(s, step));
  if (last || ot_session_due(step, s->run->evaluate.every))
    OT_TRY(ot_evaluating_run(&t->evaluating, s, step));
  return OT_OK;
}

// Computes the step `next`, and records it if it is wanted.
static ot_status compute_step(training *t, int64_t next, ot_step_report *step) {
  ot_session *const s = &t->session;
  const char *const path = s->request->record_path;
  ot_trainer *const trainer = s->start.trainer;
  if (!path || t->recorded || next != s->request->record_step)
    return ot_spike_response_step(&t->spikes, s, step);
  OT_TRY(ot_step_recording_begin(trainer, path));
  const ot_status status = ot_spike_response_step(&t->spikes, s, step);
  OT_TRY(ot_step_recording_end(trainer, status, step));
  t->recorded = true;
  ot_loop_note(s->request, "step %lld is recorded: orthant judge %s", (long long)next, path);
  return OT_OK;
}

// *stop: a rank was asked to stop.
static ot_status run_step(training *t, bool *stop) {
  ot_session *const s = &t->session;
  const int64_t next = ot_session_step(s) + 1;
  const bool last = next == ot_trainer_total_steps(s->start.trainer);
  bool traced, went_back = false;
  ot_step_report step;
  ot_step_sums sums;
  ot_kernel_watch_step(t->watch, next);
  OT_TRY(ot_step_trace_begin(&t->trace, s, next, &traced));
  OT_TRY(compute_step(t, next, &step));
  if (traced) OT_TRY(ot_trainer_set_events(s->start.trainer, false));
  OT_TRY(exchange(t, &step, &sums));
  if (traced) OT_TRY(ot_step_trace_write(&t->trace, s, &step));
  OT_TRY(ot_step_reporter_add(&t->reporter, s, &step, &sums));
  *stop = sums.stop;
  OT_TRY(ot_spike_response_watch(&t->spikes, s, &step, &went_back));
  if (went_back) return OT_OK;
  OT_TRY(ot_saving_poll(&t->saving, s, sums.saves));
  OT_TRY(ot_live_checks_run(s, step.step));
  OT_TRY(validate(t, step.step, last));
  if (last) return ot_saving_save_last(&t->saving, s);
  ot_state_copies_make_due(&t->copies, s, sums.copies);
  return ot_saving_save_due(&t->saving, s, sums.save_every);
}

// ---- the loop ----

// After a step, or after one that was left.
static ot_status stop_here(training *t, bool left) {
  const ot_session *const s = &t->session;
  const int64_t step = ot_session_step(s);
  const bool from_other = s->start.went_back || s->request->resume == OT_RESUME_NEVER;
  // The state before the first step is that of a new start.
  if (step > 0) OT_TRY(ot_saving_save_last(&t->saving, s));
  ot_fail(OT_STOPPED, "stopped by a signal %s step %lld", left ? "in" : "after",
          (long long)(left ? step + 1 : step));
  return ot_fail_hint(OT_STOPPED, "run the same command %s to continue%s",
                      from_other ? "without --resume" : "again",
                      left ? "; it takes that step again" : "");
}

static ot_status run_steps(training *t) {
  ot_session *const s = &t->session;
  const int64_t total = ot_trainer_total_steps(s->start.trainer);
  bool stop = false;
  ot_stop_signal_defer();
  t->reporter.begin_s = ot_clock_s();
  t->evaluating.after_begin_s = 0;
  while (ot_session_step(s) < total) {
    const ot_status status = run_step(t, &stop);
    if (status != OT_OK && status != OT_STOPPED) return status;
    if (status == OT_OK && !stop) continue;
    if (ot_session_step(s) == total) break;
    return stop_here(t, status == OT_STOPPED);
  }
  OT_TRY(ot_session_check_position(s));
  return ot_step_trace_finish(&t->trace, s);
}

// Called before each kernel.
static bool leaves(void *context) {
  const ot_session *const s = context;
  ot_heartbeat_beat(s->heartbeat);
  return ot_stop_signal_leaves(ot_world_comm(s->request->world));
}

static ot_status begin_steps(training *t) {
  ot_session *const s = &t->session;
  const ot_executor_leave leave = {
      .asks = leaves, .context = s, .progress = ot_kernel_watch_progress(t->watch)};
  ot_executor_set_leave(ot_runtime_executor(ot_session_runtime(s)), &leave);
  ot_trainer_set_trace(s->start.trainer, true);
  ot_step_exchange_begin(&t->exchange, s);
  OT_TRY(ot_live_checks_begin(s));
  s->begin_step = ot_session_step(s);
  return s->begin_step == 0 ? validate(t, 0, true) : OT_OK;
}

// The parts, before the first step; the leader opens files.
static ot_status begin_parts(training *t) {
  ot_session *const s = &t->session;
  ot_world *const world = s->request->world;
  const bool leads = ot_session_leads(s);
  OT_TRY(ot_world_agree(world, leads ? ot_loop_check_files(s->request, s->arena) : OT_OK));
  ot_loop_warn_settings(s->request, ot_trainer_data_loader(s->start.trainer), s->arena);
  OT_TRY(ot_saving_create(&t->saving, s));
  OT_TRY(ot_state_copies_begin(&t->copies, s));
  OT_TRY(ot_evaluating_begin(&t->evaluating, s));
  OT_TRY(ot_world_agree(world, leads ? ot_step_log_open(s) : OT_OK));
  OT_TRY(ot_step_reporter_begin(&t->reporter, s));
  OT_TRY(ot_world_agree(world, leads ? ot_heartbeat_create(s->run->output, &s->heartbeat) : OT_OK));
  return ot_world_agree(world,
                        ot_loop_watch_kernels(s->request, s->start.trainer, s->arena, &t->watch));
}

// Whether the step that is to be recorded will be taken, and its folder is free.
static ot_status check_record(const ot_session *s) {
  const ot_loop_request *const request = s->request;
  const int64_t step = request->record_step, total = ot_run_total_steps(s->run);
  const int64_t done = s->start.finished ? total : ot_session_step(s);
  if (!request->record_path) return OT_OK;
  if (step > done && step <= total)
    return ot_step_recording_check(s->start.trainer, request->record_path);
  ot_fail(OT_USAGE, "step %lld is not taken: %lld of %lld steps are done (--record)",
          (long long)step, (long long)done, (long long)total);
  return ot_fail_hint(OT_USAGE, "%s",
                      done < total
                          ? "record a step that this run takes"
                          : "the run is finished; --resume DIR begins from an earlier checkpoint");
}

static ot_status train(training *t) {
  ot_session *const s = &t->session;
  OT_TRY(ot_loop_start_open(s->request, s->arena, &s->start));
  OT_TRY(ot_world_agree(s->request->world, check_record(s)));
  if (s->start.finished) return OT_OK;
  OT_TRY(begin_parts(t));
  ot_status status = begin_steps(t);
  if (status == OT_OK) status = run_steps(t);
  ot_loop_log_stop(&s->start, status);
  if (status == OT_OK) ot_step_reporter_print_means(&t->reporter, s);
  if (status != OT_OK && status != OT_STOPPED) return status;
  ot_state_copies_end(s);
  ot_step_reporter_print_summary(&t->reporter, s, t->saving.saved_step);
  return status;
}

static void end_parts(training *t) {
  ot_session *const s = &t->session;
  ot_heartbeat_destroy(&s->heartbeat);
  ot_trace_destroy(&t->trace.trace);
  ot_step_log_close(s);
  ot_saving_destroy(&t->saving);
  ot_evaluating_end(&t->evaluating);
  ot_loop_start_close(&s->start);
  ot_kernel_watch_destroy(&t->watch);
}

ot_status ot_loop_run(const ot_loop_request *request) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  training t = {.session = {.request = request,
                            .run = request->run,
                            .arena = &arena,
                            .log = {.open_s = ot_clock_s()}}};
  t.reporter.evaluating = &t.evaluating;
  t.saving.means = &t.reporter.means;
  t.saving.spikes = &t.spikes.watch;
  t.spikes.saving = &t.saving;
  t.spikes.copies = &t.copies;
  const ot_status status = train(&t);
  end_parts(&t);
  ot_heap_release(&heap);
  return status;
}
