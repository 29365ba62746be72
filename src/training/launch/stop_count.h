// SPDX-License-Identifier: Apache-2.0
// Signals that stop a verb which waits for processes of its own: counted, so that it can pass them
// on. They interrupt its waits. (A verb that trains itself has runtime/stop_signal.h.)
#pragma once

// From now on SIGTERM, SIGINT and SIGUSR1 are counted.
void ot_stop_count_begin(void);
int ot_stop_count(void);
int ot_stop_count_last(void);  // number of the last signal
