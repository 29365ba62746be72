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
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_flags = flags;
  for (int i = 0; i < OT_COUNT(numbers); i++) {
    action.sa_handler = numbers[i] == SIGHUP && hangup_ignored ? SIG_IGN : handler;
    sigaction(numbers[i], &action, NULL);
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
