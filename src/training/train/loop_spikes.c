// SPDX-License-Identifier: Apache-2.0
// Answers to outlier steps. Loss and norm are the same on all ranks, and so are the answers.
#include <math.h>

#include "base/failure.h"
#include "base/text.h"
#include "checkpoint/checkpoint_list.h"
#include "host/heap.h"
#include "train/loop_events.h"
#include "train/loop_memory.h"
#include "train/loop_state.h"

static ot_spike_step spike_step_of(const ot_loop *l, const ot_step_report *report) {
  const int64_t next = ot_trainer_position(l->start.trainer).next_sample;
  return (ot_spike_step){.step = report->step,
                         .loss_nats = report->loss,
                         .gradient_norm = report->gradient_norm,
                         .first_sample = next - report->step_tokens / l->run->data.sequence_length,
                         .last_sample = next - 1};
}

// `answer` is the run's answer to the step.
static void log_spike(const ot_loop *l, const ot_spike_step *step, const ot_spike *spike,
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
  ot_loop_log(&l->start, &event);
}

static void report_spike(const ot_loop *l, const ot_spike_step *step, const ot_spike *spike,
                         ot_spike_answer answer) {
  const ot_metrics_spike line = {.step = step->step,
                                 .name = spike->name,
                                 .z = spike->z,
                                 .first_sample = step->first_sample,
                                 .last_sample = step->last_sample};
  ot_loop_note(l->request,
               "step %lld: %s is an outlier (z = %.3g over the last %d steps); its samples are "
               "%lld to %lld",
               (long long)step->step, spike->name, spike->z, OT_SPIKE_WINDOW,
               (long long)step->first_sample, (long long)step->last_sample);
  ot_metrics_write_spike(l->metrics, &line);
  log_spike(l, step, spike, answer);
}

static ot_status end_at_spike(const ot_loop *l, const ot_spike_step *step) {
  ot_fail(OT_NUMERIC,
          "step %lld is an outlier (loss %g, gradient norm %g, samples %lld to %lld): %s",
          (long long)step->step, step->loss_nats, step->gradient_norm,
          (long long)step->first_sample, (long long)step->last_sample, l->spikes.reason);
  return ot_fail_hint(OT_NUMERIC,
                      "the step was not saved; the same command goes on from the checkpoint before "
                      "it, with --set on_spike=skip without these samples");
}

// The checkpoint to go back to, found by the leader.
static ot_status find_earlier(const ot_loop *l, ot_arena *arena, char *path) {
  static const ot_checkpoint_search all = {.hashes = OT_CHECKPOINT_HASH_ALL};
  ot_checkpoint_found found = {0};
  OT_TRY(
      ot_checkpoint_newest(arena, ot_run_directory_checkpoints(l->start.directory), &all, &found));
  OT_CHECK(found.path, OT_NUMERIC, "the run has no checkpoint to go back to (checkpoint.every)");
  ot_text_format(path, OT_WORLD_TEXT, "%s", found.path);
  return OT_OK;
}

// The leader's files continue after `step`; what they had after it is set aside.
static ot_status rewind_files(ot_loop *l, int64_t step, ot_arena *arena) {
  const char *note = NULL;
  ot_metrics_sync(l->metrics);
  ot_loop_close_logs(l);
  OT_TRY(ot_run_directory_rewind(l->start.directory, step, arena, &note));
  return ot_loop_open_logs(l);
}

static ot_status go_back(ot_loop *l, const ot_spike_step *spike, bool skips, ot_arena *arena) {
  ot_trainer *const trainer = l->start.trainer;
  char path[OT_WORLD_TEXT] = "";
  OT_TRY(ot_saving_finish(l));
  OT_TRY(
      ot_world_agree(l->request->world, ot_loop_leads(l) ? find_earlier(l, arena, path) : OT_OK));
  OT_TRY(ot_world_broadcast(l->request->world, path));
  OT_TRY(ot_trainer_resume(trainer, path));
  ot_position position = ot_trainer_position(trainer);
  if (position.step < l->begin_step) l->begin_step = position.step;
  l->saving.saved_step = position.step;
  OT_TRY(ot_world_agree(l->request->world,
                        ot_loop_leads(l) ? rewind_files(l, position.step, arena) : OT_OK));
  OT_TRY(ot_loop_memory_turn(l));
  ot_loop_note(l->request, "back to step %lld; samples %lld to %lld are %s",
               (long long)position.step, (long long)position.next_sample,
               (long long)spike->last_sample, skips ? "skipped" : "repeated");
  if (!skips) return OT_OK;
  position.next_sample = spike->last_sample + 1;
  ot_trainer_set_position(trainer, &position);
  return OT_OK;
}

static ot_status answer_spike(ot_loop *l, const ot_spike_step *step, ot_spike_answer answer,
                              bool *went_back) {
  if (answer == OT_SPIKE_CONTINUES) return OT_OK;
  if (answer == OT_SPIKE_ENDS) return end_at_spike(l, step);
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_status status = go_back(l, step, answer == OT_SPIKE_SKIPS, &arena);
  ot_heap_release(&heap);
  *went_back = status == OT_OK;
  return status;
}

static void note_transient(const ot_loop *l, int64_t step) {
  ot_loop_note(l->request,
               "step %lld differs from before although samples and weights are the same: a "
               "transient fault of a device, its memory or the network",
               (long long)step);
}

ot_status ot_loop_watch_spikes(ot_loop *l, const ot_step_report *report, bool *went_back) {
  const ot_spike_step step = spike_step_of(l, report);
  ot_spike spikes[2];
  if (ot_spike_watch_differs(&l->spikes, &step)) note_transient(l, step.step);
  const int count = ot_spike_watch_add(&l->spikes, &step, spikes);
  if (count == 0) return OT_OK;
  const ot_spike_answer answer = ot_spike_watch_answer(&l->spikes, l->run->on_spike, &step);
  for (int i = 0; i < count && ot_loop_leads(l); i++) {
    report_spike(l, &step, &spikes[i], answer);
  }
  return answer_spike(l, &step, answer, went_back);
}

// A step that is not finite has updated nothing (ot_trainer_step): it needs no checkpoint.
static ot_status repeat_nonfinite(ot_loop *l, const ot_position *before, ot_step_report *report) {
  const ot_spike_step step = spike_step_of(l, report);
  ot_failure failure = {.status = OT_OK};
  ot_failure_take(&failure, OT_NUMERIC);
  const ot_spike_answer answer = ot_spike_watch_answer(&l->spikes, l->run->on_spike, &step);
  const ot_spike spike = {.name = isfinite(step.loss_nats) ? "grad_norm" : "loss", .z = NAN};
  log_spike(l, &step, &spike, answer);
  if (answer == OT_SPIKE_CONTINUES || answer == OT_SPIKE_ENDS) return ot_failure_repeat(&failure);
  ot_position position = *before;
  const bool skips = answer == OT_SPIKE_SKIPS;
  ot_loop_note(l->request, "%s; nothing was updated: the step is taken again with %s samples",
               failure.message, skips ? "the next" : "the same");
  if (skips) position.next_sample = step.last_sample + 1;
  ot_trainer_set_position(l->start.trainer, &position);
  return ot_loop_take_step(l, report);
}

ot_status ot_loop_take_step(ot_loop *l, ot_step_report *report) {
  const ot_position before = ot_trainer_position(l->start.trainer);
  const ot_status status = ot_trainer_step(l->start.trainer, report);
  return status == OT_NUMERIC ? repeat_nonfinite(l, &before, report) : status;
}
