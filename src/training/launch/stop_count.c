// SPDX-License-Identifier: Apache-2.0
// The handler has no SA_RESTART: waitpid and usleep return at a signal.
#include "launch/stop_count.h"

#include <stdatomic.h>

#include "host/end_signals.h"

static atomic_int stops, last_stop;

static void note_stop(int number) {
  if (stops > 0 && !ot_end_signal_insists(number)) return;
  last_stop = number;
  stops++;
}

void ot_stop_count_begin(void) { ot_end_signals_handle(note_stop, 0); }

int ot_stop_count(void) { return stops; }

int ot_stop_count_last(void) { return last_stop; }
