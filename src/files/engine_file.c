// SPDX-License-Identifier: Apache-2.0
// Where an engine's name leads.
#include "files/engine_file.h"

#include <string.h>

#include "base/text.h"
#include "base/text_builder.h"
#include "describe/engine_keys.h"
#include "files/tree_file.h"

static ot_status unknown(const char *name, const ot_presets *presets, ot_arena *arena) {
  const ot_preset_names all = ot_presets_list(presets, OT_PRESET_ENGINE, arena);
  ot_text_builder names = {.arena = arena};
  ot_text_put(&names, ot_engine_orthant.name);
  for (int64_t i = 0; i < all.count; i++) ot_text_appendf(&names, ", %s", all.name[i]);
  ot_fail(OT_USAGE, "--engine: there is no engine called \"%s\"", name);
  return ot_fail_hint(OT_USAGE, "one of %s", ot_text_builder_text(&names));
}

ot_status ot_engine_file_load(const char *name, const ot_presets *presets, ot_arena *arena,
                              const ot_engine **out) {
  const bool file = strchr(name, '/') || ot_text_ends_with(name, ".yaml");
  const char *const path = file ? name : ot_presets_find(presets, OT_PRESET_ENGINE, name, arena);
  *out = &ot_engine_orthant;
  if (ot_text_equal(name, ot_engine_orthant.name)) return OT_OK;
  if (!path) return unknown(name, presets, arena);
  ot_engine *const read = ot_arena_array(arena, 1, sizeof *read);
  ot_node *tree;
  OT_TRY(ot_tree_load(path, arena, &tree));
  *out = read;
  return ot_engine_read(tree, arena, read);
}
