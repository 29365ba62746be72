// SPDX-License-Identifier: Apache-2.0
// Commands as child processes: one whose stderr is passed on and read, in a process group of its
// own, or one whose output goes to files.
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/status.h"

enum { OT_CHILD_LINE = 1024 };

typedef struct ot_child {
  pid_t process;                 // and its group; 0: none
  int errors;                    // its stderr; -1: closed
  char line[OT_CHILD_LINE];      // of stderr, so far
  int length;                    // of it
  char error[OT_CHILD_LINE];     // the last line of stderr that began with "error: ", from there on
  char launcher[OT_CHILD_LINE];  // the last line of a launcher on how a process ended
  bool ended;
  int code, signal;  // once ended: exit code, or the signal that killed it
} ot_child;

// Makes processes whose parent ends children of this one, so that it can end them.
void ot_child_adopt_all(void);

// Starts `words` [..., null] without a shell. When this process dies it gets `last_signal`.
ot_status ot_child_start(char *const *words, int last_signal, ot_child *child);

// A command whose output goes to files; a keeper (child_keeper.h) passes signals on to it.
typedef struct ot_child_files {
  char *const *words;        // [..., null]
  const char *folder;        // null: this one
  const char *out, *errors;  // files; one if they are equal
} ot_child_files;

// Starts it without a shell, with nothing on its stdin. *process is the keeper.
ot_status ot_child_start_with_files(const ot_child_files *files, pid_t *process);

// Passes its stderr on, for at most `seconds` or until something happens. Returns whether it has
// ended; then all it wrote has been passed on.
bool ot_child_watch(ot_child *child, double seconds);

// Whether it has children that run.
bool ot_child_has_children(const ot_child *child);

void ot_child_send(const ot_child *child, int signal);

// Ends its group and every other descendant: SIGTERM, and SIGKILL after `patience_s`. Blocks.
void ot_child_end_all(ot_child *child, double patience_s);
