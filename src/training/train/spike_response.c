// SPDX-License-Identifier: Apache-2.0
// Answers to outlier steps. Loss and norm are the same on all ranks, and so are the answers.
#include "train/spike_response.h"

#include <math.h>

#include "base/failure.h"
#include "base/text.h"
#include "checkpoint/checkpoint_list.h"
#include "host/heap.h"

static ot_spike_step spike_step_of(const ot_session *s, const ot_step_report *report) {
  const int64_t next = ot_trainer_position(s->start.trainer).next_sample;
  return (ot_spike_step){.step = report->step,
                         .loss_nats = report->loss,
                         .gradient_norm = report->gradient_norm,
                         .first_sample = next - report->step_tokens / s->run->data.sequence_length,
                         .last_sample = next - 1};
}

// `answer` is the run's answer to the step.
static void log_spike(const ot_session *s, const ot_spike_step *step, const ot_spike *spike,
                      ot_spike_answer answer) {
  static const char *const actions[] = {[OT_SPIKE_CONTINUES] = "note",
                                        [OT_SPIKE_ENDS] = "stop",
                                        [OT_SPIKE_SKIPS] = "skip",
                                        [OT_SPIKE_REPEATS] = "rewind"};
  const ot_run_event event = {.kind = OT_RUN_EVENT_SPIKE,
                              .step = step->step,
                              .name = spike->name,
                              .z = spike->z,
                              .first_sample = step->first_sample,
                              .last_sample = step->last_sample,
                              .action = actions[answer]};
  ot_loop_log(&s->start, &event);
}

static void report_spike(const ot_session *s, const ot_spike_step *step, const ot_spike *spike,
                         ot_spike_answer answer) {
  const ot_metrics_spike line = {.step = step->step,
                                 .name = spike->name,
                                 .z = spike->z,
                                 .first_sample = step->first_sample,
                                 .last_sample = step->last_sample};
  ot_loop_note(s->request,
               "step %lld: %s is an outlier (z = %.3g over the last %d steps); its samples are "
               "%lld to %lld",
               (long long)step->step, spike->name, spike->z, OT_SPIKE_WINDOW,
               (long long)step->first_sample, (long long)step->last_sample);
  ot_metrics_write_spike(s->log.metrics, &line);
  log_spike(s, step, spike, answer);
}

static ot_status end_at_spike(const char *reason, const ot_spike_step *step) {
  ot_fail(OT_NUMERIC,
          "step %lld is an outlier (loss %g, gradient norm %g, samples %lld to %lld): %s",
          (long long)step->step, step->loss_nats, step->gradient_norm,
          (long long)step->first_sample, (long long)step->last_sample, reason);
  return ot_fail_hint(OT_NUMERIC,
                      "the step was not saved; the same command goes on from the checkpoint before "
                      "it, with --set on_spike=skip without these samples");
}

// The checkpoint to go back to, found by the leader.
static ot_status find_earlier(const ot_session *s, ot_arena *arena, char *path) {
  static const ot_checkpoint_search all = {.hashes = OT_CHECKPOINT_HASH_ALL};
  ot_checkpoint_found found = {0};
  OT_TRY(
      ot_checkpoint_newest(arena, ot_run_directory_checkpoints(s->start.directory), &all, &found));
  OT_CHECK(found.path, OT_NUMERIC, "the run has no checkpoint to go back to (checkpoint.every)");
  ot_text_format(path, OT_WORLD_TEXT, "%s", found.path);
  return OT_OK;
}

// The leader's files continue after `step`; what they had after it is set aside.
static ot_status rewind_files(ot_session *s, int64_t step, ot_arena *arena) {
  const char *note = NULL;
  ot_metrics_sync(s->log.metrics);
  ot_step_log_close(s);
  OT_TRY(ot_run_directory_rewind(s->start.directory, step, arena, &note));
  return ot_step_log_open(s);
}

static ot_status go_back(ot_spike_response *r, ot_session *s, const ot_spike_step *spike,
                         bool skips, ot_arena *arena) {
  ot_trainer *const trainer = s->start.trainer;
  char path[OT_WORLD_TEXT] = "";
  OT_TRY(ot_saving_finish(r->saving, s));
  OT_TRY(ot_world_agree(s->request->world,
                        ot_session_leads(s) ? find_earlier(s, arena, path) : OT_OK));
  OT_TRY(ot_world_broadcast(s->request->world, path));
  OT_TRY(ot_trainer_resume(trainer, path));
  ot_position position = ot_trainer_position(trainer);
  if (position.step < s->begin_step) s->begin_step = position.step;
  r->saving->saved_step = position.step;
  OT_TRY(ot_world_agree(s->request->world,
                        ot_session_leads(s) ? rewind_files(s, position.step, arena) : OT_OK));
  OT_TRY(ot_state_copies_turn(r->copies, s));
  ot_loop_note(s->request, "back to step %lld; samples %lld to %lld are %s",
               (long long)position.step, (long long)position.next_sample,
               (long long)spike->last_sample, skips ? "skipped" : "repeated");
  if (!skips) return OT_OK;
  position.next_sample = spike->last_sample + 1;
  ot_trainer_set_position(trainer, &position);
  return OT_OK;
}

static ot_status answer_spike(ot_spike_response *r, ot_session *s, const ot_spike_step *step,
                              ot_spike_answer answer, bool *went_back) {
  if (answer == OT_SPIKE_CONTINUES) return OT_OK;
  if (answer == OT_SPIKE_ENDS) return end_at_spike(r->watch.reason, step);
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_status status = go_back(r, s, step, answer == OT_SPIKE_SKIPS, &arena);
  ot_heap_release(&heap);
  *went_back = status == OT_OK;
  return status;
}

static void note_transient(const ot_session *s, int64_t step) {
  ot_loop_note(s->request,
               "step %lld differs from before although samples and weights are the same: a "
               "transient fault of a device, its memory or the network",
               (long long)step);
}

ot_status ot_spike_response_watch(ot_spike_response *r, ot_session *s, const ot_step_report *report,
                                  bool *went_back) {
  const ot_spike_step step = spike_step_of(s, report);
  ot_spike spikes[2];
  if (ot_spike_watch_differs(&r->watch, &step)) note_transient(s, step.step);
  const int count = ot_spike_watch_add(&r->watch, &step, spikes);
  if (count == 0) return OT_OK;
  const ot_spike_answer answer = ot_spike_watch_answer(&r->watch, s->run->on_spike, &step);
  for (int i = 0; i < count && ot_session_leads(s); i++) {
    report_spike(s, &step, &spikes[i], answer);
  }
  return answer_spike(r, s, &step, answer, went_back);
}

// A step that is not finite has updated nothing (ot_trainer_step): it needs no checkpoint.
static ot_status repeat_nonfinite(ot_spike_response *r, ot_session *s, const ot_position *before,
                                  ot_step_report *report) {
  const ot_spike_step step = spike_step_of(s, report);
  ot_failure failure = {.status = OT_OK};
  ot_failure_take(&failure, OT_NUMERIC);
  const ot_spike_answer answer = ot_spike_watch_answer(&r->watch, s->run->on_spike, &step);
  const ot_spike spike = {.name = isfinite(step.loss_nats) ? "grad_norm" : "loss", .z = NAN};
  log_spike(s, &step, &spike, answer);
  if (answer == OT_SPIKE_CONTINUES || answer == OT_SPIKE_ENDS) return ot_failure_repeat(&failure);
  ot_position position = *before;
  const bool skips = answer == OT_SPIKE_SKIPS;
  ot_loop_note(s->request, "%s; nothing was updated: the step is taken again with %s samples",
               failure.message, skips ? "the next" : "the same");
  if (skips) position.next_sample = step.last_sample + 1;
  ot_trainer_set_position(s->start.trainer, &position);
  return ot_spike_response_step(r, s, report);
}

ot_status ot_spike_response_step(ot_spike_response *r, ot_session *s, ot_step_report *report) {
  const ot_position before = ot_trainer_position(s->start.trainer);
  const ot_status status = ot_trainer_step(s->start.trainer, report);
  return status == OT_NUMERIC ? repeat_nonfinite(r, s, &before, report) : status;
}
