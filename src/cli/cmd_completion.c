// SPDX-License-Identifier: Apache-2.0
// `orthant completion SHELL`: a script for the shell, generated from the tables of verbs, options
// and settings, so that it is always up to date.
#include <stdio.h>
#include <string.h>

#include "cli/verbs.h"
#include "describe/run_keys.h"

// Words of a choice ("a|b") separated by spaces.
static void put_words(const char *choice) {
  for (const char *at = choice; *at != '\0'; at++) putchar(*at == '|' ? ' ' : *at);
}

static void put_verbs(void) {
  for (const ot_verb *const *verb = ot_verb_list(); *verb; verb++) printf("%s ", (*verb)->name);
  printf("help");
}

static void put_bash_key(void *context, const char *path, const ot_key *key) {
  (void)context;
  (void)key;
  printf(" %s=", path);
}

// ---- bash ----

static void put_bash_options(const ot_verb *verb) {
  printf("    %s) options=\"", verb->name);
  for (int i = 0; i < verb->num_options; i++) printf("--%s ", ot_verb_option(verb, i)->name);
  printf("%s--help\" ;;\n", verb->json ? "--json " : "");
}

static void put_bash_choices(const ot_verb *verb) {
  for (int i = 0; i < verb->num_options; i++) {
    const ot_option *const option = ot_verb_option(verb, i);
    if (option->kind != OT_OPTION_CHOICE) continue;
    printf("    %s:--%s) COMPREPLY=($(compgen -W \"", verb->name, option->name);
    put_words(option->value);
    printf("\" -- \"$word\")); return ;;\n");
  }
}

static void put_bash(void) {
  printf("# orthant completion for bash: eval \"$(orthant completion bash)\"\n");
  printf("_orthant_settings=\"");
  ot_schema_list(&ot_run_schema, put_bash_key, NULL);
  printf("\"\n_orthant() {\n");
  // '=' splits words in bash: `--set optimizer.lr=` is completed up to its sign.
  printf("  local word=\"${COMP_WORDS[COMP_CWORD]}\" before=\"${COMP_WORDS[COMP_CWORD-1]}\"\n");
  printf("  local verb=\"${COMP_WORDS[1]}\" options=\"\"\n  COMPREPLY=()\n");
  printf(
      "  if [ \"$COMP_CWORD\" -eq 1 ] || { [ \"$COMP_CWORD\" -eq 2 ] && [ \"$verb\" = help ]; }; "
      "then\n    COMPREPLY=($(compgen -W \"");
  put_verbs();
  printf("\" -- \"$word\"))\n    return\n  fi\n");
  printf(
      "  case \"$verb:$before\" in\n    *:--set)\n      compopt -o nospace 2>/dev/null\n"
      "      COMPREPLY=($(compgen -W \"$_orthant_settings\" -- \"$word\")); return ;;\n");
  for (const ot_verb *const *verb = ot_verb_list(); *verb; verb++) put_bash_choices(*verb);
  printf("  esac\n  case \"$verb\" in\n");
  for (const ot_verb *const *verb = ot_verb_list(); *verb; verb++) put_bash_options(*verb);
  printf(
      "  esac\n  if [ \"${word#-}\" != \"$word\" ]; then\n"
      "    COMPREPLY=($(compgen -W \"$options\" -- \"$word\"))\n  else\n"
      "    COMPREPLY=($(compgen -f -- \"$word\"))\n  fi\n}\n"
      "complete -o filenames -F _orthant orthant\n");
}

// ---- zsh ----

// Text inside '...' of a specification, where quotes, brackets and colons must be escaped.
static void put_zsh_text(const char *text) {
  for (const char *at = text; *at != '\0'; at++) {
    if (*at == '\'') {
      printf("'\\''");
    } else {
      if (strchr("[]:\\", *at)) putchar('\\');
      putchar(*at);
    }
  }
}

static void put_zsh_option(const ot_option *option) {
  printf(" \\\n        '%s--%s%s[", option->kind == OT_OPTION_SETTING ? "*" : "", option->name,
         option->kind == OT_OPTION_FLAG ? "" : "=");
  put_zsh_text(option->help);
  printf("]");
  if (option->kind == OT_OPTION_FLAG) {
    printf("'");
  } else if (option->kind == OT_OPTION_CHOICE) {
    printf(":value:(");
    put_words(option->value);
    printf(")'");
  } else if (option->kind == OT_OPTION_SETTING) {
    printf(":setting:_orthant_settings'");
  } else {
    printf(":value:%s'", option->kind == OT_OPTION_PATH ? "_files" : "");
  }
}

static void put_zsh_key(void *context, const char *path, const ot_key *key) {
  (void)context;
  printf("    '%s:", path);
  put_zsh_text(key->help);
  printf("'\n");
}

static void put_zsh(void) {
  printf(
      "#compdef orthant\n# orthant completion for zsh: orthant completion zsh > "
      "DIRECTORY-IN-FPATH/_orthant\n");
  printf("_orthant_settings() {\n  local -a keys=(\n");
  ot_schema_list(&ot_run_schema, put_zsh_key, NULL);
  printf("  )\n  _describe -t settings 'setting' keys -S '='\n}\n");
  printf("_orthant() {\n  local -a verbs=(\n");
  for (const ot_verb *const *verb = ot_verb_list(); *verb; verb++) {
    printf("    '%s:", (*verb)->name);
    put_zsh_text((*verb)->summary);
    printf("'\n");
  }
  printf(
      "    'help:help of a verb'\n  )\n"
      "  if (( CURRENT == 2 )) || { (( CURRENT == 3 )) && [[ $words[2] == help ]]; }; then\n"
      "    _describe -t verbs 'verb' verbs\n    return\n  fi\n  case $words[2] in\n");
  for (const ot_verb *const *verb = ot_verb_list(); *verb; verb++) {
    printf(
        "    %s)\n      shift words; (( CURRENT-- ))\n      _arguments '--help[help of this verb]'",
        (*verb)->name);
    if ((*verb)->json) printf(" \\\n        '--json[print one JSON document]'");
    for (int i = 0; i < (*verb)->num_options; i++) put_zsh_option(ot_verb_option(*verb, i));
    printf(" \\\n        '*:file:_files' ;;\n");
  }
  printf(
      "  esac\n}\nif [ \"$funcstack[1]\" = \"_orthant\" ]; then\n  _orthant \"$@\"\nelse\n"
      "  compdef _orthant orthant\nfi\n");
}

// ---- fish ----

static void put_fish_text(const char *text) {
  putchar('\'');
  for (const char *at = text; *at != '\0'; at++) {
    if (*at == '\'' || *at == '\\') putchar('\\');
    putchar(*at);
  }
  putchar('\'');
}

static void put_fish_key(void *context, const char *path, const ot_key *key) {
  (void)context;
  (void)key;
  printf(" %s=", path);
}

static void put_fish_option(const ot_verb *verb, const ot_option *option) {
  printf("complete -c orthant -n '__fish_seen_subcommand_from %s' -l %s -d ", verb->name,
         option->name);
  put_fish_text(option->help);
  if (option->kind == OT_OPTION_CHOICE) {
    printf(" -x -a '");
    put_words(option->value);
    printf("'");
  } else if (option->kind == OT_OPTION_SETTING) {
    printf(" -x -a \"$__orthant_settings\"");
  } else if (option->kind != OT_OPTION_FLAG) {
    printf(option->kind == OT_OPTION_PATH ? " -r -F" : " -x");
  }
  printf("\n");
}

static void put_fish(void) {
  printf("# orthant completion for fish: orthant completion fish | source\n");
  printf("set -g __orthant_settings \"");
  ot_schema_list(&ot_run_schema, put_fish_key, NULL);
  printf("\"\n");
  for (const ot_verb *const *verb = ot_verb_list(); *verb; verb++) {
    printf("complete -c orthant -f -n __fish_use_subcommand -a %s -d ", (*verb)->name);
    put_fish_text((*verb)->summary);
    printf("\n");
    const ot_option json = {.name = "json", .help = "print one JSON document"};
    if ((*verb)->json) put_fish_option(*verb, &json);
    for (int i = 0; i < (*verb)->num_options; i++) put_fish_option(*verb, ot_verb_option(*verb, i));
  }
  printf("complete -c orthant -f -n __fish_use_subcommand -a help -d 'help of a verb'\n");
}

static ot_status run(const ot_options *options) {
  const char *const shell = ot_options_argument(options, 0);
  if (strcmp(shell, "bash") == 0) {
    put_bash();
  } else if (strcmp(shell, "zsh") == 0) {
    put_zsh();
  } else if (strcmp(shell, "fish") == 0) {
    put_fish();
  } else {
    return ot_fail(OT_USAGE, "\"%s\" is not one of bash, zsh, fish (orthant completion)", shell);
  }
  return OT_OK;
}

const ot_verb ot_verb_completion = {
    .name = "completion",
    .summary = "completion script for bash, zsh or fish",
    .arguments = "bash|zsh|fish",
    .min_arguments = 1,
    .max_arguments = 1,
    .examples =
        "  eval \"$(orthant completion bash)\"\n"
        "  orthant completion zsh > ~/.zfunc/_orthant\n"
        "  orthant completion fish > ~/.config/fish/completions/orthant.fish",
    .run = run,
};
