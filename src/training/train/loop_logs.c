// SPDX-License-Identifier: Apache-2.0
// The files that the leader appends to at each step: metrics, TensorBoard, events. None of them
// ends a run: what happens to them is a note and an event, and what they lack is counted.
#include "base/text.h"
#include "train/loop_state.h"

ot_status ot_loop_open_logs(ot_loop *l) {
  const int64_t step = ot_trainer_position(l->start.trainer).step;
  OT_TRY(l->summary.steps == 0 ? ot_loop_log_start(l->request, &l->start, l->open_s, &l->account)
                               : ot_loop_log_rewind(&l->start, &l->account));
  OT_TRY(ot_metrics_create(ot_run_directory_metrics(l->start.directory), step, &l->metrics));
  if (!l->run->log.tensorboard) return OT_OK;
  const ot_status status = ot_tensorboard_create(ot_run_directory_tensorboard(l->start.directory),
                                                 step, &l->tensorboard);
  if (status == OT_OK || l->summary.steps == 0) return status;
  ot_loop_note(l->request, "warning: no more files for TensorBoard: %s", ot_fail_message());
  return OT_OK;
}

void ot_loop_close_logs(ot_loop *l) {
  if (l->metrics) l->lost_before += ot_log_file_lost(ot_metrics_log(l->metrics));
  if (l->tensorboard) l->lost_before += ot_log_file_lost(ot_tensorboard_log(l->tensorboard));
  ot_tensorboard_destroy(&l->tensorboard);
  ot_metrics_destroy(&l->metrics);
}

static void report_news(ot_loop *l, int64_t step, ot_log_file *log) {
  const char *const news = ot_log_file_news(log);
  if (!news) return;
  ot_loop_note(l->request, "%s", news);
  const ot_run_event event = {.kind = OT_RUN_EVENT_LOG, .step = step, .reason = news};
  ot_loop_log(&l->start, &event);
}

void ot_loop_tell_logs(ot_loop *l, int64_t step) {
  const char *why;
  report_news(l, step, ot_metrics_log(l->metrics));
  if (l->tensorboard) report_news(l, step, ot_tensorboard_log(l->tensorboard));
  if (l->told_events || ot_run_directory_lost(l->start.directory, &why) == 0) return;
  ot_loop_note(l->request, "warning: an event is not recorded: %s; the run goes on", why);
  l->told_events = true;
}

int64_t ot_loop_lost_lines(const ot_loop *l) {
  const char *why;
  int64_t lost = l->lost_before + ot_run_directory_lost(l->start.directory, &why);
  if (l->metrics) lost += ot_log_file_lost(ot_metrics_log(l->metrics));
  if (l->tensorboard) lost += ot_log_file_lost(ot_tensorboard_log(l->tensorboard));
  return lost;
}
