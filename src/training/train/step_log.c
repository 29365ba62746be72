// SPDX-License-Identifier: Apache-2.0
// Each figure goes to metrics.jsonl, to TensorBoard if the run has it, and to the sink.
#include "train/step_log.h"

#include "base/failure.h"
#include "base/text.h"
#include "host/clock.h"
#include "train/session.h"

enum { KEY_BYTES = 512 };

// ---- events ----

void ot_loop_log(const ot_loop_start *start, const ot_run_event *event) {
  if (start->directory) ot_run_directory_log(start->directory, event);
}

// Measures the metrics that are about to be removed.
static ot_status measure_metrics(const ot_loop_start *start, int64_t step,
                                 ot_metrics_extent *extent) {
  return ot_metrics_measure(ot_run_directory_metrics(start->directory), step, extent);
}

ot_status ot_loop_log_start(const ot_loop_request *request, const ot_loop_start *start,
                            double open_s, ot_loop_account *account) {
  if (!start->directory) return OT_OK;
  const double load_s = ot_clock_s() - open_s;
  const int64_t step = ot_trainer_position(start->trainer).step;
  const bool random = ot_text_equal(request->run->init, "random");
  ot_metrics_extent before;
  OT_TRY(measure_metrics(start, step, &before));
  const char *const events = ot_run_directory_events(start->directory);
  const int64_t starts = ot_run_events_starts(events, &account->begin_s);
  if (starts == 0) account->begin_s = ot_clock_unix_s() - load_s;
  account->counted_s = before.kept_s;
  if ((start->resumed_here || start->from_memory) && before.newest < step)
    ot_loop_note(request, "warning: %s ends at step %lld, and the run goes on after step %lld",
                 ot_run_directory_metrics(start->directory), (long long)before.newest,
                 (long long)step);
  const ot_run_event event = {.kind = OT_RUN_EVENT_START,
                              .step = step,
                              .attempt = starts + 1,
                              .ranks = ot_world_size(request->world),
                              .from = start->from_memory ? "memory"
                                      : step > 0         ? "checkpoint"
                                      : random           ? "nothing"
                                                         : "init",
                              .last_step = before.newest,
                              .lost_s = before.later_s,
                              .load_s = load_s};
  return ot_run_event_append(events, &event);
}

ot_status ot_loop_log_rewind(const ot_loop_start *start, ot_loop_account *account) {
  if (!start->directory) return OT_OK;
  const int64_t step = ot_trainer_position(start->trainer).step;
  ot_metrics_extent before;
  OT_TRY(measure_metrics(start, step, &before));
  account->counted_s = before.kept_s;
  const ot_run_event event = {.kind = OT_RUN_EVENT_REWIND,
                              .step = step,
                              .last_step = before.newest,
                              .lost_s = before.later_s};
  ot_loop_log(start, &event);
  return OT_OK;
}

void ot_loop_log_stop(const ot_loop_start *start, ot_status status) {
  const char *reason = "failure";
  if (status == OT_OK) reason = "end";
  if (status == OT_STOPPED) reason = "signal";
  if (status == OT_NUMERIC) reason = "numeric";
  ot_failure failure = {.status = OT_OK};
  ot_failure_take(&failure, status);
  const ot_run_event event = {.kind = OT_RUN_EVENT_STOP,
                              .step = ot_trainer_position(start->trainer).step,
                              .reason = reason};
  ot_loop_log(start, &event);
  (void)ot_failure_repeat(&failure);
}

void ot_loop_log_timed(const ot_loop_start *start, ot_run_event_kind kind, int64_t step,
                       double begin_s) {
  const ot_run_event event = {.kind = kind, .step = step, .seconds = ot_clock_s() - begin_s};
  ot_loop_log(start, &event);
}

void ot_loop_log_save(const ot_loop_start *start, const ot_state_saved *saved, int64_t every) {
  const ot_run_event event = {.kind = OT_RUN_EVENT_SAVE,
                              .step = saved->step,
                              .seconds = saved->seconds,
                              .blocked_s = saved->blocked_s,
                              .bytes = saved->bytes,
                              .every = every};
  ot_loop_log(start, &event);
}

void ot_loop_log_fallback(const ot_loop_start *start, const char *reason) {
  const ot_run_event event = {.kind = OT_RUN_EVENT_FALLBACK,
                              .step = ot_trainer_position(start->trainer).step,
                              .reason = reason};
  ot_loop_log(start, &event);
}

// ---- the files ----

ot_status ot_step_log_open(ot_session *s) {
  ot_step_log *const log = &s->log;
  const ot_loop_start *const start = &s->start;
  const int64_t step = ot_session_step(s);
  const bool again = log->opened;
  OT_TRY(again ? ot_loop_log_rewind(start, &log->account)
               : ot_loop_log_start(s->request, start, log->open_s, &log->account));
  log->opened = true;
  OT_TRY(ot_metrics_create(ot_run_directory_metrics(start->directory), step, &log->metrics));
  if (!s->run->log.tensorboard) return OT_OK;
  const ot_status status = ot_tensorboard_create(ot_run_directory_tensorboard(start->directory),
                                                 step, &log->tensorboard);
  if (status == OT_OK || !again) return status;
  ot_loop_note(s->request, "warning: no more files for TensorBoard: %s", ot_fail_message());
  return OT_OK;
}

void ot_step_log_close(ot_session *s) {
  ot_step_log *const log = &s->log;
  if (log->metrics) log->lost_before += ot_log_file_lost(ot_metrics_log(log->metrics));
  if (log->tensorboard) log->lost_before += ot_log_file_lost(ot_tensorboard_log(log->tensorboard));
  ot_tensorboard_destroy(&log->tensorboard);
  ot_metrics_destroy(&log->metrics);
}

// ---- figures ----

void ot_step_log_step(ot_session *s, const ot_metrics_step *line) {
  ot_metrics_write_step(s->log.metrics, line);
  if (s->log.tensorboard) ot_tensorboard_write_step(s->log.tensorboard, line);
}

static void write_tensorboard(const ot_step_log *log, int64_t step, const char *key, double value) {
  const ot_metric metric = {key, value};
  if (log->tensorboard) ot_tensorboard_write(log->tensorboard, step, &metric, 1);
}

void ot_step_log_validation(ot_session *s, int64_t step, const char *name, double loss) {
  char key[KEY_BYTES];
  ot_metrics_write_validation(s->log.metrics, step, name, loss);
  ot_text_format(key, sizeof key, "validation/%s", name[0] ? name : "loss");
  write_tensorboard(&s->log, step, key, loss);
  const ot_loop_event event = {
      .kind = OT_LOOP_VALIDATION, .name = name, .step = step, .loss = loss};
  s->request->sink(s->request->context, &event);
}

void ot_step_log_figure(ot_session *s, int64_t step, const char *key, double value) {
  ot_metrics_write_figure(s->log.metrics, step, key, value);
  write_tensorboard(&s->log, step, key, value);
  const ot_loop_event event = {
      .kind = OT_LOOP_EVALUATION, .name = key, .step = step, .value = value};
  s->request->sink(s->request->context, &event);
}

void ot_step_log_audit(ot_session *s, int64_t step, const ot_loop_findings *found) {
  char key[KEY_BYTES];
  ot_metrics_write_audit(s->log.metrics, step, found->audit, found->count);
  ot_text_format(key, sizeof key, "audit/%s", found->audit);
  write_tensorboard(&s->log, step, key, found->count);
  if (found->count == 0) return;
  ot_loop_note(s->request, "%s", found->text);
  ot_metrics_sync(s->log.metrics);
}

// ---- what happened to the files ----

static void report_news(ot_session *s, int64_t step, ot_log_file *log) {
  const char *const news = ot_log_file_news(log);
  if (!news) return;
  ot_loop_note(s->request, "%s", news);
  const ot_run_event event = {.kind = OT_RUN_EVENT_LOG, .step = step, .reason = news};
  ot_loop_log(&s->start, &event);
}

void ot_step_log_report(ot_session *s, int64_t step) {
  const char *why;
  report_news(s, step, ot_metrics_log(s->log.metrics));
  if (s->log.tensorboard) report_news(s, step, ot_tensorboard_log(s->log.tensorboard));
  if (s->log.noted_events || ot_run_directory_lost(s->start.directory, &why) == 0) return;
  ot_loop_note(s->request, "warning: an event is not recorded: %s; the run goes on", why);
  s->log.noted_events = true;
}

int64_t ot_step_log_lost(const ot_session *s) {
  const char *why;
  int64_t lost = s->log.lost_before + ot_run_directory_lost(s->start.directory, &why);
  if (s->log.metrics) lost += ot_log_file_lost(ot_metrics_log(s->log.metrics));
  if (s->log.tensorboard) lost += ot_log_file_lost(ot_tensorboard_log(s->log.tensorboard));
  return lost;
}
