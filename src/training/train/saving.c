// SPDX-License-Identifier: Apache-2.0
// Whether a save failed is known to all ranks, so that all draw the same conclusion.
#include "train/saving.h"

#include "base/failure.h"
#include "base/text.h"
#include "checkpoint/checkpoint_list.h"
#include "simulate/goodput.h"
#include "state/save_interval.h"
#include "train/loop_events.h"
#include "train/loop_state.h"

ot_status ot_saving_create(ot_loop *l) {
  ot_saving *const saving = &l->saving;
  saving->saved_step = l->start.resumed_here ? ot_trainer_position(l->start.trainer).step : -1;
  saving->under_way = -1;
  ot_runtime *const runtime = ot_trainer_runtime(l->start.trainer);
  return ot_world_agree(l->request->world,
                        ot_state_save_create(runtime, l->request->world, &l->start.access,
                                             l->run->checkpoint.async, &saving->state));
}

void ot_saving_destroy(ot_loop *l) { ot_state_save_destroy(&l->saving.state); }

// ---- what follows a save ----

// The leader's part after all files are written.
static ot_status close_save(const ot_loop *l, ot_arena *arena) {
  const bool resumed = l->request->resume == OT_RESUME_FROM;
  OT_TRY(ot_run_directory_set_saved(l->start.directory, resumed ? l->request->resume_path : ""));
  OT_TRY(ot_checkpoint_prune(arena, ot_run_directory_checkpoints(l->start.directory),
                             l->run->checkpoint.keep));
  const ot_state_saved saved = ot_state_save_last(l->saving.state);
  OT_TRY(ot_run_directory_add_saved(l->start.directory, saved.step));
  ot_loop_log_save(&l->start, &saved, l->saving.every);
  return OT_OK;
}

static ot_status close_with_heap(const ot_loop *l) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_status status = close_save(l, &arena);
  ot_heap_release(&heap);
  return status;
}

// Adds to the message of a failed wait that it was part of a save.
static ot_status name_save(int64_t step, ot_status status) {
  if (status != OT_RANKS) return status;
  ot_failure failure = {.status = OT_OK};
  ot_failure_take(&failure, status);
  ot_fail(status, "saving step %lld: %s", (long long)step, failure.message);
  return failure.hint[0] ? ot_fail_hint(status, "%s", failure.hint) : status;
}

static ot_status end_run(int64_t step, const ot_failure *failure, int failures) {
  ot_fail(failure->status, "step %lld was not saved%s: %s", (long long)step,
          failures > 1 ? ", nor were the saves before it" : "", failure->message);
  return ot_fail_hint(failure->status, "%s",
                      failure->hint[0] ? failure->hint
                                       : "older checkpoints are unchanged; the same command goes "
                                         "on from the newest one");
}

// A failure of files is one of the run only if it is one too many, or the last save.
static ot_status judge(ot_loop *l, int64_t step, ot_status status, bool last) {
  ot_saving *const saving = &l->saving;
  if (status != OT_ENVIRONMENT) return name_save(step, status);
  ot_failure failure = {.status = OT_OK};
  ot_failure_take(&failure, status);
  saving->failures++;
  const ot_run_event event = {
      .kind = OT_RUN_EVENT_SAVE_FAILED, .step = step, .reason = failure.message};
  ot_loop_log(&l->start, &event);
  if (last || saving->failures == OT_SAVING_FAILURES_MAX)
    return end_run(step, &failure, saving->failures);
  ot_loop_note(l->request,
               "warning: step %lld was not saved: %s%s%s; training goes on, and ends after %d "
               "failed saves in a row (%d now)",
               (long long)step, failure.message, failure.hint[0] ? "; " : "", failure.hint,
               OT_SAVING_FAILURES_MAX, saving->failures);
  return OT_OK;
}

// The save of `step` has ended with `status`, the same on all ranks.
static ot_status conclude(ot_loop *l, int64_t step, ot_status status, bool last) {
  if (status == OT_OK) {
    const ot_status closed = ot_loop_leads(l) ? close_with_heap(l) : OT_OK;
    status = ot_world_agree(l->request->world, closed);
  }
  if (status != OT_OK) return judge(l, step, status, last);
  const ot_state_saved saved = ot_state_save_last(l->saving.state);
  l->saving.failures = 0;
  l->saving.saved_step = step;
  l->saving.num_measured++;
  l->saving.blocked_s += saved.blocked_s;
  l->saving.seconds += saved.seconds;
  ot_spike_watch_saved(&l->spikes, step);
  return OT_OK;
}

// ---- saves ----

static ot_status start(ot_loop *l) {
  ot_trainer *const trainer = l->start.trainer;
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const char *path = NULL;
  if (ot_loop_leads(l))
    path = ot_checkpoint_path(&arena, ot_run_directory_checkpoints(l->start.directory),
                              ot_trainer_position(trainer).step);
  const int64_t every = l->run->checkpoint.every;
  l->saving.every = every == OT_CHECKPOINT_AUTO ? l->saving.chosen : every;
  const ot_state_request request = ot_trainer_state(trainer, path);
  if (ot_loop_leads(l)) ot_metrics_sync(l->metrics);
  ot_status status = ot_loop_check_position(l);
  if (status == OT_OK) status = ot_state_save_start(l->saving.state, &request);
  ot_heap_release(&heap);
  return status;
}

ot_status ot_saving_finish(ot_loop *l) {
  ot_saving *const saving = &l->saving;
  const int64_t step = saving->under_way;
  if (step < 0) return OT_OK;
  saving->under_way = -1;
  return conclude(l, step, ot_state_save_wait(saving->state), false);
}

static ot_status save_now(ot_loop *l, bool last) {
  const int64_t step = ot_trainer_position(l->start.trainer).step;
  ot_status status = start(l);
  if (status == OT_OK) status = ot_state_save_wait(l->saving.state);
  return conclude(l, step, status, last);
}

static ot_status start_beside(ot_loop *l) {
  ot_saving *const saving = &l->saving;
  const int64_t step = ot_trainer_position(l->start.trainer).step;
  saving->due = false;
  const ot_status status = start(l);
  if (status != OT_OK) return conclude(l, step, status, false);
  saving->under_way = step;
  return OT_OK;
}

ot_status ot_saving_save(ot_loop *l) {
  ot_saving *const saving = &l->saving;
  if (ot_trainer_position(l->start.trainer).step == saving->saved_step) return OT_OK;
  if (!l->run->checkpoint.async) return save_now(l, false);
  saving->due = saving->under_way >= 0;
  return saving->due ? OT_OK : start_beside(l);
}

// ---- when to save ----

// While no save has been measured, as after a failed one, a save is assumed to take a second.
static ot_save_times measured_times(const ot_loop *l) {
  const ot_saving *const saving = &l->saving;
  const double saves = (double)saving->num_measured;
  return (ot_save_times){
      .mtbf_s = ot_save_interval_mtbf(&l->run->checkpoint, ot_world_size(l->request->world)),
      .blocked_s = saves > 0 ? saving->blocked_s / saves : 1,
      .save_s = saves > 0 ? saving->seconds / saves : 1,
      .step_s = l->means.measured.step_s / (double)l->means.num_steps};
}

static void print_interval(ot_loop *l, const ot_save_times *times, int64_t steps) {
  const int64_t said = l->saving.said;
  if (l->saving.num_measured == 0 || (said > 0 && steps <= 2 * said && said <= 2 * steps)) return;
  l->saving.said = steps;
  ot_loop_note(
      l->request,
      "checkpoints every %lld step%s: a save blocks %.3g s of %.3g s, a step takes %.3g s, "
      "a failure is expected every %.3g h",
      (long long)steps, ot_text_plural(steps, "s"), times->blocked_s, times->save_s, times->step_s,
      times->mtbf_s / OT_HOUR_S);
}

int64_t ot_saving_choose(ot_loop *l) {
  if (l->run->checkpoint.every != OT_CHECKPOINT_AUTO || !ot_loop_leads(l)) return 0;
  if (!l->saving.tried) return OT_SAVING_FIRST;
  const ot_save_times times = measured_times(l);
  const int64_t steps = ot_save_interval_steps(&times);
  print_interval(l, &times, steps);
  return steps;
}

ot_status ot_saving_save_due(ot_loop *l, int64_t chosen) {
  ot_saving *const saving = &l->saving;
  const int64_t every = l->run->checkpoint.every;
  const int64_t step = ot_trainer_position(l->start.trainer).step;
  if (every != OT_CHECKPOINT_AUTO)
    return every > 0 && step % every == 0 ? ot_saving_save(l) : OT_OK;
  if (++saving->steps_since < chosen) return OT_OK;
  saving->steps_since = 0;
  saving->tried = true;
  saving->chosen = chosen;
  return ot_saving_save(l);
}

ot_status ot_saving_save_last(ot_loop *l) {
  OT_TRY(ot_saving_finish(l));
  const bool saved = ot_trainer_position(l->start.trainer).step == l->saving.saved_step;
  return saved ? OT_OK : save_now(l, true);
}

bool ot_saving_busy(const ot_loop *l) {
  return l->saving.under_way >= 0 && ot_state_save_busy(l->saving.state);
}

ot_status ot_saving_poll(ot_loop *l, bool busy) {
  ot_saving *const saving = &l->saving;
  if (saving->under_way < 0 || busy) return OT_OK;
  const ot_status status = ot_state_save_advance(saving->state);
  if (ot_state_save_active(saving->state)) return OT_OK;
  const int64_t step = saving->under_way;
  saving->under_way = -1;
  OT_TRY(conclude(l, step, status, false));
  return saving->due ? start_beside(l) : OT_OK;
}
