// SPDX-License-Identifier: Apache-2.0
// What the parts of the reader of shell scripts share: variables and expansion (shell_expand.c) and
// statements (shell.c).
#pragma once

#include "base/text_builder.h"
#include "import/shell.h"

typedef struct ot_shell_list {
  ot_shell_word *words;  // [count]
  int64_t count, capacity;
} ot_shell_list;

typedef struct ot_shell_variable {
  const char *name;
  ot_shell_list value;
} ot_shell_variable;

typedef struct ot_shell_state {
  const char *name;  // of the script, for messages
  ot_arena *arena;
  ot_shell_variable *variables;  // [num_variables]
  int64_t num_variables, variable_capacity;
  int64_t total;  // bytes of all words made
  bool too_long;  // a word grew beyond OT_SHELL_BYTES_MAX, or all of them beyond 64 times that
} ot_shell_state;

// The variable, or null when the script has not set it.
ot_shell_variable *ot_shell_find(ot_shell_state *s, const char *name, int64_t length);

// The same, made where there is none.
ot_shell_variable *ot_shell_variable_of(ot_shell_state *s, const char *name);

void ot_shell_append(ot_shell_state *s, ot_shell_list *list, ot_shell_word word);

// Appends the words that `raw`, written on `line`, stands for.
void ot_shell_expand(ot_shell_state *s, const char *raw, int line, ot_shell_list *out);

// The length of the piece of `text` that starts with a quote, '$' or '`' and that belongs together:
// '...', "...", $NAME, ${...}, $(...), $((...)), `...`. At least 1.
int64_t ot_shell_piece(const char *text);

// True when the text holds something that only a running shell knows.
bool ot_shell_is_open(const char *text);
