// SPDX-License-Identifier: Apache-2.0
// The commands that a shell script would start, with the values of its variables put in, as far as
// the script itself says them: assignments, arrays, ${NAME:-default}, $((arithmetic)), and `if`
// over comparisons of these. Nothing is run. What only a running shell knows (other commands,
// files, the environment) stays in the words as it is written, with its '$'.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

enum { OT_SHELL_BYTES_MAX = 1 << 18 };  // of a script, and of one of its words

typedef struct ot_shell_word {
  const char *text;
  int line;  // where its value is written, from 1
} ot_shell_word;

typedef struct ot_shell_command {
  const ot_shell_word *words;  // [num_words]
  int64_t num_words;
} ot_shell_command;

typedef struct ot_shell {
  const ot_shell_command *commands;  // [num_commands] in order
  int64_t num_commands;
  // "line 12: whether NAME is set here only a shell knows": inside a loop, a `case` or an `if` that
  // cannot be decided, where commands are taken, and values for which there is no other.
  const char *const *notes;  // [num_notes]
  int64_t num_notes;
} ot_shell;

// `name` stands for the script in messages. OT_USAGE when it nests too deep or a word grows too
// long.
ot_status ot_shell_read(const char *name, const char *text, int64_t bytes, ot_arena *arena,
                        ot_shell *out);
