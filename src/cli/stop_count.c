// SPDX-License-Identifier: Apache-2.0
// The handler has no SA_RESTART: waitpid and usleep return at a signal.
#include "cli/stop_count.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "base/status.h"

static atomic_int stops, last_stop;

static void note_stop(int number) {
  last_stop = number;
  stops++;
}

void ot_stop_count_begin(void) {
  static const int numbers[] = {SIGTERM, SIGINT, SIGUSR1};
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = note_stop;
  for (int i = 0; i < OT_COUNT(numbers); i++) sigaction(numbers[i], &action, NULL);
}

int ot_stop_count(void) { return stops; }

int ot_stop_count_last(void) { return last_stop; }
