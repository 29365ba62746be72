// SPDX-License-Identifier: Apache-2.0
// Whether a save failed is known to all ranks, so that all draw the same conclusion.
#include "train/saving.h"

#include "base/failure.h"
#include "base/text.h"
#include "checkpoint/checkpoint_list.h"
#include "host/heap.h"
#include "simulate/goodput.h"
#include "state/save_interval.h"

ot_status ot_saving_create(ot_saving *saving, const ot_session *s) {
  saving->saved_step = s->start.resumed_here ? ot_session_step(s) : -1;
  saving->under_way = -1;
  return ot_world_agree(
      s->request->world,
      ot_state_save_create(ot_session_runtime(s), s->request->world, &s->start.access,
                           s->run->checkpoint.async, &saving->state));
}

void ot_saving_destroy(ot_saving *saving) { ot_state_save_destroy(&saving->state); }

// ---- what follows a save ----

// The leader's part after all files are written.
static ot_status close_save(const ot_saving *saving, const ot_session *s, ot_arena *arena) {
  const bool resumed = s->request->resume == OT_RESUME_FROM;
  OT_TRY(ot_run_directory_set_saved(s->start.directory, resumed ? s->request->resume_path : ""));
  OT_TRY(ot_checkpoint_prune(arena, ot_run_directory_checkpoints(s->start.directory),
                             s->run->checkpoint.keep));
  const ot_state_saved saved = ot_state_save_last(saving->state);
  OT_TRY(ot_run_directory_add_saved(s->start.directory, saved.step));
  ot_loop_log_save(&s->start, &saved, saving->every);
  return OT_OK;
}

static ot_status close_with_heap(const ot_saving *saving, const ot_session *s) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_status status = close_save(saving, s, &arena);
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
static ot_status judge(ot_saving *saving, const ot_session *s, int64_t step, ot_status status,
                       bool last) {
  if (status != OT_ENVIRONMENT) return name_save(step, status);
  ot_failure failure = {.status = OT_OK};
  ot_failure_take(&failure, status);
  saving->failures++;
  const ot_run_event event = {
      .kind = OT_RUN_EVENT_SAVE_FAILED, .step = step, .reason = failure.message};
  ot_loop_log(&s->start, &event);
  if (last || saving->failures == OT_FAILED_SAVES_MAX)
    return end_run(step, &failure, saving->failures);
  ot_loop_note(s->request,
               "warning: step %lld was not saved: %s%s%s; training goes on, and ends after %d "
               "failed saves in a row (%d now)",
               (long long)step, failure.message, failure.hint[0] ? "; " : "", failure.hint,
               OT_FAILED_SAVES_MAX, saving->failures);
  return OT_OK;
}

// The save of `step` has ended with `status`, the same on all ranks.
static ot_status conclude(ot_saving *saving, const ot_session *s, int64_t step, ot_status status,
                          bool last) {
  if (status == OT_OK) {
    const ot_status closed = ot_session_leads(s) ? close_with_heap(saving, s) : OT_OK;
    status = ot_world_agree(s->request->world, closed);
  }
  if (status != OT_OK) return judge(saving, s, step, status, last);
  const ot_state_saved saved = ot_state_save_last(saving->state);
  saving->failures = 0;
  saving->saved_step = step;
  saving->num_measured++;
  saving->blocked_s += saved.blocked_s;
  saving->seconds += saved.seconds;
  ot_spike_watch_saved(saving->spikes, step);
  return OT_OK;
}

// ---- saves ----

static ot_status start(ot_saving *saving, const ot_session *s) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const char *path = NULL;
  if (ot_session_leads(s))
    path = ot_checkpoint_path(&arena, ot_run_directory_checkpoints(s->start.directory),
                              ot_session_step(s));
  const int64_t every = s->run->checkpoint.every;
  saving->every = every == OT_CHECKPOINT_AUTO ? saving->chosen : every;
  const ot_state_request request = ot_trainer_state(s->start.trainer, path);
  if (ot_session_leads(s)) ot_metrics_sync(s->log.metrics);
  ot_status status = ot_session_check_position(s);
  if (status == OT_OK) status = ot_state_save_start(saving->state, &request);
  ot_heap_release(&heap);
  return status;
}

ot_status ot_saving_finish(ot_saving *saving, const ot_session *s) {
  const int64_t step = saving->under_way;
  if (step < 0) return OT_OK;
  saving->under_way = -1;
  return conclude(saving, s, step, ot_state_save_wait(saving->state), false);
}

static ot_status save_now(ot_saving *saving, const ot_session *s, bool last) {
  const int64_t step = ot_session_step(s);
  ot_status status = start(saving, s);
  if (status == OT_OK) status = ot_state_save_wait(saving->state);
  return conclude(saving, s, step, status, last);
}

static ot_status start_async(ot_saving *saving, const ot_session *s) {
  const int64_t step = ot_session_step(s);
  saving->due = false;
  const ot_status status = start(saving, s);
  if (status != OT_OK) return conclude(saving, s, step, status, false);
  saving->under_way = step;
  return OT_OK;
}

ot_status ot_saving_save(ot_saving *saving, const ot_session *s) {
  if (ot_session_step(s) == saving->saved_step) return OT_OK;
  if (!s->run->checkpoint.async) return save_now(saving, s, false);
  saving->due = saving->under_way >= 0;
  return saving->due ? OT_OK : start_async(saving, s);
}

// ---- when to save ----

// While no save has been measured, as after a failed one, a save is assumed to take a second.
static ot_save_times measured_times(const ot_saving *saving, const ot_session *s) {
  const double saves = (double)saving->num_measured;
  return (ot_save_times){
      .mtbf_s = ot_save_interval_mtbf(&s->run->checkpoint, ot_world_size(s->request->world)),
      .blocked_s = saves > 0 ? saving->blocked_s / saves : 1,
      .save_s = saves > 0 ? saving->seconds / saves : 1,
      .step_s = saving->means->measured.step_s / (double)saving->means->num_steps};
}

static void print_interval(ot_saving *saving, const ot_session *s, const ot_save_times *times,
                           int64_t steps) {
  const int64_t said = saving->said;
  if (saving->num_measured == 0 || (said > 0 && steps <= 2 * said && said <= 2 * steps)) return;
  saving->said = steps;
  ot_loop_note(
      s->request,
      "checkpoints every %lld step%s: a save blocks %.3g s of %.3g s, a step takes %.3g s, "
      "a failure is expected every %.3g h",
      (long long)steps, ot_text_plural(steps, "s"), times->blocked_s, times->save_s, times->step_s,
      times->mtbf_s / OT_HOUR_S);
}

int64_t ot_saving_choose(ot_saving *saving, const ot_session *s) {
  if (s->run->checkpoint.every != OT_CHECKPOINT_AUTO || !ot_session_leads(s)) return 0;
  if (!saving->tried) return OT_SAVING_FIRST;
  const ot_save_times times = measured_times(saving, s);
  const int64_t steps = ot_save_interval_steps(&times);
  print_interval(saving, s, &times, steps);
  return steps;
}

ot_status ot_saving_save_due(ot_saving *saving, const ot_session *s, int64_t chosen) {
  const int64_t every = s->run->checkpoint.every;
  const int64_t step = ot_session_step(s);
  if (every != OT_CHECKPOINT_AUTO)
    return every > 0 && step % every == 0 ? ot_saving_save(saving, s) : OT_OK;
  if (++saving->steps_since < chosen) return OT_OK;
  saving->steps_since = 0;
  saving->tried = true;
  saving->chosen = chosen;
  return ot_saving_save(saving, s);
}

ot_status ot_saving_save_last(ot_saving *saving, const ot_session *s) {
  OT_TRY(ot_saving_finish(saving, s));
  const bool saved = ot_session_step(s) == saving->saved_step;
  return saved ? OT_OK : save_now(saving, s, true);
}

bool ot_saving_busy(const ot_saving *saving) {
  return saving->under_way >= 0 && ot_state_save_busy(saving->state);
}

ot_status ot_saving_poll(ot_saving *saving, const ot_session *s, bool busy) {
  if (saving->under_way < 0 || busy) return OT_OK;
  const ot_status status = ot_state_save_advance(saving->state);
  if (ot_state_save_active(saving->state)) return OT_OK;
  const int64_t step = saving->under_way;
  saving->under_way = -1;
  OT_TRY(conclude(saving, s, step, status, false));
  return saving->due ? start_async(saving, s) : OT_OK;
}
