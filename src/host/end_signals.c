// SPDX-License-Identifier: Apache-2.0
#include "host/end_signals.h"

#include <string.h>

#include "base/status.h"

static const int numbers[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP, SIGXCPU};

static bool is_ignored(int number) {
  struct sigaction action;
  return number == SIGHUP && sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

void ot_end_signals_handle(void (*handler)(int number), int flags) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handler;
  action.sa_flags = flags;
  for (int i = 0; i < OT_COUNT(numbers); i++)
    if (!is_ignored(numbers[i])) sigaction(numbers[i], &action, NULL);
}

void ot_end_signals_reset(void) { ot_end_signals_handle(SIG_DFL, 0); }

void ot_end_signals_add(sigset_t *set) {
  for (int i = 0; i < OT_COUNT(numbers); i++) sigaddset(set, numbers[i]);
}

bool ot_end_signal_insists(int number) { return number == SIGTERM || number == SIGINT; }
