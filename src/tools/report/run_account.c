// SPDX-License-Identifier: Apache-2.0
// Events give the times between which something happened; metrics give the time of each step. A
// process that was killed writes no end: it lived at least as long as its steps took.
#include "report/run_account.h"

#include <math.h>

#include "base/extremes.h"
#include "base/text.h"

static const struct {
  const char *name, *meaning;
} items[] = {
    [OT_ACCOUNT_PRODUCTIVE] = {"productive", "steps that count"},
    [OT_ACCOUNT_STRAGGLERS] = {"stragglers", "extra time of steps with a slow rank"},
    [OT_ACCOUNT_LOST] = {"lost", "steps that were repeated"},
    [OT_ACCOUNT_CHECKPOINTS] = {"checkpoints", "no step ran because of a save"},
    [OT_ACCOUNT_VALIDATION] = {"validation", "no step ran"},
    [OT_ACCOUNT_AUDITS] = {"audits", "no step ran"},
    [OT_ACCOUNT_EVALUATION] = {"evaluation", "no step ran"},
    [OT_ACCOUNT_START] = {"start", "until the first step of the run"},
    [OT_ACCOUNT_DETECTION] = {"detection", "until a failure was seen"},
    [OT_ACCOUNT_WAITING] = {"waiting", "until the next process was launched"},
    [OT_ACCOUNT_LOADING] = {"loading", "until the first new step"},
    [OT_ACCOUNT_IDLE] = {"idle", "no process ran"},
    [OT_ACCOUNT_OTHER] = {"other", "no event explains it"},
};

const char *ot_account_name(ot_account_item item) { return items[item].name; }
const char *ot_account_meaning(ot_account_item item) { return items[item].meaning; }

struct ot_account_builder {
  const ot_run_event_list *events;
  ot_arena *arena;
  ot_run_account account;
  int64_t capacity;
  bool failing;       // a failure was seen since the last start or restart
  int64_t *by_step;   // [num_attempts] attempts in ascending order of their step
  int64_t passed;     // of these, those that began before the step added last
  int64_t owner;      // newest of those: it wrote the line; -1: none
  int64_t straggler;  // next event to look at
  int64_t straggler_attempt;
  double straggler_s;
};

static double known(double value) { return isfinite(value) ? value : 0; }

// ---- events ----

static ot_run_attempt *newest(ot_account_builder *b) {
  const int64_t count = b->account.num_attempts;
  return count > 0 ? &b->account.attempts[count - 1] : NULL;
}

static void add_lost(ot_run_account *a, ot_run_attempt *attempt, const ot_run_event *e) {
  if (e->last_step <= e->step) return;
  attempt->lost_s += known(e->lost_s);
  attempt->lost_steps += e->last_step - e->step;
  a->lost_steps += e->last_step - e->step;
}

static void begin_attempt(ot_account_builder *b, const ot_run_event *e) {
  ot_run_account *const a = &b->account;
  ot_run_attempt *const before = newest(b);
  double begin_s = ot_run_event_begin(e);
  if (before) begin_s = ot_larger(begin_s, before->last_s);
  if (before) add_lost(a, before, e);
  a->attempts =
      ot_arena_grow(b->arena, a->attempts, a->num_attempts, &b->capacity, sizeof *a->attempts);
  a->attempts[a->num_attempts++] = (ot_run_attempt){.step = e->step,
                                                    .ranks = e->ranks,
                                                    .begin_s = begin_s,
                                                    .ready_s = e->time_s,
                                                    .first_s = NAN,
                                                    .last_s = e->time_s,
                                                    .stop_s = NAN,
                                                    .failure_s = NAN,
                                                    .restart_s = NAN,
                                                    .first_step = -1,
                                                    .reason = ""};
}

static void add_save(ot_account_builder *b, ot_run_attempt *attempt, const ot_run_event *e) {
  ot_run_account *const a = &b->account;
  const double blocked_s = isfinite(e->blocked_s) ? e->blocked_s : known(e->seconds);
  attempt->blocked_s += blocked_s;
  a->saves++;
  a->save_s += known(e->seconds);
  a->blocked_s += blocked_s;
  a->save_bytes = e->bytes;
}

// Adds an event of the supervisor, which lives longer than the process.
static bool add_supervision(ot_account_builder *b, ot_run_attempt *attempt, const ot_run_event *e) {
  if (e->kind == OT_RUN_EVENT_FAILURE) {
    if (isnan(attempt->failure_s)) attempt->failure_s = e->time_s;
    // Several events before a restart tell of one failure.
    attempt->failures += !b->failing;
    b->failing = true;
  }
  if (e->kind == OT_RUN_EVENT_RESTART) attempt->restart_s = e->time_s;
  if (e->kind == OT_RUN_EVENT_RESTART || e->kind == OT_RUN_EVENT_START) b->failing = false;
  return e->kind == OT_RUN_EVENT_FAILURE || e->kind == OT_RUN_EVENT_RESTART;
}

static void add_event(ot_account_builder *b, const ot_run_event *e) {
  if (e->kind == OT_RUN_EVENT_START) begin_attempt(b, e);
  ot_run_attempt *const attempt = newest(b);
  if (!attempt || add_supervision(b, attempt, e) || e->kind == OT_RUN_EVENT_START) return;
  // A fallback is written by the next process, before its start.
  if (e->kind == OT_RUN_EVENT_FALLBACK) return;
  attempt->last_s = ot_larger(attempt->last_s, e->time_s);
  switch (e->kind) {
    case OT_RUN_EVENT_FIRST_STEP:
      attempt->first_s = e->time_s;
      attempt->first_step = e->step;
      break;
    case OT_RUN_EVENT_SAVE:
      add_save(b, attempt, e);
      break;
    case OT_RUN_EVENT_SAVE_FAILED:
      b->account.failed_saves++;
      break;
    case OT_RUN_EVENT_VALIDATION:
      attempt->validation_s += known(e->seconds);
      if (isnan(attempt->first_s)) attempt->before_s += known(e->seconds);
      break;
    case OT_RUN_EVENT_AUDIT:
      attempt->audit_s += known(e->seconds);
      break;
    case OT_RUN_EVENT_EVALUATION:
      attempt->evaluation_s += known(e->seconds);
      if (isnan(attempt->first_s)) attempt->before_s += known(e->seconds);
      break;
    case OT_RUN_EVENT_REWIND:
      add_lost(&b->account, attempt, e);
      break;
    case OT_RUN_EVENT_STOP:
      attempt->stop_s = e->time_s;
      attempt->reason = e->reason;
      break;
    default:
      break;
  }
}

// Insertion, since a run seldom goes back.
static void sort_attempts(ot_account_builder *b) {
  const int64_t count = b->account.num_attempts;
  b->by_step = ot_arena_array(b->arena, count + 1, sizeof *b->by_step);
  for (int64_t i = 0; i < count; i++) {
    int64_t at = i;
    for (; at > 0 && b->account.attempts[b->by_step[at - 1]].step > b->account.attempts[i].step;
         at--)
      b->by_step[at] = b->by_step[at - 1];
    b->by_step[at] = i;
  }
}

ot_account_builder *ot_account_begin(const ot_run_event_list *events, ot_arena *arena) {
  ot_account_builder *const b = ot_arena_take(arena, sizeof *b);
  *b = (ot_account_builder){.events = events, .arena = arena, .owner = -1, .straggler_attempt = -1};
  for (int64_t i = 0; i < events->count; i++) add_event(b, &events->event[i]);
  sort_attempts(b);
  return b;
}

// ---- steps ----

// The largest slowdown in the log for a step of the attempt `owner`; 1: none.
static double slowdown_at(ot_account_builder *b, int64_t owner, int64_t step) {
  double most = 1;
  for (; b->straggler < b->events->count; b->straggler++) {
    const ot_run_event *const e = &b->events->event[b->straggler];
    if (e->kind == OT_RUN_EVENT_START) {
      if (b->straggler_attempt == owner) break;
      b->straggler_attempt++;
    }
    if (e->kind != OT_RUN_EVENT_STRAGGLER || b->straggler_attempt < owner) continue;
    if (e->step > step) break;
    if (e->step == step && e->slowdown > most) most = e->slowdown;
  }
  return most;
}

bool ot_account_add_step(ot_account_builder *b, const ot_metrics_step *step) {
  ot_run_account *const a = &b->account;
  while (b->passed < a->num_attempts && a->attempts[b->by_step[b->passed]].step < step->step) {
    if (b->by_step[b->passed] > b->owner) b->owner = b->by_step[b->passed];
    b->passed++;
  }
  if (b->owner < 0) return false;
  ot_run_attempt *const attempt = &a->attempts[b->owner];
  const double step_s = known(step->step_s);
  attempt->kept_s += step_s;
  const bool first = step->step == attempt->first_step;
  if (first) attempt->first_step_s = step_s;
  b->straggler_s += step_s * (1 - 1 / slowdown_at(b, b->owner, step->step));
  a->steps++;
  return first;
}

// ---- the account ----

// The last sign of life of attempt `k`.
static double end_of(const ot_run_account *a, int64_t k) {
  const ot_run_attempt *const t = &a->attempts[k];
  if (isfinite(t->stop_s)) return t->stop_s;
  double end_s = t->last_s;
  if (isfinite(t->first_s)) {
    const double after_s = t->kept_s + t->lost_s - t->first_step_s + t->blocked_s +
                           t->validation_s - t->before_s + t->audit_s + t->evaluation_s;
    end_s = ot_larger(end_s, t->first_s + after_s);
  }
  if (isfinite(t->failure_s)) end_s = ot_smaller(end_s, t->failure_s);
  if (k + 1 < a->num_attempts) end_s = ot_smaller(end_s, a->attempts[k + 1].begin_s);
  return end_s;
}

// Accounts the time between the end of an attempt and `next_s`, when the next one began or the log
// ends.
static void share_gap(ot_run_account *a, const ot_run_attempt *t, double next_s) {
  double at_s = t->end_s;
  if (isfinite(t->failure_s)) {
    a->item_s[OT_ACCOUNT_DETECTION] += t->failure_s - at_s;
    at_s = t->failure_s;
  }
  if (isfinite(t->restart_s)) {
    a->item_s[OT_ACCOUNT_WAITING] += t->restart_s - at_s;
    a->item_s[OT_ACCOUNT_LOADING] += next_s - t->restart_s;
    return;
  }
  a->item_s[OT_ACCOUNT_IDLE] += next_s - at_s;
}

static void share_attempt(ot_run_account *a, int64_t k) {
  const ot_run_attempt *const t = &a->attempts[k];
  double start_s = t->ready_s - t->begin_s;
  if (isfinite(t->first_s))
    start_s += ot_larger(0, t->first_s - t->ready_s - t->first_step_s - t->before_s);
  a->item_s[k == 0 ? OT_ACCOUNT_START : OT_ACCOUNT_LOADING] += start_s;
  a->item_s[OT_ACCOUNT_PRODUCTIVE] += t->kept_s;
  a->item_s[OT_ACCOUNT_LOST] += t->lost_s;
  a->item_s[OT_ACCOUNT_CHECKPOINTS] += t->blocked_s;
  a->item_s[OT_ACCOUNT_VALIDATION] += t->validation_s;
  a->item_s[OT_ACCOUNT_AUDITS] += t->audit_s;
  a->item_s[OT_ACCOUNT_EVALUATION] += t->evaluation_s;
}

static int64_t failures_of(const ot_run_account *a, int64_t k) {
  const ot_run_attempt *const t = &a->attempts[k];
  const bool last = k + 1 == a->num_attempts;
  if (t->failures > 0) return t->failures;
  if (isnan(t->stop_s)) return !last;
  return ot_text_equal(t->reason, "numeric") || ot_text_equal(t->reason, "failure");
}

// The model's figures are those of this run, so it tells what their combination should cost.
static void model(ot_run_account *a) {
  const int64_t ranks = a->attempts[a->num_attempts - 1].ranks;
  const double writing_s = a->save_s - a->blocked_s;
  if (!(a->mtbf_s > 0) || !(a->blocked_s > 0) || !(a->interval_s > 0) || ranks < 1) return;
  ot_goodput_request request = ot_goodput_defaults(1, 0);
  request.rate = (ot_failure_rate){.device_mtbf_s = a->mtbf_s};
  request.overhead_s = a->blocked_s;
  request.interval_s = a->interval_s;
  request.detect_s = known(a->recovery_s);
  request.restart_s = 0;
  // A copy in no time, then bytes that take as long as the save did while training went on.
  if (writing_s > 0.01 * a->save_s && a->interval_s >= writing_s - a->blocked_s) {
    request.asynchronous = true;
    request.checkpoint_bytes = writing_s;
    request.storage_bytes_per_s = 1;
    request.snapshot_bytes_per_s = 1e30;
    request.detect_s = ot_larger(0, request.detect_s - writing_s);
  }
  a->modelled = ot_goodput_build(&request, &a->expected) == OT_OK;
}

static void find_figures(ot_run_account *a) {
  const double *const s = a->item_s;
  const double restart_s = s[OT_ACCOUNT_DETECTION] + s[OT_ACCOUNT_WAITING] + s[OT_ACCOUNT_LOADING];
  const double steps_s = s[OT_ACCOUNT_PRODUCTIVE] + s[OT_ACCOUNT_STRAGGLERS] + s[OT_ACCOUNT_LOST];
  for (int64_t k = 0; k < a->num_attempts; k++) a->failures += failures_of(a, k);
  a->mtbf_s = a->failures > 0 ? (a->wall_s - s[OT_ACCOUNT_IDLE]) / (double)a->failures : NAN;
  a->recovery_s = a->num_attempts > 1 ? restart_s / (double)(a->num_attempts - 1) : NAN;
  a->interval_s = a->saves > 0 ? steps_s / (double)a->saves : NAN;
  a->save_s = a->saves > 0 ? a->save_s / (double)a->saves : NAN;
  a->blocked_s = a->saves > 0 ? a->blocked_s / (double)a->saves : NAN;
  if (a->num_attempts > 0) model(a);
}

void ot_account_finish(ot_account_builder *b, ot_run_account *account) {
  ot_run_account *const a = &b->account;
  for (int64_t k = 0; k < a->num_attempts; k++) {
    ot_run_attempt *const t = &a->attempts[k];
    if (t->first_step_s == 0 && t->lost_steps > 0)
      t->first_step_s = t->lost_s / (double)t->lost_steps;
    t->end_s = end_of(a, k);
    a->end_s = ot_larger(a->end_s, t->end_s);
    if (isfinite(t->failure_s)) a->end_s = ot_larger(a->end_s, t->failure_s);
    if (isfinite(t->restart_s)) a->end_s = ot_larger(a->end_s, t->restart_s);
  }
  for (int64_t k = 0; k < a->num_attempts; k++) {
    const bool last = k + 1 == a->num_attempts;
    share_attempt(a, k);
    share_gap(a, &a->attempts[k], last ? a->end_s : a->attempts[k + 1].begin_s);
  }
  if (a->num_attempts > 0) {
    a->begin_s = a->attempts[0].begin_s;
    a->wall_s = a->end_s - a->begin_s;
    a->restarting = isfinite(newest(b)->restart_s) && !b->failing;
    a->open = isnan(newest(b)->stop_s) && isnan(newest(b)->failure_s);
  }
  a->item_s[OT_ACCOUNT_PRODUCTIVE] -= b->straggler_s;
  a->item_s[OT_ACCOUNT_STRAGGLERS] = b->straggler_s;
  double explained_s = 0;
  for (int i = 0; i < OT_ACCOUNT_OTHER; i++) explained_s += a->item_s[i];
  a->item_s[OT_ACCOUNT_OTHER] = a->wall_s - explained_s;
  find_figures(a);
  *account = *a;
}
