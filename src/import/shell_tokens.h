// SPDX-License-Identifier: Apache-2.0
// A shell script cut into words and operators, as far as scripts that start a training need it.
// Quotes, variables and substitutions are left in the words as they are written; import/shell.h
// says what they stand for. Comments and here-documents are gone.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"

typedef enum ot_shell_kind {
  OT_SHELL_WORD,
  OT_SHELL_END,    // of a command: a new line, ; or &
  OT_SHELL_AND,    // &&
  OT_SHELL_OR,     // ||
  OT_SHELL_PIPE,   // | and redirections, whose target is left out
  OT_SHELL_OPEN,   // (
  OT_SHELL_CLOSE,  // )
  OT_SHELL_LAST,   // the end of the text
} ot_shell_kind;

typedef struct ot_shell_token {
  ot_shell_kind kind;
  const char *text;  // of a word
  int line;          // from 1
  bool joined;       // nothing stands between it and the token before
} ot_shell_token;

// The tokens of `text` [bytes] in `arena`; the last one is OT_SHELL_LAST.
ot_shell_token *ot_shell_tokens(const char *text, int64_t bytes, ot_arena *arena);

// The length of the piece of `text` that starts with a quote, '$' or '`' and that belongs together:
// '...', "...", $NAME, ${...}, $(...), $((...)), `...`. At least 1.
int64_t ot_shell_piece(const char *text);
