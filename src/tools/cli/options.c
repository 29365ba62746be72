// SPDX-License-Identifier: Apache-2.0
// Parses the command line of a verb by its table, and prints its help from it. Unlike getopt_long,
// it accepts full names only, suggests the nearest name for a wrong one, and checks values.
#include "cli/options.h"

#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "base/quantity.h"
#include "base/text.h"
#include "cli/output.h"
#include "host/heap.h"

struct ot_options {
  ot_arena *arena;
  const ot_verb *verb;
  const ot_option *rows;  // [verb->num_options]
  int num_arguments;
  const char **arguments;  // [number of words]
  int *num_values;         // [verb->num_options]
  const char ***values;    // [verb->num_options][num_values], null until given
  int num_words;           // of the command line
  int first_word;          // of its command; num_words: none
  char *const *words;
  bool json;
  bool help;
};

static bool word_in_choice(const char *choice, const char *word, int *index) {
  const size_t length = strlen(word);
  int i = 0;
  for (const char *at = choice; at && *at; i++) {
    const size_t width = strcspn(at, "|");
    if (width == length && strncmp(at, word, width) == 0) {
      *index = i;
      return true;
    }
    at += width + (at[width] == '|');
  }
  return false;
}

static const char *prefix_of(const ot_verb *verb) {
  return verb->prefix ? verb->prefix : "orthant ";
}

static bool is_repeatable(const ot_option *option) {
  return option->kind == OT_OPTION_SETTING || option->repeatable;
}

// ---- parsing ----

static int find_option(const ot_options *options, const char *name, size_t length) {
  for (int i = 0; i < options->verb->num_options; i++) {
    const char *const candidate = options->rows[i].name;
    if (strlen(candidate) == length && strncmp(candidate, name, length) == 0) return i;
  }
  return -1;
}

static int known_option(const ot_options *options, const char *name) {
  const int i = find_option(options, name, strlen(name));
  OT_ASSERT(i >= 0);
  return i;
}

static ot_status unknown_option(const ot_options *options, const char *word, size_t length) {
  const ot_verb *const verb = options->verb;
  char name[64];
  ot_text_format(name, sizeof name, "%.*s", (int)length, word);
  const char *nearest = NULL;
  int best = 4;
  for (int i = 0; i < verb->num_options; i++) {
    ot_text_nearest(name, options->rows[i].name, &nearest, &best);
  }
  if (verb->json) ot_text_nearest(name, "json", &nearest, &best);
  ot_text_nearest(name, "help", &nearest, &best);
  ot_fail(OT_USAGE, "unknown option --%s (%s%s)", name, prefix_of(verb), verb->name);
  if (verb->absent && ot_text_equal(name, verb->absent)) {
    return ot_fail_hint(OT_USAGE, "%s", verb->instead);
  }
  if (nearest) return ot_fail_hint(OT_USAGE, "did you mean --%s?", nearest);
  return ot_fail_hint(OT_USAGE, "%s%s --help lists its options", prefix_of(verb), verb->name);
}

static ot_status check_integer(const ot_option *option, const char *text) {
  int64_t value;
  OT_CHECK(ot_number_parse_size(text, &value), OT_USAGE,
           "--%s: \"%s\" is not a whole number (such as 8, 4k, 10B or 2GiB)", option->name, text);
  if (option->minimum == 0 && option->maximum == 0) return OT_OK;
  OT_CHECK(value >= option->minimum && value <= option->maximum, OT_USAGE,
           "--%s: %lld is out of range; allowed: %lld to %lld", option->name, (long long)value,
           (long long)option->minimum, (long long)option->maximum);
  return OT_OK;
}

// The placeholder of a number is its unit.
static bool read_real(const ot_option *option, const char *text, double *value) {
  static const char *const units[][2] = {
      {"SECONDS", "seconds"}, {"PERCENT", "percent"}, {"DOLLARS", "dollars"}};
  const char *unit = NULL;
  for (int i = 0; i < OT_COUNT(units); i++) {
    if (option->value && ot_text_equal(option->value, units[i][0])) unit = units[i][1];
  }
  return ot_quantity_parse(text, unit, value);
}

static ot_status check_real(const ot_option *option, const char *text) {
  double value;
  OT_CHECK(read_real(option, text, &value), OT_USAGE,
           "--%s: \"%s\" is not a number (such as 0.1 or 3e-4)", option->name, text);
  if (option->minimum == 0 && option->maximum == 0) return OT_OK;
  OT_CHECK(value >= (double)option->minimum && value <= (double)option->maximum, OT_USAGE,
           "--%s: %s is out of range; allowed: %lld to %lld", option->name, text,
           (long long)option->minimum, (long long)option->maximum);
  return OT_OK;
}

static ot_status check_value(const ot_option *option, const char *text) {
  int index;
  switch (option->kind) {
    case OT_OPTION_FLAG:
    case OT_OPTION_TEXT:
      return OT_OK;
    case OT_OPTION_PATH:
      OT_CHECK(text[0] != '\0', OT_USAGE, "--%s: the path is empty", option->name);
      return OT_OK;
    case OT_OPTION_INTEGER:
      return check_integer(option, text);
    case OT_OPTION_REAL:
      return check_real(option, text);
    case OT_OPTION_CHOICE:
      OT_CHECK(word_in_choice(option->value, text, &index), OT_USAGE,
               "--%s: \"%s\" is not one of %s", option->name, text, option->value);
      return OT_OK;
    case OT_OPTION_SETTING:
      OT_CHECK(strchr(text, '=') != NULL && text[0] != '=', OT_USAGE,
               "--%s: \"%s\" is not KEY=VALUE", option->name, text);
      return OT_OK;
  }
  OT_UNREACHABLE();
}

// Parses the option in words[*i] (after its dashes) with its value, which may be the next word.
static ot_status parse_option(ot_options *options, int count, char *const *words, int *i) {
  const char *const word = words[*i] + 2;
  const size_t length = strcspn(word, "=");
  const char *value = word[length] == '=' ? word + length + 1 : NULL;
  if (options->verb->json && length == 4 && strncmp(word, "json", 4) == 0) {
    OT_CHECK(value == NULL, OT_USAGE, "--json takes no value");
    options->json = true;
    return OT_OK;
  }
  const int index = find_option(options, word, length);
  if (index < 0) return unknown_option(options, word, length);
  const ot_option *const option = &options->rows[index];
  if (option->kind == OT_OPTION_FLAG) {
    OT_CHECK(value == NULL, OT_USAGE, "--%s takes no value", option->name);
    value = "";
  } else if (value == NULL) {
    OT_CHECK(*i + 1 < count, OT_USAGE, "--%s needs a value: --%s %s", option->name, option->name,
             option->value ? option->value : "VALUE");
    value = words[++*i];
  }
  OT_TRY(check_value(option, value));
  OT_CHECK(is_repeatable(option) || options->num_values[index] == 0, OT_USAGE,
           "--%s is given twice", option->name);
  if (!options->values[index]) {
    options->values[index] = ot_arena_array(options->arena, options->num_words + 1, sizeof(char *));
  }
  options->values[index][options->num_values[index]++] = value;
  return OT_OK;
}

static ot_status check_counts(const ot_options *options) {
  const ot_verb *const verb = options->verb;
  const int n = options->num_arguments;
  if (n < verb->min_arguments) {
    ot_fail(OT_USAGE, "missing argument %s (%s%s)", verb->arguments, prefix_of(verb), verb->name);
    return ot_fail_hint(OT_USAGE, "usage: %s%s [options] %s", prefix_of(verb), verb->name,
                        verb->arguments);
  }
  if (verb->max_arguments >= 0 && n > verb->max_arguments) {
    ot_fail(OT_USAGE, "unexpected argument \"%s\" (%s%s)", options->arguments[verb->max_arguments],
            prefix_of(verb), verb->name);
    return ot_fail_hint(OT_USAGE, "usage: %s%s [options] %s", prefix_of(verb), verb->name,
                        verb->arguments);
  }
  for (int i = 0; i < verb->num_options; i++) {
    const ot_option *const option = &options->rows[i];
    OT_CHECK(!option->required || options->num_values[i] > 0, OT_USAGE, "--%s %s is needed (%s%s)",
             option->name, option->value, prefix_of(verb), verb->name);
  }
  return OT_OK;
}

static ot_status parse(ot_options *options, int count, char *const *words) {
  bool only_arguments = false;
  for (int i = 0; i < count; i++) {
    const char *const word = words[i];
    if (!only_arguments && strcmp(word, "--") == 0) {
      only_arguments = true;
      if (options->verb->command) {
        options->first_word = i + 1;
        break;
      }
    } else if (!only_arguments && (strcmp(word, "-h") == 0 || strcmp(word, "--help") == 0)) {
      options->help = true;
      return OT_OK;
    } else if (!only_arguments && strncmp(word, "--", 2) == 0) {
      OT_TRY(parse_option(options, count, words, &i));
    } else {
      OT_CHECK(only_arguments || word[0] != '-' || word[1] == '\0', OT_USAGE,
               "unknown option %s (%s%s); options start with two dashes", word,
               prefix_of(options->verb), options->verb->name);
      options->arguments[options->num_arguments++] = word;
    }
  }
  return check_counts(options);
}

ot_status ot_options_replace(const ot_options *options, const char *name, const char *value,
                             ot_arena *arena, const ot_options **out) {
  const int index = find_option(options, name, strlen(name));
  const int rows = options->verb->num_options;
  if (index < 0) return unknown_option(options, name, strlen(name));
  const ot_option *const option = &options->rows[index];
  OT_CHECK(option->kind != OT_OPTION_FLAG, OT_USAGE, "--%s takes no value", name);
  OT_TRY(check_value(option, value));
  ot_options *const copy = ot_arena_take(arena, sizeof *copy);
  *copy = *options;
  copy->num_values = ot_arena_array(arena, rows + 1, sizeof(int));
  copy->values = ot_arena_array(arena, rows + 1, sizeof(char **));
  memcpy(copy->num_values, options->num_values, (size_t)rows * sizeof(int));
  memcpy(copy->values, options->values, (size_t)rows * sizeof(char **));
  copy->num_values[index] = 1;
  copy->values[index] = ot_arena_take(arena, sizeof(char *));
  copy->values[index][0] = value;
  *out = copy;
  return OT_OK;
}

ot_arena *ot_options_arena(const ot_options *options) { return options->arena; }

int ot_options_num_arguments(const ot_options *options) { return options->num_arguments; }

const char *ot_options_argument(const ot_options *options, int i) {
  OT_ASSERT(i >= 0);
  return i < options->num_arguments ? options->arguments[i] : NULL;
}

int ot_options_num_words(const ot_options *options) {
  return options->num_words - options->first_word;
}

const char *ot_options_word(const ot_options *options, int i) {
  return options->words[options->first_word + i];
}

bool ot_options_given(const ot_options *options, const char *name) {
  return options->num_values[known_option(options, name)] > 0;
}

bool ot_options_flag(const ot_options *options, const char *name) {
  return ot_options_given(options, name);
}

const char *ot_options_text(const ot_options *options, const char *name) {
  const int i = known_option(options, name);
  const int n = options->num_values[i];
  return n > 0 ? options->values[i][n - 1] : options->rows[i].fallback;
}

int64_t ot_options_integer(const ot_options *options, const char *name) {
  const char *const text = ot_options_text(options, name);
  int64_t value = 0;
  if (text) OT_ASSERT(ot_number_parse_size(text, &value));
  return value;
}

double ot_options_real(const ot_options *options, const char *name) {
  const char *const text = ot_options_text(options, name);
  const ot_option *const option = &options->rows[known_option(options, name)];
  double value = 0;
  if (text) OT_ASSERT(read_real(option, text, &value));
  return value;
}

int ot_options_choice(const ot_options *options, const char *name) {
  const char *const text = ot_options_text(options, name);
  int index = -1;
  const ot_option *const option = &options->rows[known_option(options, name)];
  if (text) OT_ASSERT(word_in_choice(option->value, text, &index));
  return index;
}

int ot_options_count(const ot_options *options, const char *name) {
  return options->num_values[known_option(options, name)];
}

const char *const *ot_options_values(const ot_options *options, const char *name) {
  return options->values[known_option(options, name)];
}

bool ot_options_json(const ot_options *options) { return options->json; }

// ---- help ----

enum { COLUMN = 30, WIDTH = 100, USAGE = 7 };  // columns: of texts, the last, after "usage: "

// Prints `text` from `column` on. What passes WIDTH goes to a new line at `indent`; a line ends
// after a word or a bar.
static void print_wrapped(const char *text, int column, int indent) {
  bool space = false;
  while (*text != '\0') {
    const int word = (int)strcspn(text, " |");
    const int part = word + (text[word] == '|');
    if (column > indent && column + space + part > WIDTH) {
      printf("\n%*s", indent, "");
      column = indent;
      space = false;
    }
    printf("%s%.*s", space ? " " : "", part, text);
    column += space + part;
    text += part;
    space = *text == ' ';
    text += space;
  }
  printf("\n");
}

static void print_option(const ot_option *option) {
  char left[256];
  const bool has_value = option->kind != OT_OPTION_FLAG;
  const int width = snprintf(left, sizeof left, "  --%s%s%s", option->name, has_value ? " " : "",
                             has_value ? (option->value ? option->value : "VALUE") : "");
  if (width >= COLUMN) {
    print_wrapped(left, 0, (int)strlen(option->name) + 5);
    printf("%*s", COLUMN, "");
  } else {
    printf("%-*s", COLUMN, left);
  }
  const bool has_fallback = option->fallback && option->fallback[0] != '\0';
  char right[512];
  snprintf(right, sizeof right, "%s%s%s%s%s%s", option->help, has_fallback ? " [" : "",
           has_fallback ? option->fallback : "", has_fallback ? "]" : "",
           option->required ? " (needed)" : "", is_repeatable(option) ? " (repeatable)" : "");
  print_wrapped(right, COLUMN, COLUMN);
}

static void print_help(const ot_verb *verb, const ot_option *rows) {
  const bool color = ot_output_color(stdout);
  const char *const bold = color ? OT_TEXT_BOLD : "";
  const char *const plain = color ? OT_TEXT_PLAIN : "";
  printf("%s%s: %s\n\n", prefix_of(verb), verb->name, verb->summary);
  char usage[512];
  const int name_end = snprintf(usage, sizeof usage, "%s%s", prefix_of(verb), verb->name);
  snprintf(usage + name_end, sizeof usage - (size_t)name_end, "%s%s%s",
           verb->num_options > 0 || verb->json ? " [options]" : "",
           verb->arguments[0] != '\0' ? " " : "", verb->arguments);
  printf("%susage:%s ", bold, plain);
  print_wrapped(usage, USAGE, USAGE);
  if (verb->details) printf("\n%s\n", verb->details);
  printf("\n%soptions:%s\n", bold, plain);
  for (int i = 0; i < verb->num_options; i++) print_option(&rows[i]);
  if (verb->json) {
    print_option(&(ot_option){.name = "json", .help = "print one JSON document on stdout"});
  }
  print_option(&(ot_option){.name = "help", .help = "this text (-h)"});
  if (verb->examples) printf("\n%sexamples:%s\n%s\n", bold, plain, verb->examples);
}

void ot_verb_print_help(const ot_verb *verb) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  print_help(verb, ot_verb_rows(verb, &arena));
  ot_heap_release(&heap);
}

// ---- running ----

ot_status ot_verb_run(const ot_verb *verb, int count, char *const *words) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  ot_options options = {
      .arena = &arena, .verb = verb, .num_words = count, .first_word = count, .words = words};
  options.rows = ot_verb_rows(verb, &arena);
  options.arguments = ot_arena_array(&arena, count + 1, sizeof(char *));
  options.num_values = ot_arena_array(&arena, verb->num_options + 1, sizeof(int));
  options.values = ot_arena_array(&arena, verb->num_options + 1, sizeof(char **));
  ot_status status = parse(&options, count, words);
  if (status == OT_OK && options.help) {
    print_help(verb, options.rows);
  } else if (status == OT_OK) {
    status = verb->run(&options);
  }
  ot_heap_release(&heap);
  return status;
}
