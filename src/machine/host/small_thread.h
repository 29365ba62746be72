// SPDX-License-Identifier: Apache-2.0
// Threads that serve a process beside its ranks.
#pragma once

#include <pthread.h>
#include <stdbool.h>

// Starts a joinable thread that runs `run` with `context` on a stack of 256 KiB, whatever the limit
// of stacks is. It handles no signals: they are for the other threads. False: there is no thread.
bool ot_host_start_small_thread(void *(*run)(void *context), void *context, pthread_t *thread);
