// SPDX-License-Identifier: Apache-2.0
// The signals of host/end_signals.h, for all ranks of the process. Until ot_stop_signal_defer they
// end it: nothing can be lost. From then on they request a stop, which the loop answers with a
// checkpoint; a second SIGTERM or Ctrl-C ends the process.
#pragma once

#include <stdbool.h>

#include "comm/comm.h"

// Installs the handlers, for a process that starts. First in a program, before MPI begins. `end` is
// called in a signal handler and does not return.
void ot_stop_signal_install(void (*end)(void));
// Signals request a stop from now on. Installs the handlers where that was not done.
void ot_stop_signal_defer(void);
// Signals have their default actions again: what follows can be interrupted without a loss.
void ot_stop_signal_release(void);

// Whether this process was asked to stop.
bool ot_stop_signal_seen(void);

// For ot_executor_set_leave, with the rank's ot_comm or null as `comm`: whether to leave the step
// under way, because a stop was requested half a second ago, here or, as far as known, on another
// rank.
bool ot_stop_signal_leaves(void *comm);
