// SPDX-License-Identifier: Apache-2.0
// A program as a process whose standard input and output are one socket, so that writing to a
// process that has ended is an error and not a signal.
#pragma once

#include <sys/types.h>

#include "base/status.h"

typedef struct ot_child_program {
  const char *const *words;  // [..., null] path or name, and arguments; without a shell
  // In the new process, before its program: only calls that are safe after fork. Or null.
  void (*limit)(const void *context);
  const void *context;
  const char *what;      // it is, for messages
  int64_t stderr_bytes;  // of ot_keeper
} ot_child_program;

// Waits until the program runs. *process is its keeper (child_keeper.h), which ends when the
// program does, or this process, with all that the program has started. The caller closes the
// socket and waits for the keeper or calls ot_child_end.
ot_status ot_child_socket_start(const ot_child_program *program, pid_t *process, int *socket);

// Prepares a process that this one starts before its program runs: called in the new process, after
// fork; only calls that are safe there. It leads a process group of its own, gets `last_signal`
// when its parent dies, and has the default actions of the signals that this program ignores or
// handles.
void ot_child_setup(int last_signal);
