// SPDX-License-Identifier: Apache-2.0
// Stacks that do not depend on the limit under which the program was started (ulimit -s).
#pragma once

// Calls `call` with `context` on a stack of megabytes: that of the process if its limit is at least
// this, or can be raised; else that of a thread. All threads that are started from now on, those of
// libraries included, have such stacks, too. Returns what `call` returns.
void *ot_host_call_on_stack(void *(*call)(void *context), void *context);
