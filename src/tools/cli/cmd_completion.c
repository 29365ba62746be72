// SPDX-License-Identifier: Apache-2.0
// `orthant completion SHELL`: a script for the shell, generated from the tables of verbs, options
// and settings and from the installed presets, so that it is always up to date.
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "cli/installed.h"
#include "cli/verbs.h"
#include "describe/run_keys.h"

// The sources of a script.
typedef struct source {
  ot_presets presets;
  ot_arena *arena;
} source;

static const struct preset_option {
  const char *option;
  ot_preset_kind kind;
} preset_options[] = {
    {"model", OT_PRESET_MODEL}, {"cluster", OT_PRESET_CLUSTER}, {"engine", OT_PRESET_ENGINE}};

// The values that complete an option, separated by '|': of a choice, or the presets that it names;
// null where there are none.
static const char *values_of(const source *from, const ot_option *option) {
  if (option->kind == OT_OPTION_CHOICE) return option->value;
  if (option->kind != OT_OPTION_TEXT) return NULL;
  for (int i = 0; i < OT_COUNT(preset_options); i++) {
    if (strcmp(option->name, preset_options[i].option) != 0) continue;
    const ot_preset_names all =
        ot_presets_list(&from->presets, preset_options[i].kind, from->arena);
    const char *words = all.count > 0 ? all.name[0] : NULL;
    for (int64_t k = 1; k < all.count; k++) {
      words = ot_arena_format(from->arena, "%s|%s", words, all.name[k]);
    }
    return words;
  }
  return NULL;
}

// The words that the first argument of a verb may be ("list|verify"), or null where it is a file.
static const char *first_words(const source *from, const ot_verb *verb) {
  const char *end = verb->arguments;
  bool several = false;
  for (; (*end >= 'a' && *end <= 'z') || *end == '|'; end++) several = several || *end == '|';
  if (!several || (*end != ' ' && *end != '\0')) return NULL;
  return ot_arena_text(from->arena, verb->arguments, end - verb->arguments);
}

// Words separated by '|', with spaces between them.
static void put_words(const char *words) {
  for (const char *at = words; *at != '\0'; at++) putchar(*at == '|' ? ' ' : *at);
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

static void put_bash_options(const source *from, const ot_verb *verb) {
  const ot_option *const rows = ot_verb_rows(verb, from->arena);
  printf("    %s) options=\"", verb->name);
  for (int i = 0; i < verb->num_options; i++) printf("--%s ", rows[i].name);
  printf("%s--help\" ;;\n", verb->json ? "--json " : "");
}

static void put_bash_choices(const source *from, const ot_verb *verb) {
  const ot_option *const rows = ot_verb_rows(verb, from->arena);
  for (int i = 0; i < verb->num_options; i++) {
    const ot_option *const option = &rows[i];
    const char *const values = values_of(from, option);
    if (!values) continue;
    printf("    %s:--%s) COMPREPLY=($(compgen %s-W \"", verb->name, option->name,
           option->kind == OT_OPTION_CHOICE ? "" : "-f ");
    put_words(values);
    printf("\" -- \"$word\")); return ;;\n");
  }
}

static void put_bash_first(const source *from, const ot_verb *verb) {
  const char *const words = first_words(from, verb);
  if (!words) return;
  printf("    %s:2) words=\"", verb->name);
  put_words(words);
  printf("\" ;;\n");
}

static void put_bash(const source *from) {
  printf("# orthant completion for bash: eval \"$(orthant completion bash)\"\n");
  printf("_orthant_settings=\"");
  ot_schema_list(&ot_run_schema, put_bash_key, NULL);
  printf("\"\n_orthant() {\n");
  // '=' splits words in bash: `--set optimizer.lr=` is completed up to its sign.
  printf("  local word=\"${COMP_WORDS[COMP_CWORD]}\" before=\"${COMP_WORDS[COMP_CWORD-1]}\"\n");
  printf("  local verb=\"${COMP_WORDS[1]}\" options=\"\" words=\"\"\n  COMPREPLY=()\n");
  printf(
      "  if [ \"$COMP_CWORD\" -eq 1 ] || { [ \"$COMP_CWORD\" -eq 2 ] && [ \"$verb\" = help ]; }; "
      "then\n    COMPREPLY=($(compgen -W \"");
  put_verbs();
  printf("\" -- \"$word\"))\n    return\n  fi\n");
  printf(
      "  case \"$verb:$before\" in\n    *:--set)\n      compopt -o nospace 2>/dev/null\n"
      "      COMPREPLY=($(compgen -W \"$_orthant_settings\" -- \"$word\")); return ;;\n");
  for (const ot_verb *const *verb = ot_verb_list(); *verb; verb++) {
    put_bash_choices(from, *verb);
  }
  printf("  esac\n  case \"$verb\" in\n");
  for (const ot_verb *const *verb = ot_verb_list(); *verb; verb++) put_bash_options(from, *verb);
  printf("  esac\n  case \"$verb:$COMP_CWORD\" in\n");
  for (const ot_verb *const *verb = ot_verb_list(); *verb; verb++) put_bash_first(from, *verb);
  printf(
      "  esac\n  if [ \"${word#-}\" != \"$word\" ]; then\n"
      "    COMPREPLY=($(compgen -W \"$options\" -- \"$word\"))\n"
      "  elif [ -n \"$words\" ]; then\n"
      "    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n  else\n"
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

static void put_zsh_option(const source *from, const ot_option *option) {
  const char *const values = values_of(from, option);
  printf(" \\\n        '%s--%s%s[", option->kind == OT_OPTION_SETTING ? "*" : "", option->name,
         option->kind == OT_OPTION_FLAG ? "" : "=");
  put_zsh_text(option->help);
  printf("]");
  if (option->kind == OT_OPTION_FLAG) {
    printf("'");
  } else if (values && option->kind == OT_OPTION_CHOICE) {
    printf(":value:(");
    put_words(values);
    printf(")'");
  } else if (values) {
    printf(":preset or file:{ compadd -- ");
    put_words(values);
    printf("; _files }'");
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

static void put_zsh_first(const source *from, const ot_verb *verb) {
  const char *const words = first_words(from, verb);
  if (!words) return;
  printf(" \\\n        '1:word:(");
  put_words(words);
  printf(")'");
}

static void put_zsh(const source *from) {
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
    const ot_option *const rows = ot_verb_rows(*verb, from->arena);
    for (int i = 0; i < (*verb)->num_options; i++) put_zsh_option(from, &rows[i]);
    put_zsh_first(from, *verb);
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

static void put_fish_option(const source *from, const ot_verb *verb, const ot_option *option) {
  const char *const values = values_of(from, option);
  printf("complete -c orthant -n '__fish_seen_subcommand_from %s' -l %s -d ", verb->name,
         option->name);
  put_fish_text(option->help);
  if (values) {
    printf(option->kind == OT_OPTION_CHOICE ? " -x -a '" : " -r -F -a '");
    put_words(values);
    printf("'");
  } else if (option->kind == OT_OPTION_SETTING) {
    printf(" -x -a \"$__orthant_settings\"");
  } else if (option->kind != OT_OPTION_FLAG) {
    printf(option->kind == OT_OPTION_PATH ? " -r -F" : " -x");
  }
  printf("\n");
}

static void put_fish_first(const source *from, const ot_verb *verb) {
  const char *const words = first_words(from, verb);
  if (!words) return;
  printf("complete -c orthant -n '__fish_seen_subcommand_from %s' -a '", verb->name);
  put_words(words);
  printf("'\n");
}

static void put_fish(const source *from) {
  printf("# orthant completion for fish: orthant completion fish | source\n");
  printf("set -g __orthant_settings \"");
  ot_schema_list(&ot_run_schema, put_fish_key, NULL);
  printf("\"\n");
  for (const ot_verb *const *verb = ot_verb_list(); *verb; verb++) {
    printf("complete -c orthant -f -n __fish_use_subcommand -a %s -d ", (*verb)->name);
    put_fish_text((*verb)->summary);
    printf("\n");
    const ot_option json = {.name = "json", .help = "print one JSON document"};
    if ((*verb)->json) put_fish_option(from, *verb, &json);
    const ot_option *const rows = ot_verb_rows(*verb, from->arena);
    for (int i = 0; i < (*verb)->num_options; i++) put_fish_option(from, *verb, &rows[i]);
    put_fish_first(from, *verb);
  }
  printf("complete -c orthant -f -n __fish_use_subcommand -a help -d 'help of a verb'\n");
}

static ot_status run(const ot_options *options) {
  const char *const shell = ot_options_argument(options, 0);
  ot_arena *const arena = ot_options_arena(options);
  const source from = {.presets = ot_installed_presets(arena), .arena = arena};
  if (strcmp(shell, "bash") == 0) {
    put_bash(&from);
  } else if (strcmp(shell, "zsh") == 0) {
    put_zsh(&from);
  } else if (strcmp(shell, "fish") == 0) {
    put_fish(&from);
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
