// SPDX-License-Identifier: Apache-2.0
// The commands that a shell script would start, with variables expanded as far as the script itself
// determines them: assignments, arrays, ${NAME:-default}, $((arithmetic)), and `if` over
// comparisons of these. Nothing is executed. Parts that only a running shell knows (other commands,
// files, the environment) stay unexpanded, with their '$'.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

enum { OT_SHELL_BYTES_MAX = 1 << 18 };  // of a script, and of one of its words

typedef struct ot_shell_word {
  const char *text;
  int line;  // line of its value, from 1
} ot_shell_word;

typedef struct ot_shell_command {
  const ot_shell_word *words;  // [num_words]
  int64_t num_words;
} ot_shell_command;

typedef struct ot_shell {
  const ot_shell_command *commands;  // [num_commands] in order
  int64_t num_commands;
  // "line 12: whether NAME is set here only a shell knows": inside a loop, a `case` or an
  // undecidable `if`, whose commands are included, and whose values apply when there is no other.
  const char *const *notes;  // [num_notes]
  int64_t num_notes;
} ot_shell;

// Messages use `name` for the script. OT_USAGE when it is nested too deeply or a word is too long.
ot_status ot_shell_read(const char *name, const char *text, int64_t bytes, ot_arena *arena,
                        ot_shell *out);
