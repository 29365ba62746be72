// SPDX-License-Identifier: Apache-2.0
// Reads the command line of a verb against its table. Our own parser rather than getopt_long:
// options are known by full name only, wrong ones name the nearest, and values are checked as they
// are read.
#include "cli/options.h"

#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/text.h"

struct ot_options {
  const ot_verb *verb;
  int num_arguments;
  const char **arguments;  // [number of words]
  int *num_values;         // [verb->num_options]
  const char ***values;    // [verb->num_options][num_values], null until given
  int num_words;
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

const char *ot_verb_prefix(const ot_verb *verb) { return verb->prefix ? verb->prefix : "orthant "; }

static int find_option(const ot_verb *verb, const char *name, size_t length) {
  for (int i = 0; i < verb->num_options; i++) {
    const char *const candidate = verb->options[i].name;
    if (strlen(candidate) == length && strncmp(candidate, name, length) == 0) return i;
  }
  return -1;
}

static int known_option(const ot_options *options, const char *name) {
  const int i = find_option(options->verb, name, strlen(name));
  OT_ASSERT(i >= 0);
  return i;
}

static ot_status unknown_option(const ot_verb *verb, const char *word, size_t length) {
  char name[64];
  ot_text_format(name, sizeof name, "%.*s", (int)length, word);
  const char *nearest = NULL;
  int best = 4;
  for (int i = 0; i < verb->num_options; i++) {
    ot_text_nearest(name, verb->options[i].name, &nearest, &best);
  }
  if (verb->json) ot_text_nearest(name, "json", &nearest, &best);
  ot_text_nearest(name, "help", &nearest, &best);
  ot_fail(OT_USAGE, "unknown option --%s (%s%s)", name, ot_verb_prefix(verb), verb->name);
  if (nearest) return ot_fail_hint(OT_USAGE, "did you mean --%s?", nearest);
  return ot_fail_hint(OT_USAGE, "%s%s --help lists its options", ot_verb_prefix(verb), verb->name);
}

static ot_status check_integer(const ot_option *option, const char *text) {
  int64_t value;
  OT_CHECK(ot_number_parse_size(text, &value), OT_USAGE,
           "--%s: \"%s\" is not a whole number (such as 8, 4k or 2GiB)", option->name, text);
  if (option->minimum == 0 && option->maximum == 0) return OT_OK;
  OT_CHECK(value >= option->minimum && value <= option->maximum, OT_USAGE,
           "--%s: %lld is out of range; allowed: %lld to %lld", option->name, (long long)value,
           (long long)option->minimum, (long long)option->maximum);
  return OT_OK;
}

static ot_status check_value(const ot_option *option, const char *text) {
  double real;
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
      OT_CHECK(ot_number_parse(text, false, &real), OT_USAGE,
               "--%s: \"%s\" is not a number (such as 0.1 or 3e-4)", option->name, text);
      return OT_OK;
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

// Takes the option in words[*i] (after its dashes) with its value, which may be the next word.
static ot_status take_option(ot_options *options, int count, char *const *words, int *i) {
  const char *const word = words[*i] + 2;
  const size_t length = strcspn(word, "=");
  const char *value = word[length] == '=' ? word + length + 1 : NULL;
  if (options->verb->json && length == 4 && strncmp(word, "json", 4) == 0) {
    OT_CHECK(value == NULL, OT_USAGE, "--json takes no value");
    options->json = true;
    return OT_OK;
  }
  const int index = find_option(options->verb, word, length);
  if (index < 0) return unknown_option(options->verb, word, length);
  const ot_option *const option = &options->verb->options[index];
  if (option->kind == OT_OPTION_FLAG) {
    OT_CHECK(value == NULL, OT_USAGE, "--%s takes no value", option->name);
    value = "";
  } else if (value == NULL) {
    OT_CHECK(*i + 1 < count, OT_USAGE, "--%s needs a value: --%s %s", option->name, option->name,
             option->value ? option->value : "VALUE");
    value = words[++*i];
  }
  OT_TRY(check_value(option, value));
  const bool repeatable = option->repeatable || option->kind == OT_OPTION_SETTING;
  OT_CHECK(repeatable || options->num_values[index] == 0, OT_USAGE, "--%s is given twice",
           option->name);
  if (!options->values[index]) {
    options->values[index] = calloc((size_t)options->num_words + 1, sizeof(char *));
    OT_CHECK(options->values[index], OT_ENVIRONMENT, "out of memory (command line)");
  }
  options->values[index][options->num_values[index]++] = value;
  return OT_OK;
}

static ot_status check_counts(const ot_options *options) {
  const ot_verb *const verb = options->verb;
  const int n = options->num_arguments;
  if (n < verb->min_arguments) {
    ot_fail(OT_USAGE, "missing argument %s (%s%s)", verb->arguments, ot_verb_prefix(verb),
            verb->name);
    return ot_fail_hint(OT_USAGE, "usage: %s%s [options] %s", ot_verb_prefix(verb), verb->name,
                        verb->arguments);
  }
  if (verb->max_arguments >= 0 && n > verb->max_arguments) {
    ot_fail(OT_USAGE, "unexpected argument \"%s\" (%s%s)", options->arguments[verb->max_arguments],
            ot_verb_prefix(verb), verb->name);
    return ot_fail_hint(OT_USAGE, "usage: %s%s [options] %s", ot_verb_prefix(verb), verb->name,
                        verb->arguments);
  }
  for (int i = 0; i < verb->num_options; i++) {
    OT_CHECK(!verb->options[i].required || options->num_values[i] > 0, OT_USAGE,
             "--%s %s is needed (%s%s)", verb->options[i].name, verb->options[i].value,
             ot_verb_prefix(verb), verb->name);
  }
  return OT_OK;
}

static ot_status parse(ot_options *options, int count, char *const *words) {
  bool only_arguments = false;
  for (int i = 0; i < count; i++) {
    const char *const word = words[i];
    if (!only_arguments && strcmp(word, "--") == 0) {
      only_arguments = true;
    } else if (!only_arguments && (strcmp(word, "-h") == 0 || strcmp(word, "--help") == 0)) {
      options->help = true;
      return OT_OK;
    } else if (!only_arguments && strncmp(word, "--", 2) == 0) {
      OT_TRY(take_option(options, count, words, &i));
    } else {
      OT_CHECK(only_arguments || word[0] != '-' || word[1] == '\0', OT_USAGE,
               "unknown option %s (%s%s); options start with two dashes", word,
               ot_verb_prefix(options->verb), options->verb->name);
      options->arguments[options->num_arguments++] = word;
    }
  }
  return check_counts(options);
}

ot_status ot_options_create(const ot_verb *verb, int count, char *const *words, ot_options **out) {
  *out = NULL;
  ot_options *options = calloc(1, sizeof *options);
  OT_CHECK(options, OT_ENVIRONMENT, "out of memory (command line)");
  options->verb = verb;
  options->num_words = count;
  options->arguments = calloc((size_t)count + 1, sizeof(char *));
  options->num_values = calloc((size_t)verb->num_options + 1, sizeof(int));
  options->values = calloc((size_t)verb->num_options + 1, sizeof(char **));
  ot_status status = OT_OK;
  if (!options->arguments || !options->num_values || !options->values) {
    status = ot_fail(OT_ENVIRONMENT, "out of memory (command line)");
  } else {
    status = parse(options, count, words);
  }
  if (status == OT_OK) {
    *out = options;
  } else {
    ot_options_destroy(&options);
  }
  return status;
}

void ot_options_destroy(ot_options **options) {
  if (!*options) return;
  for (int i = 0; (*options)->values && i < (*options)->verb->num_options; i++) {
    free((*options)->values[i]);
  }
  free((*options)->values);
  free((*options)->num_values);
  free((*options)->arguments);
  free(*options);
  *options = NULL;
}

int ot_options_num_arguments(const ot_options *options) { return options->num_arguments; }

const char *ot_options_argument(const ot_options *options, int i) {
  OT_ASSERT(i >= 0);
  return i < options->num_arguments ? options->arguments[i] : NULL;
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
  return n > 0 ? options->values[i][n - 1] : options->verb->options[i].fallback;
}

int64_t ot_options_integer(const ot_options *options, const char *name) {
  const char *const text = ot_options_text(options, name);
  int64_t value = 0;
  if (text) OT_ASSERT(ot_number_parse_size(text, &value));
  return value;
}

double ot_options_real(const ot_options *options, const char *name) {
  const char *const text = ot_options_text(options, name);
  double value = 0;
  if (text) OT_ASSERT(ot_number_parse(text, false, &value));
  return value;
}

int ot_options_choice(const ot_options *options, const char *name) {
  const char *const text = ot_options_text(options, name);
  int index = -1;
  if (text)
    OT_ASSERT(
        word_in_choice(options->verb->options[known_option(options, name)].value, text, &index));
  return index;
}

int ot_options_count(const ot_options *options, const char *name) {
  return options->num_values[known_option(options, name)];
}

const char *const *ot_options_values(const ot_options *options, const char *name) {
  return options->values[known_option(options, name)];
}

bool ot_options_asks_help(const ot_options *options) { return options->help; }

bool ot_options_json(const ot_options *options) { return options->json; }
