// SPDX-License-Identifier: Apache-2.0
// Detects the format and does the common work.
#include "software/import.h"

#include "base/text.h"
#include "software/import_parts.h"

bool ot_import_has_line(const ot_import *import, const char *word) {
  const char *line = import->text;
  while (line) {
    while (*line == ' ' || *line == '\t') line++;
    if (ot_text_starts_with(line, word)) return true;
    line = ot_text_find(line, "\n");
    if (line) line++;
  }
  return false;
}

ot_status ot_import_parse_yaml(ot_import *import, ot_node **tree) {
  const ot_tree_origin origin = {.name = import->path};
  return import->host->parse_yaml(&origin, import->text, import->bytes, import->arena, tree);
}

const char *ot_import_beside(const ot_import *import, const char *name) {
  const char *slash = NULL;
  for (const char *at = import->path; *at != '\0'; at++) slash = *at == '/' ? at : slash;
  const int folder = slash ? (int)(slash - import->path) : 1;
  return ot_arena_format(import->arena, "%.*s/%s", folder, slash ? import->path : ".", name);
}

ot_status ot_import_preset(ot_import *import, const char *preset) {
  ot_imported *const out = import->out;
  OT_TRY(import->host->load_preset(import->host->context, preset, import->arena, out));
  out->model_name = preset;
  out->has_model = true;
  return OT_OK;
}

static const struct {
  const char *name;
  bool (*is)(const ot_import *import);
  ot_status (*import)(ot_import *import);
} formats[] = {
    {"torchtitan TOML", ot_torchtitan_is, ot_torchtitan_import},
    {"nanotron YAML", ot_nanotron_is, ot_nanotron_import},
    {"MaxText YAML", ot_maxtext_is, ot_maxtext_import},
    {"DeepSpeed JSON", ot_deepspeed_is, ot_deepspeed_import},
    {"NeMo YAML", ot_nemo_is, ot_nemo_import},
    {OT_MEGATRON_FORMAT, ot_megatron_is, ot_megatron_import},
};

// ---- here-documents ----

// The word that ends a here-document begun on the line [line, end), or null: `cat >FILE <<'WORD'`.
static const char *begun_word(const char *line, const char *end, ot_arena *arena) {
  for (const char *at = line; at + 1 < end; at++) {
    if (at[0] != '<' || at[1] != '<') continue;
    at += 2;
    while (at < end && (*at == '-' || *at == ' ' || *at == '\'' || *at == '"')) at++;
    const char *const start = at;
    while (at < end && *at != '\'' && *at != '"' && *at != ' ' && *at != '>') at++;
    return at > start ? ot_arena_text(arena, start, at - start) : NULL;
  }
  return NULL;
}

// The first here-document, with empty lines before it, so that its lines keep their numbers.
static const char *find_document(const ot_import *import) {
  ot_text_builder out = {.arena = import->arena};
  const char *word = NULL, *line = import->text;
  while (*line != '\0') {
    const char *const stop = ot_text_find(line, "\n");
    const char *const end = stop ? stop : line + ot_text_length(line);
    const bool ends =
        word && (int64_t)ot_text_length(word) == end - line && ot_text_starts_with(line, word);
    if (ends) return ot_text_builder_text(&out);
    if (word) ot_text_append(&out, line, end - line);
    ot_text_put(&out, "\n");
    if (!word) word = begun_word(line, end, import->arena);
    line = stop ? stop + 1 : end;
  }
  return NULL;
}

// Whether a script writes torchtitan's or nanotron's file by its here-document, which then is the
// text that is read.
static void choose_document(ot_import *import) {
  ot_import inner = *import;
  import->document = find_document(import);
  if (!import->document) return;
  inner.text = import->document;
  if (!ot_torchtitan_is(&inner) && !ot_nanotron_is(&inner)) return;
  import->script = import->text;
  import->text = import->document;
  import->bytes = ot_text_length(import->document);
}

// torchtitan's configurations after version 0.2 are Python functions that change each other's
// results: programs, which are not run here.
static ot_status check_data(const ot_import *import) {
  static const char *const marks[][2] = {{"from torchtitan", "Config("},
                                         {"torchtitan.train", "--module"}};
  for (int i = 0; i < OT_COUNT(marks); i++) {
    if (!ot_text_find(import->text, marks[i][0]) || !ot_text_find(import->text, marks[i][1])) {
      continue;
    }
    ot_fail(OT_USAGE,
            "%s: torchtitan configurations in Python (config_registry.py, after version 0.2.2) are "
            "programs, which are not run",
            import->path);
    return ot_fail_hint(
        OT_USAGE,
        "write the values into TOML of version 0.2: [model] name and flavor, [training] "
        "local_batch_size, global_batch_size and seq_len, [parallelism], [activation_checkpoint], "
        "[compile]");
  }
  return OT_OK;
}

ot_status ot_import_text(const ot_import_request *request, ot_arena *arena, ot_imported *out) {
  *out = (ot_imported){.model_name = request->name};
  ot_import import = {.path = request->path,
                      .text = request->text,
                      .bytes = request->bytes,
                      .host = request->host,
                      .arena = arena,
                      .out = out};
  choose_document(&import);
  for (int i = 0; i < OT_COUNT(formats); i++) {
    if (!formats[i].is(&import)) continue;
    out->format = formats[i].name;
    OT_TRY(formats[i].import(&import));
    return ot_import_end(&import);
  }
  OT_TRY(check_data(&import));
  ot_fail(OT_USAGE, "%s has no known format", request->path);
  return ot_fail_hint(
      OT_USAGE,
      "known formats: Megatron-LM's flags (--num-layers ... in a script, a file of "
      "flags or YAML), torchtitan's TOML ([model], [training], ...), nanotron's "
      "YAML (model:, parallelism:, tokens:), MaxText's YAML (per_device_batch_size, "
      "...), DeepSpeed's JSON (zero_optimization, ...)");
}
