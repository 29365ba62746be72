// SPDX-License-Identifier: Apache-2.0
// One handler for all ranks of the process; it only sets a time, which the ranks look at.
#include "runtime/stop_signal.h"

#include <signal.h>
#include <stdatomic.h>

#include "host/clock.h"
#include "host/end_signals.h"

// A step that ends within this time of the request is worth waiting for.
static const double patience_s = 0.5;
// Launchers and shells may deliver one request twice, directly and through a parent.
static const double repeat_s = 0.1;

static atomic_bool installed, deferred;
static void (*end_at_once)(void);
static _Atomic double seen_s;     // clock of the first request; 0: none
static _Atomic double insists_s;  // of the first SIGTERM or Ctrl-C; 0: none

static void handle(int number) {
  const double now = ot_clock_s();
  if (!deferred && end_at_once) end_at_once();
  if (seen_s == 0) seen_s = now;
  if (!ot_end_signal_insists(number)) return;
  if (insists_s == 0) insists_s = now;
  if (now - insists_s < repeat_s) return;
  // The default action ends the process as shells expect from a second Ctrl-C.
  signal(number, SIG_DFL);
  raise(number);
}

void ot_stop_signal_install(void (*end)(void)) {
  if (atomic_exchange(&installed, true)) return;
  end_at_once = end;
  ot_end_signals_handle(handle, SA_RESTART);
}

void ot_stop_signal_release(void) {
  if (atomic_exchange(&installed, false)) ot_end_signals_reset();
}

void ot_stop_signal_defer(void) {
  deferred = true;
  ot_stop_signal_install(NULL);
}

bool ot_stop_signal_seen(void) { return seen_s > 0; }

bool ot_stop_signal_leaves(void *context) {
  ot_comm *const comm = context;
  if (comm && ot_comm_is_asked(comm)) return true;
  const double seen = seen_s;
  if (seen == 0 || ot_clock_s() < seen + patience_s) return false;
  if (comm) ot_comm_ask(comm);
  return true;
}
