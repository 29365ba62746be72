// SPDX-License-Identifier: Apache-2.0
// run: backends=cpu
// Configurations of public models as published on the Hugging Face hub (fixtures/hub_models.json,
// made by tools/collect_hub_models.py): all parse unchanged, with the parameter counts of
// transformers.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "files/config_file.h"
#include "files/json_file.h"
#include "host/heap.h"
#include "support/scratch.h"

enum { MODELS_MIN = 60, TABLE_BYTES_MAX = 1 << 20 };

typedef struct fixture {
  char directory[SCRATCH_BYTES];
  ot_heap heap;
  ot_arena arena;
  json_t *models;
} fixture;

static int set_up(void **state) {
  fixture *const f = calloc(1, sizeof *f);
  scratch_create(f->directory);
  f->arena = ot_heap_arena_create(&f->heap);
  *state = f;
  return ot_json_load(fixture_path("hub_models.json"), TABLE_BYTES_MAX, &f->models);
}

static int tear_down(void **state) {
  fixture *const f = *state;
  json_decref(f->models);
  scratch_destroy(f->directory);
  ot_heap_release(&f->heap);
  free(f);
  return 0;
}

// Model `i` of the table, read from a config.json with its settings; returns its name.
static const char *load(fixture *f, size_t i, ot_config_model *out) {
  const json_t *const entry = json_array_get(f->models, i);
  const char *const name = json_string_value(json_object_get(entry, "name"));
  char *const text = json_dumps(json_object_get(entry, "settings"), JSON_INDENT(2));
  scratch_write(scratch_path(f->directory, "config.json"), text, (int64_t)strlen(text));
  free(text);
  const ot_config_request no_settings = {0};
  if (ot_config_load_model(f->directory, &no_settings, &f->arena, out) != OT_OK) {
    fail_msg("%s: %s", name, ot_fail_message());
  }
  return name;
}

static int64_t expected(const fixture *f, size_t i, const char *key) {
  return json_integer_value(json_object_get(json_array_get(f->models, i), key));
}

static void public_models_load_unchanged_with_the_parameters_that_transformers_counts(
    void **state) {
  fixture *const f = *state;
  bool seen[OT_FAMILY_COUNT] = {false};
  for (size_t i = 0; i < json_array_size(f->models); i++) {
    ot_config_model read;
    const char *const name = load(f, i, &read);
    const int64_t all = ot_model_parameters(&read.model);
    const int64_t active = ot_model_active_parameters(&read.model);
    if (all != expected(f, i, "parameters") || active != expected(f, i, "active")) {
      fail_msg("%s: %lld parameters, %lld of a token", name, (long long)all, (long long)active);
    }
    seen[read.model.family] = true;
  }
  assert_true(json_array_size(f->models) >= MODELS_MIN);
  for (int i = 0; i < OT_FAMILY_COUNT; i++) {
    if (!seen[i]) fail_msg("no model is of family %s", ot_family_name((ot_family)i));
  }
}

static void ignored_keys_give_one_note_per_file(void **state) {
  fixture *const f = *state;
  static const char *const notes[][2] = {
      {"Qwen/Qwen3-30B-A3B", "ignored: max_window_layers"},
      {"Qwen/Qwen3-Coder-480B-A35B-Instruct",
       "ignored: max_window_layers, qkv_bias, shared_expert_intermediate_size, use_qk_norm"},
      {"deepseek-ai/DeepSeek-V3", "ignored: auto_map"},
      {"HuggingFaceTB/SmolLM2-135M", "ignored: is_llama_config, rope_interleaved"},
      {"distilbert/distilgpt2", "ignored: _num_labels"},
      {"openai-community/gpt2", NULL},
      {"Qwen/Qwen3-8B", NULL}};
  int found = 0;
  for (size_t i = 0; i < json_array_size(f->models); i++) {
    ot_config_model read;
    const char *const name = load(f, i, &read);
    for (int k = 0; k < (int)(sizeof notes / sizeof notes[0]); k++) {
      if (strcmp(notes[k][0], name) != 0) continue;
      found++;
      const char *const note = read.notes.count > 0 ? read.notes.text[0] : NULL;
      if (!notes[k][1] && note) fail_msg("%s: %s", name, note);
      if (notes[k][1] && (!note || !strstr(note, notes[k][1]))) fail_msg("%s: %s", name, note);
    }
  }
  assert_int_equal(found, sizeof notes / sizeof notes[0]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(
          public_models_load_unchanged_with_the_parameters_that_transformers_counts, set_up,
          tear_down),
      cmocka_unit_test_setup_teardown(ignored_keys_give_one_note_per_file, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
