// SPDX-License-Identifier: Apache-2.0
// Libraries replace dispositions when they are loaded: PSM2, which Open MPI 5 of Debian loads, has
// handlers for most of these signals. So what the process began with is read before their
// constructors run.
#include "host/end_signals.h"

#include <string.h>

#include "base/status.h"
#include "host/before_libraries.h"

static const int numbers[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP, SIGXCPU};

static bool hangup_ignored;  // when the process began

static void note_hangup(void) {
  struct sigaction action;
  hangup_ignored = sigaction(SIGHUP, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

OT_BEFORE_LIBRARIES(note_hangup);

void ot_end_signals_handle(void (*handler)(int number), int flags) {
  struct sigaction action, ignore;
  memset(&action, 0, sizeof action);
  memset(&ignore, 0, sizeof ignore);
  action.sa_handler = handler;
  action.sa_flags = flags;
  ignore.sa_handler = SIG_IGN;
  for (int i = 0; i < OT_COUNT(numbers); i++) {
    const bool ignored = numbers[i] == SIGHUP && hangup_ignored;
    sigaction(numbers[i], ignored ? &ignore : &action, NULL);
  }
}

void ot_end_signals_keep(void) {
  if (hangup_ignored) signal(SIGHUP, SIG_IGN);
}

void ot_end_signals_reset(void) { ot_end_signals_handle(SIG_DFL, 0); }

void ot_end_signals_add(sigset_t *set) {
  for (int i = 0; i < OT_COUNT(numbers); i++) sigaddset(set, numbers[i]);
}

bool ot_end_signal_insists(int number) { return number == SIGTERM || number == SIGINT; }
