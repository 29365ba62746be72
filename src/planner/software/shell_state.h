// SPDX-License-Identifier: Apache-2.0
// Shared by the parts of the shell script reader: variables and expansion (shell_expand.c) and
// statements (shell.c).
#pragma once

#include "base/text_builder.h"
#include "software/shell.h"

typedef struct ot_shell_list {
  ot_shell_word *words;  // [count]
  int64_t count, capacity;
} ot_shell_list;

typedef struct ot_shell_variable {
  const char *name;
  ot_shell_list value;
} ot_shell_variable;

typedef struct ot_shell_state {
  const char *name;  // of the script, in messages
  ot_arena *arena;
  ot_shell_variable *variables;  // [num_variables]
  int64_t num_variables, variable_capacity;
  int64_t total;  // bytes of all words
  bool too_long;  // a word exceeds OT_SHELL_BYTES_MAX, or all of them 64 times that
} ot_shell_state;

// The variable, or null when the script has not set it.
ot_shell_variable *ot_shell_find(ot_shell_state *s, const char *name, int64_t length);

// The same, created if absent.
ot_shell_variable *ot_shell_variable_of(ot_shell_state *s, const char *name);

void ot_shell_append(ot_shell_state *s, ot_shell_list *list, ot_shell_word word);

// Appends the expansion of `raw`, written on `line`.
void ot_shell_expand(ot_shell_state *s, const char *raw, int line, ot_shell_list *out);

// The length of the unit at `text`, which starts with a quote, '$' or '`': '...', "...", $NAME,
// ${...}, $(...), $((...)), `...`. At least 1.
int64_t ot_shell_piece(const char *text);

// A character of a variable's name.
bool ot_shell_is_name(char c);

// True when the text contains something that only a running shell knows.
bool ot_shell_is_open(const char *text);
