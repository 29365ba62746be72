// SPDX-License-Identifier: Apache-2.0
// Being asked to stop: SIGTERM, SIGUSR1 or the first Ctrl-C ask for a checkpoint and a clean end, a
// second Ctrl-C ends at once. Signals belong to the process, so there is one handler for all.
#pragma once

#include <stdbool.h>

// Installs the handlers. Blocks nothing; system calls are restarted.
void ot_stop_signal_install(void);

// True once a stop was asked for.
bool ot_stop_signal_seen(void);
