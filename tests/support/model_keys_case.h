// SPDX-License-Identifier: Apache-2.0
// Parses HF configurations given as text, in the arena of the test file.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "describe/model_keys.h"
#include "files/tree_file.h"
#include "support/arena_fixture.h"

static inline ot_status read_text(const char *text, ot_model *model) {
  static const ot_tree_origin origin = {.name = "config.json"};
  ot_node *tree;
  const ot_status status = ot_tree_parse_json(&origin, text, ot_text_length(text), &arena, &tree);
  if (status != OT_OK) return status;
  return ot_model_read(tree, &arena, model);
}

static inline ot_model accept(const char *text) {
  ot_model model;
  if (read_text(text, &model) != OT_OK) fail_msg("%s", ot_fail_message());
  return model;
}

// Expects a usage error whose message contains both parts.
static inline void refuse(const char *text, const char *part, const char *other) {
  ot_model model;
  assert_int_equal(read_text(text, &model), OT_USAGE);
  if (!strstr(ot_fail_message(), part)) fail_msg("\"%s\" lacks \"%s\"", ot_fail_message(), part);
  if (!strstr(ot_fail_message(), other)) fail_msg("\"%s\" lacks \"%s\"", ot_fail_message(), other);
}

static inline ot_model load_preset(const char *name) {
  ot_node *tree;
  ot_model model;
  const char *const path = ot_arena_format(&arena, OT_SOURCE_DIR "/presets/models/%s.json", name);
  if (ot_tree_load(path, &arena, &tree) != OT_OK) fail_msg("%s", ot_fail_message());
  if (ot_model_read(tree, &arena, &model) != OT_OK) fail_msg("%s", ot_fail_message());
  return model;
}
