// SPDX-License-Identifier: Apache-2.0
// The command line of a verb as a table with one row per option; parsing, help and shell completion
// derive from it. A verb is one cmd_<verb>.c that exports an ot_verb; main.c lists them.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

typedef enum ot_option_kind {
  OT_OPTION_FLAG,     // no value
  OT_OPTION_TEXT,     // any text
  OT_OPTION_PATH,     // a file or directory, relative to the current directory
  OT_OPTION_INTEGER,  // a whole number with units (4k, 2GiB) in [minimum, maximum]
  OT_OPTION_REAL,     // a number in [minimum, maximum]
  OT_OPTION_CHOICE,   // one of the words in `value`, separated by '|'
  OT_OPTION_SETTING,  // KEY=VALUE of the run's settings; repeatable
} ot_option_kind;

// One row: {"max-tokens", OT_OPTION_INTEGER, "N", "256", 1, 1 << 24, .help = "..."}. A flag has no
// value. Unused members are null or 0.
typedef struct ot_option {
  const char *name;  // without dashes: "max-tokens"
  ot_option_kind kind;
  const char *value;         // placeholder in help ("N"), or the words of a choice
  const char *fallback;      // default value, shown in help; null = none
  int64_t minimum, maximum;  // of numbers; both 0 = any
  bool required;
  bool repeatable;                 // may be given several times, as settings may
  const char *help;                // one line, no full stop
  const struct ot_option *shared;  // row shared by several verbs; other members are 0
  const char *key;  // of a question (answer/question.h), which gives the row all but `value`
} ot_option;

typedef struct ot_options ot_options;

typedef struct ot_verb {
  const char *prefix;  // before the name in messages; null: "orthant "
  const char *name;
  const char *summary;    // one line for the list of verbs
  const char *arguments;  // "RUN.yaml", "FILE...", "[FILE]", or "" for none
  int min_arguments;
  int max_arguments;     // -1 = any number
  const char *details;   // paragraphs of `orthant help VERB`, or null
  const char *examples;  // lines, or null
  const ot_option *options;
  int num_options;
  const char *absent, *instead;  // an option that users may expect, and what to use; or null
  bool json;                     // takes --json
  bool command;                  // takes the words of a command after `--`
  bool hidden;                   // not in the list of verbs
  ot_status (*run)(const ot_options *options);
} ot_verb;

// Runs the verb on its command line `words` [count]; with --help or -h prints its help instead.
// OT_USAGE for a wrong option, with the nearest valid one.
ot_status ot_verb_run(const ot_verb *verb, int count, char *const *words);

// Help of one verb on stdout.
void ot_verb_print_help(const ot_verb *verb);

// [verb->num_options] rows in `arena`: the verb's table without references to rows elsewhere.
const ot_option *ot_verb_rows(const ot_verb *verb, ot_arena *arena);

// Arena that lives as long as the verb runs.
ot_arena *ot_options_arena(const ot_options *options);

// Words that are not options.
int ot_options_num_arguments(const ot_options *options);
const char *ot_options_argument(const ot_options *options, int i);

// The words after `--` of a verb with a command, which are no arguments.
int ot_options_num_words(const ot_options *options);
const char *ot_options_word(const ot_options *options, int i);

// An option by its name; a name that is not in the verb's table is a bug. If it was not given, the
// row's fallback is returned; without one: null, 0, 0.0, false.
bool ot_options_given(const ot_options *options, const char *name);
bool ot_options_flag(const ot_options *options, const char *name);
const char *ot_options_text(const ot_options *options, const char *name);
int64_t ot_options_integer(const ot_options *options, const char *name);
double ot_options_real(const ot_options *options, const char *name);
// `options` with one `value` of the option `name`, in `arena`; everything else is the same.
// OT_USAGE if the verb has no such option with a value, or if the option cannot have it.
ot_status ot_options_replace(const ot_options *options, const char *name, const char *value,
                             ot_arena *arena, const ot_options **out);
// Index of the word given for a choice (or of the fallback); -1 when there is neither.
int ot_options_choice(const ot_options *options, const char *name);

// Values of a repeatable option in the order given. `values` [ot_options_count] belongs to
// `options`.
int ot_options_count(const ot_options *options, const char *name);
const char *const *ot_options_values(const ot_options *options, const char *name);

// True when --json was given.
bool ot_options_json(const ot_options *options);
