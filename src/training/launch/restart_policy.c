// SPDX-License-Identifier: Apache-2.0
#include "launch/restart_policy.h"

#include <signal.h>

#include "base/status.h"

enum { SAME_STEP = 3, STARTS = 2, WAIT_MAX_S = 60 };
static const double stretch_s = 600;

static const char *const names[] = {"rank", "hang", "numeric", "environment", "launcher"};

const char *ot_failure_kind_name(ot_failure_kind kind) { return names[kind]; }

ot_failure_kind ot_attempt_kind(const ot_attempt *attempt) {
  if (attempt->hung) return OT_FAILURE_HANG;
  if (attempt->launched && attempt->signal) return OT_FAILURE_LAUNCHER;
  if (attempt->signal) return OT_FAILURE_RANK;
  switch (attempt->code) {
    case OT_NUMERIC:
      return OT_FAILURE_NUMERIC;
    case OT_ENVIRONMENT:
      return OT_FAILURE_ENVIRONMENT;
    case 1:
    case 126:
    case 127:
      return attempt->launched ? OT_FAILURE_LAUNCHER : OT_FAILURE_RANK;
    default:
      return OT_FAILURE_RANK;
  }
}

static const char *final_reason(const ot_attempt *attempt) {
  if (attempt->hung || attempt->signal) return 0;
  if (attempt->code == OT_USAGE) return "a wrong setting does not go away";
  if (attempt->code == OT_FINDINGS && !attempt->launched) return "an audit's finding is for you";
  if (attempt->code == OT_NUMERIC) return "the same samples would give the same numbers (on_spike)";
  if (attempt->code == 126 || attempt->code == 127) return "the command cannot be started";
  return 0;
}

// True if something outside of the program killed it: the kernel out of memory, or a user.
static bool from_outside(const ot_attempt *attempt) {
  return attempt->signal == SIGKILL || attempt->code == 128 + SIGKILL;
}

static void remember(ot_restart_state *s, const ot_attempt *attempt) {
  const bool moved = attempt->step > s->best_step;
  if (attempt->seconds >= stretch_s && attempt->saved > attempt->saved_before) s->used = 0;
  s->used++;
  s->idle = moved ? 0 : s->idle + 1;
  if (moved) s->same = 0;
  if (attempt->began && !from_outside(attempt)) s->same++;
  s->unstarted = attempt->began ? 0 : s->unstarted + 1;
  if (attempt->began && s->size > 0) s->good_size = s->size;
  if (moved) s->best_step = attempt->step;
}

// After an attempt that ran, all ranks again: what was missing may be back.
static void choose_size(ot_restart_state *s) {
  if (s->unstarted == 0) {
    s->size = 0;
  } else if (s->size == 0 && s->good_size > 0) {
    s->size = s->good_size;
    s->unstarted = 0;
  } else if (s->unstarted >= STARTS && s->size + 1 < s->num_sizes) {
    s->size++;
    s->unstarted = 0;
  }
}

static ot_restart end_restarts(const char *why) {
  return (ot_restart){.action = OT_RESTART_GIVES_UP, .why = why};
}

ot_restart ot_restart_decide(ot_restart_state *s, const ot_attempt *attempt) {
  const bool ended = !attempt->hung && attempt->signal == 0;
  if (ended && (attempt->code == OT_OK || attempt->code == OT_STOPPED)) {
    return (ot_restart){.action = OT_RESTART_ENDS, .why = ""};
  }
  const char *const final = final_reason(attempt);
  if (final) return end_restarts(final);
  remember(s, attempt);
  if (s->used > s->restarts) return end_restarts("no restarts are left");
  if (s->same >= SAME_STEP) return end_restarts("the same step fails again and again");
  choose_size(s);
  double wait_s = s->idle > 0 ? 1 : 0;
  for (int i = 1; i < s->idle && wait_s < WAIT_MAX_S; i++) wait_s *= 2;
  return (ot_restart){.action = OT_RESTART_AGAIN,
                      .why = "",
                      .wait_s = wait_s < WAIT_MAX_S ? wait_s : WAIT_MAX_S,
                      .ranks = s->sizes[s->size]};
}
