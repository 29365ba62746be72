// SPDX-License-Identifier: Apache-2.0
// Help of one verb, printed from its table.
#include <stdio.h>
#include <string.h>

#include "cli/options.h"
#include "cli/output.h"

enum { COLUMN = 30, WIDTH = 100 };

// A list of words that is too long for a line goes on below, in the column of its first word.
static void print_left(const char *left, int indent) {
  int column = 0;
  for (const char *at = left; *at != '\0';) {
    const int length = (int)strcspn(at, "|") + (at[strcspn(at, "|")] == '|');
    if (column > 0 && column + length > WIDTH) {
      printf("\n%*s", indent, "");
      column = indent;
    }
    printf("%.*s", length, at);
    column += length;
    at += length;
  }
  printf("\n");
}

static void print_option(const ot_option *option) {
  char left[256];
  const bool has_value = option->kind != OT_OPTION_FLAG;
  const int width = snprintf(left, sizeof left, "  --%s%s%s", option->name, has_value ? " " : "",
                             has_value ? (option->value ? option->value : "VALUE") : "");
  if (width >= COLUMN) {
    print_left(left, (int)strlen(option->name) + 5);
    printf("%*s", COLUMN, "");
  } else {
    printf("%-*s", COLUMN, left);
  }
  printf("%s", option->help);
  if (option->fallback && option->fallback[0] != '\0') printf(" [%s]", option->fallback);
  if (option->required) printf(" (needed)");
  if (option->repeatable || option->kind == OT_OPTION_SETTING) printf(" (repeatable)");
  printf("\n");
}

void ot_options_print_help(const ot_verb *verb) {
  const bool color = ot_output_color(stdout);
  const char *const bold = color ? "\033[1m" : "";
  const char *const plain = color ? "\033[0m" : "";
  printf("%s%s: %s\n\n", ot_verb_prefix(verb), verb->name, verb->summary);
  printf("%susage:%s %s%s%s%s%s\n", bold, plain, ot_verb_prefix(verb), verb->name,
         verb->num_options > 0 || verb->json ? " [options]" : "",
         verb->arguments[0] != '\0' ? " " : "", verb->arguments);
  if (verb->details) printf("\n%s\n", verb->details);
  printf("\n%soptions:%s\n", bold, plain);
  for (int i = 0; i < verb->num_options; i++) print_option(&verb->options[i]);
  if (verb->json) {
    print_option(&(ot_option){.name = "json", .help = "print one JSON document on stdout"});
  }
  print_option(&(ot_option){.name = "help", .help = "this text (-h)"});
  if (verb->examples) printf("\n%sexamples:%s\n%s\n", bold, plain, verb->examples);
}
