// SPDX-License-Identifier: Apache-2.0
// A handler may only set a flag: the loop looks at it between steps.
#include "train/stop_signal.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>

static atomic_int seen;  // lock-free, so a handler may write what ranks in other threads read

static void handle(int number) {
  if (number == SIGINT && seen) {
    // The default action ends the process as every shell expects of a second Ctrl-C.
    signal(SIGINT, SIG_DFL);
    raise(SIGINT);
  }
  seen = 1;
}

void ot_stop_signal_install(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handle;
  action.sa_flags = SA_RESTART;
  sigaction(SIGTERM, &action, NULL);
  sigaction(SIGUSR1, &action, NULL);
  sigaction(SIGINT, &action, NULL);
}

bool ot_stop_signal_seen(void) { return seen != 0; }
