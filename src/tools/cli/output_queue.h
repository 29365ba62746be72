// SPDX-License-Identifier: Apache-2.0
// The messages of a run. Whoever prints to stderr puts text into a queue in memory, and a thread
// writes it: a reader that does not read (a paused terminal, a pager, a log collector that hangs)
// stops no rank. Text that finds the queue full is dropped, and its lines are counted.
#pragma once

#include "base/status.h"

// From now on, `stderr` of this process is the queue; its children still have the descriptor.
// Without memory or a thread for it, stderr stays what it is.
void ot_output_queue_begin(void);

// Waits until the messages are written, as long as somebody reads them. Before the process ends.
void ot_output_queue_drain(void);

// Ends the process at once with `status`, after its messages. Other threads may still run.
_Noreturn void ot_output_queue_exit(ot_status status);
