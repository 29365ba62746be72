// SPDX-License-Identifier: Apache-2.0
// `orthant config`: the settings of a run, resolved, with the origin of each value; or the complete
// commented example, generated from the table of keys.
#include <stdio.h>
#include <string.h>

#include "base/json_writer.h"
#include "base/number.h"
#include "base/schema.h"
#include "base/text.h"
#include "cli/installed.h"
#include "cli/output.h"
#include "cli/run_options.h"
#include "cli/verbs.h"
#include "describe/run_keys.h"

enum { ORIGIN_COLUMN = 52 };

// Values of the example for keys without a default.
static const char *const samples[] = {"model",
                                      "llama3-8b",
                                      "data.train",
                                      "data/train",
                                      "data.validation",
                                      "data/validation",
                                      "data.tokenizer",
                                      "data/tokenizer.json",
                                      "steps",
                                      "1000",
                                      "output",
                                      "runs/NAME",
                                      NULL};

static void print_example(ot_arena *arena) {
  ot_text_builder text = {.arena = arena};
  ot_text_put(
      &text,
      "# Every setting of a run with its default, allowed values and unit. All but `model` may\n"
      "# be left out; training also needs data.train and steps or tokens. Numbers may be written\n"
      "# 4k, 1M, 10B, 2GiB, 15T, times 30s, 12h, 2d04h. Relative paths start from this file.\n");
  ot_schema_example(&ot_run_schema, samples, &text);
  fputs(text.text, stdout);
}

// ---- keys as JSON ----

static const char *json_type(const ot_key *key) {
  switch (key->type) {
    case OT_KEY_INTEGER:
    case OT_KEY_INT:
      return "integer";
    case OT_KEY_REAL:
      return "number";
    case OT_KEY_BOOL:
      return "boolean";
    case OT_KEY_OBJECT:
      return "object";
    case OT_KEY_TEXT:
    case OT_KEY_PATH:
    case OT_KEY_CHOICE:
    case OT_KEY_DTYPE:
    case OT_KEY_FIXED:
      return "string";
  }
  OT_UNREACHABLE();
}

// A default from a table of keys, in the type of its key.
static void write_value(const char *name, ot_key_type type, const char *word, ot_json_writer *w) {
  double real;
  int64_t integer;
  const bool number = type == OT_KEY_REAL && ot_number_parse(word, false, &real);
  const bool whole =
      (type == OT_KEY_INTEGER || type == OT_KEY_INT) && ot_number_parse_size(word, &integer);
  if (strcmp(word, "null") == 0) {
    ot_json_null(w, name);
  } else if (number) {
    ot_json_real(w, name, real);
  } else if (whole) {
    ot_json_integer(w, name, integer);
  } else if (type == OT_KEY_BOOL) {
    ot_json_boolean(w, name, strcmp(word, "true") == 0);
  } else {
    ot_json_text(w, name, word);
  }
}

static void write_words(const char *name, ot_key_type type, const char *words, ot_json_writer *w) {
  ot_json_array(w, name);
  while (*words != '\0') {
    const size_t length = strcspn(words, " ");
    write_value(NULL, type, ot_arena_text(w->arena, words, (int64_t)length), w);
    words += length + (words[length] == ' ');
  }
  ot_json_end(w);
}

static void write_key(const char *path, const ot_key *key, ot_json_writer *w) {
  ot_json_object(w, NULL);
  ot_json_text(w, "key", path);
  ot_json_text(w, "type", json_type(key));
  ot_json_boolean(w, "list", key->shape != OT_SHAPE_ONE);
  ot_json_boolean(w, "needed", key->fallback == NULL);
  if (!key->fallback) {
    ot_json_null(w, "default");
  } else if (key->shape != OT_SHAPE_ONE) {
    write_words("default", key->type, key->fallback, w);
  } else {
    write_value("default", key->type, key->fallback, w);
  }
  ot_json_text(w, "unit", key->unit);
  ot_json_text(w, "allowed", ot_key_range(key, w->arena));
  write_words("also", OT_KEY_TEXT, key->also ? key->also : "", w);
  ot_json_text(w, "help", key->help);
  ot_json_end(w);
}

static void visit_key(void *context, const char *path, const ot_key *key) {
  write_key(path, key, context);
}

static void print_keys_json(ot_arena *arena) {
  ot_json_writer w = ot_json_begin(arena, 2);
  ot_json_object(&w, NULL);
  ot_json_array(&w, "keys");
  ot_schema_list(&ot_run_schema, visit_key, &w);
  ot_json_end(&w);
  ot_json_end(&w);
  puts(w.text);
}

static ot_status explain(const char *path, bool json, ot_arena *arena) {
  ot_settings settings = {
      .schema = &ot_run_schema, .arena = arena, .tree = ot_node_create(arena, OT_NODE_MAP)};
  // Setting the key reports an unknown name.
  OT_TRY(ot_settings_set(&settings, path, "", "--explain"));
  const ot_key *const key = ot_schema_find_path(&ot_run_schema, path);
  OT_CHECK(key, OT_USAGE, "%s is not one setting (--explain)", path);
  if (json) {
    ot_json_writer w = ot_json_begin(arena, 2);
    write_key(path, key, &w);
    puts(w.text);
    return OT_OK;
  }
  printf("%s: %s\n", path, key->help);
  printf("allowed: %s\n", ot_key_range(key, arena));
  printf("default: %s\n", key->fallback && key->fallback[0] != '\0' ? key->fallback : "none");
  if (key->also) printf("also spelled: %s\n", key->also);
  return OT_OK;
}

static void write_origins(const ot_node *map, const char *path, ot_json_writer *w) {
  for (const ot_node *child = map->first; child; child = child->next) {
    const char *const dot = path[0] != '\0' ? "." : "";
    const char *const longer = ot_arena_format(w->arena, "%s%s%s", path, dot, child->key);
    if (child->kind == OT_NODE_MAP && child->first) {
      write_origins(child, longer, w);
    } else {
      ot_json_text(w, longer, ot_node_place(w->arena, child));
    }
  }
}

static void print_json(const ot_config *config, ot_arena *arena) {
  ot_json_writer w = ot_json_begin(arena, 2);
  ot_json_object(&w, NULL);
  ot_node_write_json(config->settings, "config", &w);
  ot_json_object(&w, "origins");
  write_origins(config->settings, "", &w);
  ot_json_end(&w);
  ot_json_text(&w, "model_source", config->run.model_source);
  ot_json_integer(&w, "parameters", ot_model_parameters(&config->run.model));
  ot_json_end(&w);
  puts(w.text);
}

static ot_status show(const ot_options *options) {
  ot_arena *const arena = ot_options_arena(options);
  const bool json = ot_options_json(options);
  if (ot_options_flag(options, "example")) {
    if (json) {
      print_keys_json(arena);
    } else {
      print_example(arena);
    }
    return OT_OK;
  }
  if (ot_options_given(options, "explain")) {
    return explain(ot_options_text(options, "explain"), json, arena);
  }
  const ot_config_request request = {
      .path = ot_options_argument(options, 0),
      .sets = ot_options_values(options, "set"),
      .num_sets = ot_options_count(options, "set"),
      .presets = ot_installed_presets(arena),
  };
  OT_CHECK(request.path || request.num_sets > 0, OT_USAGE,
           "missing argument RUN.yaml (orthant config)");
  ot_config config;
  OT_TRY(ot_config_load(&request, arena, &config));
  ot_output_notes(&config.notes);
  if (json) {
    print_json(&config, arena);
    return OT_OK;
  }
  ot_text_builder text = {.arena = arena};
  ot_node_print_yaml(config.settings, ORIGIN_COLUMN, &text);
  fputs(text.text, stdout);
  return OT_OK;
}

static const ot_option rows[] = {
    {.shared = &ot_option_set},
    {"example", OT_OPTION_FLAG, .help = "print a complete commented RUN.yaml with every key"},
    {"explain", OT_OPTION_TEXT, "KEY", .help = "print meaning and allowed values of one key"},
};

const ot_verb ot_verb_config = {
    .name = "config",
    .summary = "settings of a run, resolved, with the origin of each value",
    .arguments = "[RUN.yaml]",
    .max_arguments = 1,
    .details =
        "Precedence: defaults < model file < run file < --set. The output is itself a complete\n"
        "RUN.yaml. --example --json lists the keys with type, default, unit and range.",
    .examples =
        "  orthant config --example > run.yaml\n"
        "  orthant config run.yaml --set optimizer.lr=1e-3 --set data.train=[a, b]\n"
        "  orthant config --explain batch.global_batch_size",
    .options = rows,
    .num_options = OT_COUNT(rows),
    .json = true,
    .run = show,
};
