// SPDX-License-Identifier: Apache-2.0
// `orthant config`: the settings of a run, resolved, with the origin of each value; or the complete
// commented example that the table gives.
#include <stdio.h>

#include "base/json_writer.h"
#include "base/schema.h"
#include "base/text.h"
#include "cli/installed.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "describe/run_keys.h"
#include "device/heap.h"

enum { ORIGIN_COLUMN = 52 };

// What the example shows where there is no default to show.
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
      "# be left out; training also needs data.train and steps or tokens. Sizes may be written\n"
      "# 4k, 1M, 2GiB, 15T. Relative paths start from this file.\n");
  ot_schema_example(&ot_run_schema, samples, &text);
  fputs(text.text, stdout);
}

static ot_status explain(const char *path, ot_arena *arena) {
  ot_settings settings = {
      .schema = &ot_run_schema, .arena = arena, .tree = ot_node_create(arena, OT_NODE_MAP)};
  // Setting a key finds it, or says what is wrong with its name.
  OT_TRY(ot_settings_set(&settings, path, "", "--explain"));
  const ot_key *const key = ot_schema_find_path(&ot_run_schema, path);
  OT_CHECK(key, OT_USAGE, "%s is not one setting (--explain)", path);
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

static ot_status show(const ot_options *options, ot_arena *arena) {
  if (ot_options_flag(options, "example")) {
    print_example(arena);
    return OT_OK;
  }
  if (ot_options_given(options, "explain")) {
    return explain(ot_options_text(options, "explain"), arena);
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
  if (ot_options_json(options)) {
    print_json(&config, arena);
    return OT_OK;
  }
  ot_text_builder text = {.arena = arena};
  ot_node_print_yaml(config.settings, ORIGIN_COLUMN, &text);
  fputs(text.text, stdout);
  return OT_OK;
}

static ot_status run(const ot_options *options) {
  ot_heap heap = {0};
  ot_arena arena = ot_heap_arena_create(&heap);
  const ot_status status = show(options, &arena);
  ot_heap_release(&heap);
  return status;
}

static const ot_option rows[] = {
    {.name = "set",
     .kind = OT_OPTION_SETTING,
     .value = "KEY=VALUE",
     .help = "override a setting; lists as [a, b]"},
    {.name = "example",
     .kind = OT_OPTION_FLAG,
     .help = "print a complete commented RUN.yaml with every key"},
    {.name = "explain",
     .kind = OT_OPTION_TEXT,
     .value = "KEY",
     .help = "say what one key means and allows"},
};

const ot_verb ot_verb_config = {
    .name = "config",
    .summary = "settings of a run, resolved, with the origin of each value",
    .arguments = "[RUN.yaml]",
    .max_arguments = 1,
    .details =
        "Precedence: defaults < model file < run file < --set. What is printed is itself a\n"
        "complete RUN.yaml.",
    .examples =
        "  orthant config --example > run.yaml\n"
        "  orthant config run.yaml --set optimizer.lr=1e-3 --set data.train=[a, b]\n"
        "  orthant config --explain batch.global_batch_size",
    .options = rows,
    .num_options = OT_COUNT(rows),
    .json = true,
    .run = run,
};
