// SPDX-License-Identifier: Apache-2.0
// Values of the loop as events.
#include "train/loop_events.h"

#include "base/failure.h"
#include "base/text.h"
#include "host/clock.h"

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
