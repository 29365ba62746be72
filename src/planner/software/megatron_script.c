// SPDX-License-Identifier: Apache-2.0
// Megatron-LM: flags from a script or a file of flags become one map, which the table in
// megatron_keys.c parses; then the flags are interpreted (megatron/training/arguments.py).
#include "base/number.h"
#include "base/text.h"
#include "software/megatron.h"
#include "software/shell.h"

// ---- flags as a map ----

typedef struct collector {
  ot_import *import;
  ot_node *map;
  ot_node *flag;            // that the next values belong to; null before the first
  bool launcher;            // before the program's own flags
  int64_t nodes, per_node;  // from the launcher; 0 = not given
} collector;

static bool is_flag(const char *text) {
  return text[0] == '-' && text[1] == '-' && ot_is_letter(text[2]);
}

// "--some_flag" -> "some-flag".
const char *ot_megatron_key(ot_arena *arena, const char *text, int64_t length) {
  while (length > 0 && *text == '-') text++, length--;
  char *const key = ot_arena_text(arena, text, length);
  for (char *p = key; *p != '\0'; p++) {
    if (*p == '_') *p = '-';
  }
  return key;
}

static void begin_flag(collector *c, const char *text, int line) {
  ot_arena *const arena = c->import->arena;
  const char *const equals = ot_text_find(text, "=");
  const int64_t length = equals ? equals - text : ot_text_length(text);
  const char *const key = ot_megatron_key(arena, text, length);
  const ot_node *const before = ot_node_child(c->map, key);
  if (before) ot_node_remove(c->map, before);  // the last one applies
  c->flag = ot_node_put(arena, c->map, key, ot_node_word(arena, equals ? equals + 1 : "true"));
  c->flag->quoted = equals != NULL;  // until the tree is parsed: has a value
  c->flag->source = c->import->path;
  c->flag->line = line;
}

static bool takes_value(const ot_node *flag) {
  const ot_key *const key = ot_schema_find(&ot_megatron_schema, 0, flag->key);
  return (!key || key->type != OT_KEY_BOOL) && !flag->quoted;
}

static void add_value(collector *c, const char *text, int line) {
  ot_node *const flag = c->flag;
  if (!flag) return;
  if (ot_text_has(text, '$') && !takes_value(flag)) {
    ot_import_note(c->import, "line %d: flags in %s are unknown", line, text);
    return;
  }
  flag->text = flag->quoted ? ot_arena_format(c->import->arena, "%s %s", flag->text, text) : text;
  flag->quoted = true;
  flag->line = line;
}

static void add_launcher_flag(collector *c) {
  int64_t value;
  if (!c->flag || !ot_number_parse_size(c->flag->text, &value) || value < 1) return;
  if (value > 1 << 20) return;
  if (ot_text_equal(c->flag->key, "nnodes")) c->nodes = value;
  if (ot_text_equal(c->flag->key, "nproc-per-node")) c->per_node = value;
}

static void add_token(collector *c, const char *text, int line) {
  if (c->launcher) add_launcher_flag(c);
  if (c->launcher && ot_text_ends_with(text, ".py")) {
    c->launcher = false;
    c->map = ot_node_create(c->import->arena, OT_NODE_MAP);
    c->flag = NULL;
  } else if (is_flag(text)) {
    begin_flag(c, text, line);
  } else {
    add_value(c, text, line);
  }
}

// A word may contain several: one text with flags and their values, with line numbers continuing.
static void add_word(collector *c, const ot_shell_word *word) {
  int line = word->line;
  for (const char *at = word->text; *at != '\0';) {
    if (ot_is_space(*at)) {
      line += *at++ == '\n';
      continue;
    }
    const char *end = at;
    while (*end != '\0' && !ot_is_space(*end)) end++;
    add_token(c, ot_arena_text(c->import->arena, at, end - at), line);
    at = end;
  }
}

static bool has_program(const ot_shell_command *command) {
  for (int64_t i = 0; i < command->num_words; i++) {
    const char *const found = ot_text_find(command->words[i].text, ".py");
    if (found && (found[3] == '\0' || ot_is_space(found[3]))) return true;
  }
  return false;
}

// Number of words of a command that contain flags.
static int64_t count_flags(const ot_shell_command *command) {
  int64_t count = 0;
  for (int64_t i = 0; i < command->num_words; i++)
    count += ot_text_find(command->words[i].text, "--") != NULL;
  return count;
}

// The command that starts the program: of those that name one, the one with most flags; or -1.
static int64_t program_of(const ot_shell *shell) {
  int64_t best = -1;
  for (int64_t i = 0; i < shell->num_commands; i++) {
    if (!has_program(&shell->commands[i])) continue;
    if (best < 0 || count_flags(&shell->commands[i]) > count_flags(&shell->commands[best]))
      best = i;
  }
  return best;
}

ot_status ot_megatron_script_read(ot_import *import, ot_node **map) {
  ot_shell shell;
  OT_TRY(ot_shell_read(import->path, import->text, import->bytes, import->arena, &shell));
  for (int64_t i = 0; i < shell.num_notes; i++) ot_import_note(import, "%s", shell.notes[i]);
  const int64_t program = program_of(&shell);
  collector c = {.import = import, .launcher = program >= 0};
  c.map = ot_node_create(import->arena, OT_NODE_MAP);
  for (int64_t i = 0; i < shell.num_commands; i++) {
    const ot_shell_command *const command = &shell.commands[i];
    if (program >= 0 ? i != program : !is_flag(command->words[0].text)) continue;
    for (int64_t k = 0; k < command->num_words; k++) add_word(&c, &command->words[k]);
  }
  for (ot_node *flag = c.map->first; flag; flag = flag->next) flag->quoted = false;
  c.map->source = import->path;
  import->out->devices = (int)(c.nodes * c.per_node <= 1 << 20 ? c.nodes * c.per_node : 0);
  *map = c.map;
  return OT_OK;
}

// ---- the job ----

bool ot_megatron_has_flags(const char *text) {
  return ot_text_find(text, "--num-layers") || ot_text_find(text, "--tensor-model-parallel-size") ||
         ot_text_find(text, "--micro-batch-size");
}

ot_status ot_megatron_job(ot_import *import, ot_node *map, ot_megatron_flags *flags) {
  OT_TRY(ot_schema_read(&ot_megatron_schema, map, import->arena, flags));
  ot_import_ignored(import, &ot_megatron_schema, map, "");
  if (ot_node_child(map, "rampup-batch-size") || ot_node_child(map, "step-batch-size-schedule"))
    ot_import_note(import, "the batch grows: priced with the global batch size");
  OT_TRY(ot_megatron_model(import, flags));
  return ot_megatron_step(import, flags);
}

static ot_status refuse(const char *name, const char *what) {
  ot_fail(OT_USAGE, "%s: %s", name, what);
  return ot_fail_hint(OT_USAGE, "the program reads it: orthant plan --from %s", name);
}

ot_status ot_megatron_script_import(const char *name, const char *text, ot_arena *arena,
                                    ot_imported *out) {
  *out = (ot_imported){.format = OT_MEGATRON_FORMAT, .model_name = name};
  ot_import import = {
      .path = name, .text = text, .bytes = ot_text_length(text), .arena = arena, .out = out};
  ot_node *map = NULL;
  ot_megatron_flags flags;
  if (!ot_megatron_has_flags(text)) return refuse(name, "it has no flags of Megatron-LM");
  OT_TRY(ot_megatron_script_read(&import, &map));
  OT_TRY(ot_megatron_job(&import, map, &flags));
  if (flags.deepspeed) return refuse(name, "deepspeed: its JSON is another file");
  return ot_import_end(&import);
}
