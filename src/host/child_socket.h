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
  const char *what;  // it is, for messages
} ot_child_program;

// Waits until the program runs. The process leads a group of its own, and is killed when this one
// dies. The caller closes the socket and waits for the process.
ot_status ot_child_socket_start(const ot_child_program *program, pid_t *process, int *socket);

// What every process that this one starts needs before its program runs: in the new process, after
// fork; only calls that are safe there. It leads a process group of its own, gets `last_signal`
// when its parent dies, and has the default actions of the signals that this program ignores or
// handles.
void ot_child_setup(int last_signal);
